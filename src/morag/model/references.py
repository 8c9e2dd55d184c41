"""References as users see them."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from morag.model.meta import CommitMeta


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
    """Where a reference stands; ahead, behind and the ancestor compare it to the default branch."""

    head: CommitMeta
    total_commits: int
    ahead: int | None = None
    behind: int | None = None
    common_ancestor: str | None = None


class TagNote(Struct, frozen=True):
    """What a tag may carry beside its commit."""

    message: str | None = None
    headers: dict[str, tuple[str, ...]] = {}
    signature: bytes | None = None


class RefLogEntry(Struct, frozen=True, rename="camel"):
    """One move of a reference. `commits` counts what a commit, merge or transplant added."""

    reference: Reference
    operation: str
    hash_before: str
    hash_after: str
    who: str
    time: str
    commits: int
