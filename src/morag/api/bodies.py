"""What clients send, and how forgiving we are about it.

Unknown fields are ignored, but not in commit metadata: a misspelt field there would be lost
silently. Numbers may come as text, texts as numbers, and whatever follows the JSON is not read:
the original takes all that (`model/forgiving.py`). Bodies that are as they should be cost nothing.

Names, hashes, keys and times in a body are checked while it is read: that something is wrong with
the body is told before anything else is looked at.
"""

from __future__ import annotations

from json import JSONDecoder
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from morag.errors import BadRequest
from morag.model.content import Content
from morag.model.forgiving import converted
from morag.model.keys import ContentKey, check_elements, check_key
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.meta import CommitMeta
from morag.model.names import check_hash, check_reference_name
from morag.model.operations import Delete, Operation, Put, Unchanged
from morag.model.times import parse_instant
from morag.service.places import check_hash_or_relative

T = TypeVar("T")

_FIRST_VALUE: Final = JSONDecoder()  # Takes a value, and does not look at what follows it.


class Body(Generic[T]):
    """Reads one kind of body. Nothing at all, and null, are None."""

    def __init__(self, type: Any) -> None:
        self._type = type | None
        self._decoder = msgspec.json.Decoder(self._type)

    def read(self, body: bytes) -> T | None:
        if not body or body.isspace():
            return None
        try:
            found: T | None = self._decoder.decode(body)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as problem:
            found = self._read_forgivingly(body, problem)
        return found

    def _read_forgivingly(self, body: bytes, problem: Exception) -> T | None:
        try:
            plain, _ = _FIRST_VALUE.raw_decode(body.decode().lstrip())
            msgspec.json.encode(plain)  # Refuses half a character, which could not be stored.
            found: T | None = converted(plain, self._type)
        except (ValueError, RecursionError):
            raise BadRequest(f"The request body cannot be read: {problem}") from None
        return found


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

    def __post_init__(self) -> None:
        check_reference_name(self.name)
        if self.hash is not None:
            check_hash_or_relative(self.hash)


class BranchBody(NamedBody, frozen=True, tag="BRANCH", tag_field="type"):
    pass


class TagBody(NamedBody, frozen=True, tag="TAG", tag_field="type"):
    pass


class DetachedBody(Struct, frozen=True, tag="DETACHED", tag_field="type"):
    hash: str

    def __post_init__(self) -> None:
        check_hash_or_relative(self.hash)


ReferenceBody: TypeAlias = BranchBody | TagBody | DetachedBody


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
        if self.from_hash:
            check_hash_or_relative(self.from_hash)


class MergeBodyV1(Bringing, frozen=True, kw_only=True, rename="camel"):
    from_hash: str
    keep_individual_commits: bool | None = None
    key_merge_modes: tuple[MergeKeyBodyV1, ...] | None = None

    def __post_init__(self) -> None:
        check_hash(self.from_hash)


class TransplantBody(Bringing, frozen=True, kw_only=True, rename="camel"):
    hashes_to_transplant: tuple[str, ...] | None = None
    message: str | None = None
    key_merge_modes: tuple[MergeKeyBody, ...] | None = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            check_hash_or_relative(hash)


class TransplantBodyV1(Bringing, frozen=True, kw_only=True, rename="camel"):
    hashes_to_transplant: tuple[str, ...] | None = None
    keep_individual_commits: bool | None = None
    key_merge_modes: tuple[MergeKeyBodyV1, ...] | None = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            check_hash(hash)


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


COMMIT: Final = Body[CommitBody](CommitBody)
COMMIT_V1: Final = Body[CommitBodyV1](CommitBodyV1)
REFERENCE: Final[Body[ReferenceBody]] = Body(ReferenceBody)
MERGE: Final = Body[MergeBody](MergeBody)
MERGE_V1: Final = Body[MergeBodyV1](MergeBodyV1)
TRANSPLANT: Final = Body[TransplantBody](TransplantBody)
TRANSPLANT_V1: Final = Body[TransplantBodyV1](TransplantBodyV1)
KEYS: Final = Body[KeysBody](KeysBody)
CONFIG: Final = Body[ConfigBody](ConfigBody)
CONTENT: Final[Body[Content]] = Body(Content)
NAMESPACE_UPDATE: Final = Body[NamespaceUpdateBody](NamespaceUpdateBody)


def _one_or_all(one: str | None, all: tuple[str, ...] | None) -> tuple[str, ...]:
    if all or one is None:
        return all or ()
    return (one,)
