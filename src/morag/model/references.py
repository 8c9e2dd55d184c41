"""References as users see them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from morag.model.meta import CommitMeta

_CONSISTENCIES: Final = [
    "NOT_CHECKED",
    "COMMIT_CONSISTENT",
    "COMMIT_CONTENT_INCONSISTENT",
    "COMMIT_INCONSISTENT",
]
ConsistencyText: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": _CONSISTENCIES})]
"""The result of checking a commit. Not an enum, because a newer server may have more results."""


class Reference(Struct, frozen=True):
    """A branch, a tag, or a bare commit, which has no name."""

    type: Literal["BRANCH", "TAG", "DETACHED"]
    name: str | None
    hash: str


class ReferenceMetadata(
    Struct,
    frozen=True,
    kw_only=True,
    rename={
        "head": "commitMetaOfHEAD",
        "total_commits": "numTotalCommits",
        "ahead": "numCommitsAhead",
        "behind": "numCommitsBehind",
        "common_ancestor": "commonAncestorHash",
    },
):
    """Metadata of a reference. `ahead`, `behind` and `common_ancestor` compare it with the default
    branch."""

    head: CommitMeta
    total_commits: int
    ahead: int | None = None
    behind: int | None = None
    common_ancestor: str | None = None


class HeadStatus(
    Struct, frozen=True, rename={"hash": "commitHash", "consistency": "commitConsistency"}
):
    """A commit that is or was the head of a reference, and whether all of it is stored.

    `meta` is null if the commit is missing.
    """

    hash: str
    consistency: ConsistencyText
    meta: CommitMeta | None = None


class ReferenceHistory(Struct, frozen=True, rename={"log": "commitLogConsistency"}):
    """The head of a reference and its previous heads; `log` is the result for older commits."""

    reference: Reference
    current: HeadStatus
    previous: tuple[HeadStatus, ...]
    log: ConsistencyText


class TagNote(Struct, frozen=True):
    """The message, headers and signature of a tag."""

    message: str | None = None
    headers: dict[str, tuple[str, ...]] = {}
    signature: bytes | None = None


class RefLogEntry(Struct, frozen=True, rename="camel"):
    """One move of a reference. `commits` counts the commits that the operation added."""

    reference: Reference
    operation: str
    hash_before: str
    hash_after: str
    who: str
    time: str
    commits: int
