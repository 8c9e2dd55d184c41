"""What version 1 answers, where it differs from version 2: first values only, and fewer fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from morag.model.content import Content, Namespace
from morag.model.keys import ContentKey
from morag.model.listed import Diff
from morag.model.merging import MergeBehavior
from morag.model.operations import Delete, Put

if TYPE_CHECKING:
    from morag.model.listed import Entry, LogEntry
    from morag.model.merging import MergedKey, MergeResult
    from morag.model.meta import CommitMeta
    from morag.model.references import ReferenceMetadata
    from morag.service.references import Described


class ConfigV1(Struct, frozen=True, rename="camel"):
    default_branch: str
    max_supported_api_version: int


class CommitMetaV1(Struct, frozen=True, kw_only=True, rename="camel"):
    properties: dict[str, str]
    hash: str | None
    committer: str | None
    author: str | None
    signed_off_by: str | None
    message: str
    commit_time: str | None
    author_time: str | None

    @classmethod
    def of(cls, meta: CommitMeta) -> CommitMetaV1:
        return cls(
            properties={name: values[0] for name, values in meta.properties.items() if values},
            hash=meta.hash,
            committer=meta.committer,
            author=next(iter(meta.authors), None),
            signed_off_by=next(iter(meta.signed_off_by), None),
            message=meta.message,
            commit_time=meta.commit_time,
            author_time=meta.author_time,
        )


class MetadataV1(Struct, frozen=True, kw_only=True):
    """The names are those on the wire."""

    numCommitsAhead: int | None  # noqa: N815
    numCommitsBehind: int | None  # noqa: N815
    commitMetaOfHEAD: CommitMetaV1  # noqa: N815
    commonAncestorHash: str | None  # noqa: N815
    numTotalCommits: int  # noqa: N815

    @classmethod
    def of(cls, metadata: ReferenceMetadata) -> MetadataV1:
        return cls(
            numCommitsAhead=metadata.ahead,
            numCommitsBehind=metadata.behind,
            commitMetaOfHEAD=CommitMetaV1.of(metadata.head),
            commonAncestorHash=metadata.common_ancestor,
            numTotalCommits=metadata.total_commits,
        )


class ReferenceV1(Struct, frozen=True, omit_defaults=True):
    type: str
    name: str | None
    hash: str
    metadata: MetadataV1 | None = None

    @classmethod
    def of(cls, found: Described) -> ReferenceV1:
        reference = found.reference
        metadata = None if found.metadata is None else MetadataV1.of(found.metadata)
        return cls(reference.type, reference.name, reference.hash, metadata)


class ReferencesV1(Struct, frozen=True, rename="camel"):
    references: tuple[ReferenceV1, ...]
    token: str | None
    has_more: bool


class EntryV1(Struct, frozen=True):
    type: str
    name: ContentKey

    @classmethod
    def of(cls, entry: Entry) -> EntryV1:
        return cls(entry.type, entry.key)


class EntriesV1(Struct, frozen=True, rename="camel"):
    entries: tuple[EntryV1, ...]
    token: str | None
    has_more: bool


class PutV1(Struct, frozen=True, tag="PUT", tag_field="type", rename="camel"):
    key: ContentKey
    content: Content
    expected_content: None = None

    @classmethod
    def of(cls, operation: Put | Delete) -> PutV1 | Delete:
        """The view of a put; a delete is shown as it is."""
        return cls(operation.key, operation.content) if isinstance(operation, Put) else operation


class LogEntryV1(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMetaV1
    parent_commit_hash: str
    operations: tuple[PutV1 | Delete, ...] | None

    @classmethod
    def of(cls, entry: LogEntry, operations: tuple[()] | None = None) -> LogEntryV1:
        """With an empty list where operations are to be filled in."""
        return cls(CommitMetaV1.of(entry.meta), entry.parent, operations)


class LogV1(Struct, frozen=True, rename="camel"):
    log_entries: tuple[LogEntryV1, ...]
    token: str | None
    has_more: bool


class DiffsV1(Struct, frozen=True, rename="camel"):
    """Always all of them: version 1 has no pages here, only the fields for them."""

    diffs: tuple[Diff, ...]
    token: None = None
    has_more: bool = False


class NamespacesV1(Struct, frozen=True):
    namespaces: list[Namespace]


class MergedKeyV1(Struct, frozen=True, kw_only=True, rename="camel"):
    key: ContentKey
    merge_behavior: MergeBehavior
    conflict_type: str
    source_commits: tuple[str, ...] = ()
    target_commits: tuple[str, ...] = ()

    @classmethod
    def of(cls, merged: MergedKey) -> MergedKeyV1:
        conflict = "NONE" if merged.conflict is None else "UNRESOLVABLE"
        return cls(key=merged.key, merge_behavior=merged.merge_behavior, conflict_type=conflict)


class MergedV1(Struct, frozen=True, kw_only=True, rename="camel"):
    was_applied: bool
    was_successful: bool
    resultant_target_hash: str | None
    common_ancestor: str | None
    target_branch: str
    effective_target_hash: str
    expected_hash: str | None
    source_commits: tuple[str, ...] = ()
    target_commits: None = None
    details: tuple[MergedKeyV1, ...]

    @classmethod
    def of(cls, result: MergeResult) -> MergedV1:
        return cls(
            was_applied=result.was_applied,
            was_successful=result.was_successful,
            resultant_target_hash=result.resultant_target_hash,
            common_ancestor=result.common_ancestor,
            target_branch=result.target_branch,
            effective_target_hash=result.effective_target_hash,
            expected_hash=result.expected_hash,
            details=tuple(map(MergedKeyV1.of, result.details)),
        )
