"""What version 2 answers. The nouns of the model are sent as they are; here is what wraps them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Struct, UnsetType

from morag.logic.consistency import Consistency
from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.listed import Diff, Entry
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from morag.model.references import Reference, ReferenceMetadata, RefLogEntry
from morag.service.references import CommitState

if TYPE_CHECKING:
    from morag.model.listed import LogEntry
    from morag.service.references import Described, Heads


class ReferenceView(Struct, frozen=True, omit_defaults=True):
    """A branch, a tag, or a bare commit, which has no name."""

    type: str
    hash: str
    name: str | None = None
    metadata: ReferenceMetadata | None = None

    @classmethod
    def of(cls, reference: Reference) -> ReferenceView:
        return cls(reference.type, reference.hash, reference.name)

    @classmethod
    def described(cls, found: Described) -> ReferenceView:
        reference = found.reference
        return cls(reference.type, reference.hash, reference.name, found.metadata)


class SingleReference(Struct, frozen=True):
    reference: ReferenceView


class References(Struct, frozen=True, rename="camel"):
    references: tuple[ReferenceView, ...]
    token: str | None
    has_more: bool


class RecentChanges(Struct, frozen=True, rename="camel"):
    reference: ReferenceView
    current: CommitState
    previous: tuple[CommitState, ...]
    commit_log_consistency: Consistency

    @classmethod
    def of(cls, found: Heads) -> RecentChanges:
        return cls(ReferenceView.of(found.reference), found.current, found.previous, found.log)


class Entries(Struct, frozen=True, rename="camel"):
    entries: tuple[Entry, ...]
    token: str | None
    effective_reference: ReferenceView
    has_more: bool


class PutView(Struct, frozen=True, tag="PUT", tag_field="type"):
    key: ContentKey
    content: Content
    documentation: None = None

    @classmethod
    def of(cls, operation: Put | Delete) -> PutView | Delete:
        """The view of a put; a delete is shown as it is."""
        return cls(operation.key, operation.content) if isinstance(operation, Put) else operation


class LogEntryView(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMeta
    parent_commit_hash: str
    operations: tuple[PutView | Delete, ...] | None

    @classmethod
    def of(cls, entry: LogEntry, operations: tuple[()] | None = None) -> LogEntryView:
        """With an empty list where operations are to be filled in."""
        return cls(entry.meta, entry.parent, operations)


class Log(Struct, frozen=True, rename="camel"):
    log_entries: tuple[LogEntryView, ...]
    token: str | None
    has_more: bool


class Diffs(Struct, frozen=True, rename="camel"):
    diffs: tuple[Diff, ...]
    token: str | None
    effective_from_reference: ReferenceView
    effective_to_reference: ReferenceView
    has_more: bool


class SingleContent(Struct, frozen=True, rename="camel"):
    content: Content
    effective_reference: ReferenceView


class KeyedContent(Struct, frozen=True):
    key: ContentKey
    content: Content

    @classmethod
    def of(cls, found: tuple[ContentKey, Content]) -> KeyedContent:
        return cls(*found)


class Contents(Struct, frozen=True, rename="camel"):
    contents: tuple[KeyedContent, ...]
    effective_reference: ReferenceView | UnsetType = UNSET


class AddedContent(Struct, frozen=True, rename="camel"):
    key: ContentKey
    content_id: str


class Committed(Struct, frozen=True, rename="camel"):
    """`added_contents` is null, not empty, when nothing is new."""

    target_branch: ReferenceView
    added_contents: tuple[AddedContent, ...] | None


class RefLog(Struct, frozen=True, rename="camel"):
    """How references moved, newest first. Moves that the original made are not in it."""

    moves: tuple[RefLogEntry, ...]
    token: str | None
    has_more: bool


class Splits(Struct, frozen=True):
    """A commit, and the keys that start its second range, its third one, and so on."""

    reference: ReferenceView
    keys: tuple[ContentKey, ...]
