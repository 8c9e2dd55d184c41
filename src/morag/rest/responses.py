"""The bodies of responses and of errors in API version 2."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType

from morag.model.conflicts import Conflict
from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.model.references import Reference, ReferenceMetadata, RefLogEntry
from morag.model.results import Diff, Entry, LogEntry
from morag.rest.marks import ALWAYS_SENT


class ServerConfig(Struct, frozen=True, kw_only=True, rename="camel"):
    """The versions that a server supports, and its default branch. Clients read it first."""

    default_branch: str
    min_supported_api_version: int = 1
    max_supported_api_version: int
    actual_api_version: int = 0
    spec_version: str | None = None
    no_ancestor_hash: Annotated[str | None, ALWAYS_SENT] = None
    repository_creation_timestamp: Annotated[str | None, ALWAYS_SENT] = None
    oldest_possible_commit_timestamp: Annotated[str | None, ALWAYS_SENT] = None


class ReferenceView(Struct, frozen=True, omit_defaults=True):
    """A branch, a tag, or a commit without a name."""

    type: Literal["BRANCH", "TAG", "DETACHED"]
    hash: str
    name: str | None = None
    metadata: ReferenceMetadata | None = None

    @classmethod
    def of(cls, reference: Reference) -> ReferenceView:
        return cls(reference.type, reference.hash, reference.name)

    def reference(self) -> Reference:
        return Reference(self.type, self.name, self.hash)

    def with_metadata(self) -> tuple[Reference, ReferenceMetadata | None]:
        return self.reference(), self.metadata


class SingleReference(Struct, frozen=True):
    reference: ReferenceView


class Paged(Struct, frozen=True):
    """A page of a listing. Subclasses declare `token` and `has_more`, in the order of Nessie."""

    def __post_init__(self) -> None:
        _next_token(self)

    @property
    def next_token(self) -> str | None:
        """The token of the next page; None at the end."""
        return _next_token(self)


class References(Paged, frozen=True, rename="camel"):
    references: tuple[ReferenceView, ...]
    token: str | None = None
    has_more: bool = False


class Entries(Paged, frozen=True, rename="camel"):
    entries: tuple[Entry, ...]
    token: str | None = None
    effective_reference: Annotated[ReferenceView | None, ALWAYS_SENT] = None
    has_more: bool = False


class PutView(Struct, frozen=True, tag="PUT", tag_field="type"):
    key: ContentKey
    content: Content
    documentation: None = None

    @classmethod
    def of(cls, operation: Put | Delete) -> PutView | Delete:
        """The view of a put. A delete needs none and is returned unchanged."""
        return cls(operation.key, operation.content) if isinstance(operation, Put) else operation


class LogEntryView(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMeta
    parent_commit_hash: str
    operations: tuple[PutView | Delete, ...] | None = None

    @classmethod
    def of(cls, entry: LogEntry, operations: tuple[()] | None = None) -> LogEntryView:
        """`operations` is empty if the caller fills them in later."""
        return cls(entry.meta, entry.parent, operations)

    def entry(self, *, with_operations: bool) -> LogEntry:
        """Sorts operations by key: servers send removed keys first, and null for none."""
        operations = None
        if with_operations:
            found = [
                Put(view.key, view.content) if isinstance(view, PutView) else view
                for view in self.operations or ()
            ]
            operations = tuple(sorted(found, key=lambda operation: operation.key.sort_key))
        return LogEntry(self.commit_meta, self.parent_commit_hash, operations)


class Log(Paged, frozen=True, rename="camel"):
    log_entries: tuple[LogEntryView, ...]
    token: str | None = None
    has_more: bool = False


class Diffs(Paged, frozen=True, rename="camel"):
    diffs: tuple[Diff, ...]
    token: str | None = None
    effective_from_reference: Annotated[ReferenceView | None, ALWAYS_SENT] = None
    effective_to_reference: Annotated[ReferenceView | None, ALWAYS_SENT] = None
    has_more: bool = False


class SingleContent(Struct, frozen=True, rename="camel"):
    content: Content
    effective_reference: Annotated[ReferenceView | None, ALWAYS_SENT] = None


class KeyedContent(Struct, frozen=True):
    key: ContentKey
    content: Content


class Contents(Struct, frozen=True, rename="camel"):
    contents: tuple[KeyedContent, ...]
    effective_reference: Annotated[ReferenceView | None, ALWAYS_SENT] = None


class AddedContent(Struct, frozen=True, rename="camel"):
    key: ContentKey
    content_id: str


class Committed(Struct, frozen=True, rename="camel"):
    """The result of a commit. `added_contents` is null, not empty, if nothing is new."""

    target_branch: ReferenceView
    added_contents: tuple[AddedContent, ...] | None = None


class RefLog(Paged, frozen=True, rename="camel"):
    """The moves of references, newest first, without those that Nessie made."""

    moves: tuple[RefLogEntry, ...]
    token: str | None = None
    has_more: bool = False


class Splits(Struct, frozen=True):
    """A commit, and the first keys of its ranges, from the second range on."""

    reference: ReferenceView
    keys: tuple[ContentKey, ...]


class ConflictDetails(Struct, frozen=True, tag="REFERENCE_CONFLICTS", tag_field="type"):
    conflicts: tuple[Conflict, ...]


class KeyDetails(Struct, frozen=True, tag="CONTENT_KEY", tag_field="type", rename="camel"):
    content_key: ContentKey


class BriefError(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields of an error that are the same on every server."""

    status: Annotated[int, ALWAYS_SENT] = 0
    reason: Annotated[str | None, ALWAYS_SENT] = None
    message: Annotated[str | None, ALWAYS_SENT] = None
    error_code: str


class NessieError(BriefError, frozen=True, kw_only=True, rename="camel"):
    """The body of an error response."""

    error_details: ConflictDetails | KeyDetails | UnsetType = UNSET
    server_stack_trace: str | None = None


def _next_token(page: Any) -> str | None:
    """Refuses a page with `has_more` and no token: the listing would end early, unnoticed."""
    if not page.has_more:
        return None
    if not page.token:
        raise ValueError("has_more is true, but there is no token")
    token: str = page.token
    return token
