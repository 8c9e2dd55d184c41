"""What a client gets that no other floor has a struct for."""

from __future__ import annotations

from msgspec import Struct

from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.references import Reference


class CommitResult(Struct, frozen=True):
    """`added` has the content id of each key that is new."""

    hash: str
    added: dict[ContentKey, str]


class Configuration(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a server says of itself. Older ones leave out more than newer ones."""

    default_branch: str
    max_supported_api_version: int
    min_supported_api_version: int = 1
    actual_api_version: int = 0
    spec_version: str | None = None
    no_ancestor_hash: str | None = None
    repository_creation_timestamp: str | None = None
    oldest_possible_commit_timestamp: str | None = None
    additional_properties: dict[str, str] = {}


class HeadStatus(Struct, frozen=True):
    """A commit that is or was a head, without `meta` if there is none.

    `consistency` is NOT_CHECKED, COMMIT_CONSISTENT, COMMIT_CONTENT_INCONSISTENT or
    COMMIT_INCONSISTENT.
    """

    hash: str
    consistency: str
    meta: CommitMeta | None


class ReferenceHistory(Struct, frozen=True):
    """The head of a reference and the heads before it; `log` is the verdict on what is below."""

    reference: Reference
    current: HeadStatus
    previous: tuple[HeadStatus, ...]
    log: str
