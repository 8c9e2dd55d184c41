"""The bodies of version 1, where they differ from version 2, and the readers of its requests.

Responses of version 1 have fewer fields, and only the first of several values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from morag.api.json_reader import Body
from morag.model.content import Content, Namespace
from morag.model.json_types import Time
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior
from morag.model.names import check_hash
from morag.model.operations import Delete, Put, Unchanged
from morag.model.results import Diff
from morag.rest.marks import NEEDED
from morag.rest.requests import (
    FROM_HASH,
    HASHES_TO_TRANSPLANT,
    KEY_MERGE_MODES,
    CommitBody,
    MergeKeyBehavior,
    MergeOptionsBody,
    PutBody,
    check_as_nessie,
)
from morag.rest.responses import KeyedContent

if TYPE_CHECKING:
    from morag.model.merging import MergedKey, MergeResult
    from morag.model.meta import CommitMeta
    from morag.model.references import ReferenceMetadata
    from morag.model.results import Entry, LogEntry
    from morag.rest.responses import ReferenceView

_KEEP: Final = Meta(
    description="Merges are always squashed, and transplants never: any other value is refused."
)


class PutBodyV1(
    PutBody, frozen=True, omit_defaults=True, tag="PUT", tag_field="type", rename="camel"
):
    """Set the content of a key."""

    # Ignored because the expected hash of the commit is more precise.
    expected_content: Annotated[
        Content | None, Meta(description="Accepted and ignored, as Nessie does.")
    ] = None


class CommitBodyV1(CommitBody, frozen=True, rename="camel"):
    operations: Annotated[
        tuple[PutBodyV1 | Delete | Unchanged, ...] | None,
        Meta(description="The changes of the commit; each key may occur once."),
    ] = None


class MergeBodyV1(MergeOptionsBody, frozen=True, kw_only=True, rename="camel"):
    from_hash: Annotated[str, FROM_HASH]
    keep_individual_commits: Annotated[bool | None, _KEEP] = None
    key_merge_modes: Annotated[tuple[MergeKeyBehavior, ...] | None, KEY_MERGE_MODES] = None

    def __post_init__(self) -> None:
        check_as_nessie(check_hash, self.from_hash, "api.v1.params.ImmutableMerge")


class TransplantBodyV1(MergeOptionsBody, frozen=True, kw_only=True, rename="camel"):
    hashes_to_transplant: Annotated[tuple[str, ...] | None, HASHES_TO_TRANSPLANT, NEEDED] = None
    keep_individual_commits: Annotated[bool | None, _KEEP] = None
    key_merge_modes: Annotated[tuple[MergeKeyBehavior, ...] | None, KEY_MERGE_MODES] = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            check_as_nessie(check_hash, hash, "api.v1.params.ImmutableTransplant")


class NamespaceUpdateBody(Struct, frozen=True, rename="camel"):
    property_updates: Annotated[dict[str, str] | None, Meta(description="Properties to set.")] = (
        None
    )
    property_removals: Annotated[
        tuple[str, ...] | None, Meta(description="Names of properties to remove.")
    ] = None


COMMIT_V1: Final = Body[CommitBodyV1](
    CommitBodyV1,
    items=("operations", PutBodyV1 | Delete | Unchanged),
    counted=("operations",),
)
MERGE_V1: Final = Body[MergeBodyV1](
    MergeBodyV1, items=("key_merge_modes", MergeKeyBehavior), counted=("key_merge_modes",)
)
TRANSPLANT_V1: Final = Body[TransplantBodyV1](
    TransplantBodyV1,
    items=("key_merge_modes", MergeKeyBehavior),
    counted=("key_merge_modes", "hashes_to_transplant"),
)
CONTENT: Final[Body[Content]] = Body(Content)
NAMESPACE_UPDATE: Final = Body[NamespaceUpdateBody](NamespaceUpdateBody)


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
    commit_time: Time | None
    author_time: Time | None

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
    """The head commit of a reference, and its distance from the default branch."""

    # No `rename`: commitMetaOfHEAD is not camel case.
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
    def of(cls, view: ReferenceView) -> ReferenceV1:
        metadata = None if view.metadata is None else MetadataV1.of(view.metadata)
        return cls(view.type, view.name, view.hash, metadata)


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
        """The view of a put. A delete needs none and is returned unchanged."""
        return cls(operation.key, operation.content) if isinstance(operation, Put) else operation


class LogEntryV1(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMetaV1
    parent_commit_hash: str
    operations: tuple[PutV1 | Delete, ...] | None

    @classmethod
    def of(cls, entry: LogEntry, operations: tuple[()] | None = None) -> LogEntryV1:
        """`operations` is empty if the caller fills them in later."""
        return cls(CommitMetaV1.of(entry.meta), entry.parent, operations)


class LogV1(Struct, frozen=True, rename="camel"):
    log_entries: tuple[LogEntryV1, ...]
    token: str | None
    has_more: bool


class ContentsV1(Struct, frozen=True):
    contents: tuple[KeyedContent, ...]


class DiffsV1(Struct, frozen=True, rename="camel"):
    """All differences. Version 1 has the fields of pages here, but no pages."""

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
