"""Answers and requests as they are spelt on the wire, where the nouns are spelt otherwise."""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import Struct

from morag.client.results import (
    CommitResult,
    Configuration,
    HeadStatus,
    ReferenceHistory,
)
from morag.model.configs import ConfigUpdated, RepositoryConfigs
from morag.model.conflicts import Conflict, ConflictType
from morag.model.content import Content
from morag.model.keys import ContentKey
from morag.model.listed import Diff, Entry, LogEntry
from morag.model.merging import MergeBehavior, MergedKey, MergeKey, MergeResult
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Operation, Put
from morag.model.references import Reference, ReferenceMetadata, RefLogEntry

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise, whatever they are given."""

_CONFLICT_TYPES: Final = {type.value: type for type in ConflictType}


class WireReference(Struct, omit_defaults=True):
    """Both ways: a source or target of a change is sent like this, too."""

    type: Literal["BRANCH", "TAG", "DETACHED"]
    hash: str
    name: str | None = None
    metadata: ReferenceMetadata | None = None

    def reference(self) -> Reference:
        return Reference(self.type, self.name, self.hash)

    def described(self) -> tuple[Reference, ReferenceMetadata | None]:
        return self.reference(), self.metadata


class WireConflict(Struct, rename="camel"):
    conflict_type: str = ConflictType.UNKNOWN.value
    key: ContentKey | None = None
    message: str = ""

    def conflict(self) -> Conflict:
        """A newer server may know kinds of conflicts that we do not."""
        kind = _CONFLICT_TYPES.get(self.conflict_type, ConflictType.UNKNOWN)
        return Conflict(kind, self.key, self.message)


class SingleReference(Struct):
    reference: WireReference


class Paged(Struct, kw_only=True, rename="camel"):
    has_more: bool = False
    token: str | None = None

    def __post_init__(self) -> None:
        if self.has_more and not self.token:  # Or else a listing would end early, unnoticed.
            raise ValueError("there is more, but not where")

    @property
    def following(self) -> str | None:
        """The token to go on with; None at the end."""
        return self.token if self.has_more else None


class References(Paged):
    references: tuple[WireReference, ...]


class WireHead(Struct, rename="camel"):
    commit_hash: str
    commit_consistency: str
    meta: CommitMeta | None = None

    def status(self) -> HeadStatus:
        return HeadStatus(self.commit_hash, self.commit_consistency, self.meta)


class RecentChanges(Struct, rename="camel"):
    reference: WireReference
    current: WireHead
    previous: tuple[WireHead, ...]
    commit_log_consistency: str

    def history(self) -> ReferenceHistory:
        return ReferenceHistory(
            self.reference.reference(),
            self.current.status(),
            tuple(head.status() for head in self.previous),
            self.commit_log_consistency,
        )


class Moves(Paged):
    moves: tuple[RefLogEntry, ...]


class Entries(Paged):
    entries: tuple[Entry, ...]
    effective_reference: WireReference | None = None


class Splits(Struct):
    keys: tuple[ContentKey, ...]


class Diffs(Paged):
    diffs: tuple[Diff, ...]
    effective_from_reference: WireReference | None = None
    effective_to_reference: WireReference | None = None


class SingleContent(Struct):
    content: Content


class KeyedContent(Struct):
    key: ContentKey
    content: Content


class Contents(Struct):
    contents: tuple[KeyedContent, ...]


class WantedKeys(Struct, rename="camel"):
    requested_keys: tuple[ContentKey, ...]


class WireLogEntry(Struct, rename="camel"):
    commit_meta: CommitMeta
    parent_commit_hash: str
    operations: tuple[Put | Delete, ...] | None = None

    def entry(self, with_operations: bool) -> LogEntry:
        operations = None
        if with_operations:  # Servers list what was removed first, and nothing for no operations.
            operations = tuple(sorted(self.operations or (), key=lambda op: op.key.sort_key))
        return LogEntry(self.commit_meta, self.parent_commit_hash, operations)


class Log(Paged):
    log_entries: tuple[WireLogEntry, ...]


class ClientMeta(
    Struct,
    kw_only=True,
    omit_defaults=True,
    rename={
        "author_time": "authorTime",
        "signed_off_by": "allSignedOffBy",
        "properties": "allProperties",
    },
):
    """The part of a commit's metadata that is a client's to say."""

    message: str
    authors: tuple[str, ...] = ()
    author_time: str | None = None
    signed_off_by: tuple[str, ...] = ()
    properties: dict[str, tuple[str, ...]] = {}

    @classmethod
    def of(cls, meta: CommitMeta) -> ClientMeta:
        return cls(
            message=meta.message,
            authors=meta.authors,
            author_time=meta.author_time,
            signed_off_by=meta.signed_off_by,
            properties=meta.properties,
        )


class CommitWish(Struct, rename="camel"):
    commit_meta: ClientMeta
    operations: tuple[Operation, ...]


class AddedContent(Struct, rename="camel"):
    key: ContentKey
    content_id: str


class Committed(Struct, rename="camel"):
    target_branch: WireReference
    added_contents: tuple[AddedContent, ...] | None = None

    def result(self) -> CommitResult:
        added = {each.key: each.content_id for each in self.added_contents or ()}
        return CommitResult(self.target_branch.hash, added)


class _Bringing(Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """What merges and transplants have in common. The flags have the `is` on the wire, too."""

    from_ref_name: str
    key_merge_modes: tuple[MergeKey, ...] = ()
    default_key_merge_mode: MergeBehavior = MergeBehavior.NORMAL
    is_dry_run: bool = False
    is_return_conflict_as_result: bool = False


class MergeWish(_Bringing):
    from_hash: str
    commit_meta: ClientMeta | None = None


class TransplantWish(_Bringing):
    hashes_to_transplant: tuple[str, ...]
    message: str | None = None


class WireMergedKey(Struct, rename="camel"):
    key: ContentKey
    merge_behavior: MergeBehavior = MergeBehavior.NORMAL
    conflict: WireConflict | None = None

    def merged(self) -> MergedKey:
        conflict = None if self.conflict is None else self.conflict.conflict()
        return MergedKey(self.key, self.merge_behavior, conflict)


class Merged(Struct, kw_only=True, rename="camel"):
    was_applied: bool
    was_successful: bool
    resultant_target_hash: str | None = None
    common_ancestor: str | None = None
    target_branch: str
    effective_target_hash: str
    expected_hash: str | None = None
    details: tuple[WireMergedKey, ...] = ()

    def result(self) -> MergeResult:
        return MergeResult(
            was_applied=self.was_applied,
            was_successful=self.was_successful,
            resultant_target_hash=self.resultant_target_hash,
            common_ancestor=self.common_ancestor,
            target_branch=self.target_branch,
            effective_target_hash=self.effective_target_hash,
            expected_hash=self.expected_hash,
            details=tuple(detail.merged() for detail in self.details),
        )


REFERENCE: Final = msgspec.json.Decoder(SingleReference)
REFERENCES: Final = msgspec.json.Decoder(References)
RECENT_CHANGES: Final = msgspec.json.Decoder(RecentChanges)
MOVES: Final = msgspec.json.Decoder(Moves)
ENTRIES: Final = msgspec.json.Decoder(Entries)
SPLITS: Final = msgspec.json.Decoder(Splits)
DIFFS: Final = msgspec.json.Decoder(Diffs)
CONTENT: Final = msgspec.json.Decoder(SingleContent)
CONTENTS: Final = msgspec.json.Decoder(Contents)
LOG: Final = msgspec.json.Decoder(Log)
COMMITTED: Final = msgspec.json.Decoder(Committed)
MERGED: Final = msgspec.json.Decoder(Merged)
CONFIGURATION: Final = msgspec.json.Decoder(Configuration)
CONFIGS: Final = msgspec.json.Decoder(RepositoryConfigs)
CONFIG_UPDATED: Final = msgspec.json.Decoder(ConfigUpdated)
