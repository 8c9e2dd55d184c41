"""What clients send, and how forgiving we are about it.

Unknown fields are ignored, but not in commit metadata: a misspelt field there would be lost
silently. Numbers may come as text, texts as numbers, and whatever follows the JSON is not read:
the original takes all that (`model/forgiving.py`). Bodies that are as they should be cost nothing.

Names, hashes, keys and times in a body are checked while it is read: that something is wrong with
the body is told before anything else is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from msgspec import Struct

from morag.api.json_reader import Body
from morag.errors import BadRequest
from morag.model.content import Content
from morag.model.keys import ContentKey, check_elements, check_key
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.meta import CommitMeta
from morag.model.names import check_hash, check_reference_name
from morag.model.operations import Delete, Operation, Put, Unchanged
from morag.model.times import parse_instant
from morag.service.places import check_hash_or_relative

if TYPE_CHECKING:
    from collections.abc import Callable

_INVALID: Final = "Invalid value '"
_AT_TYPE: Final = "' - at `$.type`"
_SHOWN_CHARACTERS: Final = 1000


class CommitMetaBody(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Commit metadata in the words of version 1, of version 2, or of both."""

    message: str
    author: str | None = None
    authors: tuple[str, ...] | None = None
    author_time: str | None = None
    signed_off_by: str | None = None
    all_signed_off_by: tuple[str, ...] | None = None
    properties: dict[str, str] | None = None
    all_properties: dict[str, tuple[str, ...]] | None = None
    hash: str | None = None
    committer: str | None = None
    commit_time: str | None = None
    parent_commit_hashes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for time in (self.author_time, self.commit_time):
            if time is not None:
                parse_instant(time)

    def meta(self) -> CommitMeta:
        return CommitMeta(
            message=self.message,
            authors=_one_or_all(self.author, self.authors),
            author_time=self.author_time,
            signed_off_by=_one_or_all(self.signed_off_by, self.all_signed_off_by),
            properties={
                **{name: (value,) for name, value in (self.properties or {}).items()},
                **(self.all_properties or {}),
            },
            hash=self.hash,
            committer=self.committer,
            commit_time=self.commit_time,
            parents=self.parent_commit_hashes or (),
        )


class Documentation(Struct, frozen=True, rename="camel"):
    """Understood and dropped, as ever."""

    mime_type: str
    text: str


class ContentMetadata(Struct, frozen=True):
    """Understood and dropped, as ever."""

    variant: str


class PutBody(Struct, frozen=True, tag="PUT", tag_field="type", rename="camel"):
    key: ContentKey
    content: Content
    metadata: tuple[ContentMetadata, ...] | None = None
    documentation: Documentation | None = None


class PutBodyV1(PutBody, frozen=True, tag="PUT", tag_field="type", rename="camel"):
    """Expected content is read and dropped, as ever: the expected hash says more."""

    expected_content: Content | None = None


class CommitBody(Struct, frozen=True, rename="camel"):
    commit_meta: CommitMetaBody
    operations: tuple[PutBody | Delete | Unchanged, ...] | None = None

    def __post_init__(self) -> None:
        for operation in self.operations or ():
            check_key(operation.key)

    def changes(self) -> list[Operation]:
        return [
            Put(op.key, op.content) if isinstance(op, PutBody) else op
            for op in self.operations or ()
        ]


class CommitBodyV1(CommitBody, frozen=True, rename="camel"):
    operations: tuple[PutBodyV1 | Delete | Unchanged, ...] | None = None


class NamedBody(Struct, frozen=True):
    """What branches and tags share."""

    name: str
    hash: str | None = None
    nessie: ClassVar[str]

    def __post_init__(self) -> None:
        _check(check_reference_name, self.name, self.nessie)
        if self.hash is not None:
            _check(check_hash_or_relative, self.hash, self.nessie)


class BranchBody(NamedBody, frozen=True, tag="BRANCH", tag_field="type"):
    nessie: ClassVar = "model.ImmutableBranch"


class TagBody(NamedBody, frozen=True, tag="TAG", tag_field="type"):
    nessie: ClassVar = "model.ImmutableTag"


class DetachedBody(Struct, frozen=True, tag="DETACHED", tag_field="type"):
    hash: str

    def __post_init__(self) -> None:
        _check(check_hash_or_relative, self.hash, "model.ImmutableDetached")


ReferenceBody: TypeAlias = BranchBody | TagBody | DetachedBody


class ReferenceReader(Body[ReferenceBody]):
    """Refuses an unknown type of reference in the words that Nessie's clients look for."""

    def read(self, body: bytes, most_items: int) -> ReferenceBody | None:
        try:
            return super().read(body, most_items)
        except BadRequest as problem:
            # A pattern would take long on a text that the client has chosen for that.
            _, _, unknown = str(problem).partition(_INVALID)
            if not unknown.endswith(_AT_TYPE):
                raise
            unknown = unknown.removesuffix(_AT_TYPE)
            raise BadRequest(
                f"Could not resolve type id '{_shown(unknown)}' as a subtype of "
                "`org.projectnessie.model.Reference`: known type ids = [BRANCH, DETACHED, TAG]"
            ) from None


class RequestedKey(Struct, frozen=True):
    """A key to look for. One without elements is no mistake: it is never found."""

    elements: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_elements("Content key", self.elements)

    def key(self) -> ContentKey:
        return ContentKey(self.elements)


class MergeKeyBodyV1(Struct, frozen=True, rename="camel"):
    """Version 1 knows no resolved contents: what a client sends as such is not looked at."""

    key: RequestedKey
    merge_behavior: MergeBehavior

    def rule(self) -> MergeKey:
        return MergeKey(self.key.key(), self.merge_behavior)


class MergeKeyBody(MergeKeyBodyV1, frozen=True, rename="camel"):
    expected_target_content: Content | None = None
    resolved_content: Content | None = None
    expected_target_documentation: Documentation | None = None
    resolved_documentation: Documentation | None = None
    metadata: tuple[ContentMetadata, ...] | None = None

    def rule(self) -> MergeKey:
        contents = self.expected_target_content, self.resolved_content
        return MergeKey(self.key.key(), self.merge_behavior, *contents)


class Bringing(Struct, frozen=True, kw_only=True, rename="camel"):
    """What merges and transplants share. The flags are spelt with `is`, and only so."""

    from_ref_name: str
    default_key_merge_mode: MergeBehavior | None = None
    is_dry_run: bool | None = None
    is_fetch_additional_info: bool | None = None
    is_return_conflict_as_result: bool | None = None


class MergeBody(Bringing, frozen=True, kw_only=True, rename="camel"):
    from_hash: str | None = None
    message: str | None = None
    commit_meta: CommitMetaBody | None = None
    key_merge_modes: tuple[MergeKeyBody, ...] | None = None

    def __post_init__(self) -> None:
        if self.from_hash is not None:
            _check(check_hash_or_relative, self.from_hash, "api.v2.params.ImmutableMerge")


class MergeBodyV1(Bringing, frozen=True, kw_only=True, rename="camel"):
    from_hash: str
    keep_individual_commits: bool | None = None
    key_merge_modes: tuple[MergeKeyBodyV1, ...] | None = None

    def __post_init__(self) -> None:
        _check(check_hash, self.from_hash, "api.v1.params.ImmutableMerge")


class TransplantBody(Bringing, frozen=True, kw_only=True, rename="camel"):
    hashes_to_transplant: tuple[str, ...] | None = None
    message: str | None = None
    key_merge_modes: tuple[MergeKeyBody, ...] | None = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            _check(check_hash_or_relative, hash, "api.v2.params.ImmutableTransplant")


class TransplantBodyV1(Bringing, frozen=True, kw_only=True, rename="camel"):
    hashes_to_transplant: tuple[str, ...] | None = None
    keep_individual_commits: bool | None = None
    key_merge_modes: tuple[MergeKeyBodyV1, ...] | None = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            _check(check_hash, hash, "api.v1.params.ImmutableTransplant")


AnyBringing: TypeAlias = MergeBody | MergeBodyV1 | TransplantBody | TransplantBodyV1


class KeysBody(Struct, frozen=True, rename="camel"):
    requested_keys: tuple[RequestedKey, ...] | None = None

    def keys(self) -> list[ContentKey]:
        return [key.key() for key in self.requested_keys or () if key.elements]


class NamespaceUpdateBody(Struct, frozen=True, rename="camel"):
    property_updates: dict[str, str] | None = None
    property_removals: tuple[str, ...] | None = None


class ConfigBody(Struct, frozen=True):
    """A configuration, whose type decides what it looks like."""

    config: dict[str, Any]


COMMIT: Final = Body[CommitBody](
    CommitBody,
    items=("operations", PutBody | Delete | Unchanged),
    counted=("operations",),
)
COMMIT_V1: Final = Body[CommitBodyV1](
    CommitBodyV1,
    items=("operations", PutBodyV1 | Delete | Unchanged),
    counted=("operations",),
)
REFERENCE: Final = ReferenceReader(ReferenceBody)
MERGE: Final = Body[MergeBody](
    MergeBody, items=("key_merge_modes", MergeKeyBody), counted=("key_merge_modes",)
)
MERGE_V1: Final = Body[MergeBodyV1](
    MergeBodyV1, items=("key_merge_modes", MergeKeyBodyV1), counted=("key_merge_modes",)
)
TRANSPLANT: Final = Body[TransplantBody](
    TransplantBody,
    items=("key_merge_modes", MergeKeyBody),
    counted=("key_merge_modes", "hashes_to_transplant"),
)
TRANSPLANT_V1: Final = Body[TransplantBodyV1](
    TransplantBodyV1,
    items=("key_merge_modes", MergeKeyBodyV1),
    counted=("key_merge_modes", "hashes_to_transplant"),
)
KEYS: Final = Body[KeysBody](
    KeysBody, items=("requested_keys", RequestedKey), counted=("requested_keys",)
)
CONFIG: Final = Body[ConfigBody](ConfigBody)
CONTENT: Final[Body[Content]] = Body(Content)
NAMESPACE_UPDATE: Final = Body[NamespaceUpdateBody](NamespaceUpdateBody)


def _check(check: Callable[[str], object], text: str, nessie: str) -> None:
    """Refuse a name or a hash in Nessie's words, which its clients look for to the end of the line.

    `nessie` is the class that Nessie cannot make of the body.
    """
    try:
        check(text)
    except BadRequest as problem:
        raise BadRequest(
            f"Cannot construct instance of `org.projectnessie.{nessie}`, problem: {problem} - but "
            f"was: {_shown(text)}\n"
        ) from None


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _one_or_all(one: str | None, all: tuple[str, ...] | None) -> tuple[str, ...]:
    if all or one is None:
        return all or ()
    return (one,)
