"""The bodies that clients of API version 2 send.

Names, hashes, keys and times are checked when a struct is built, which is while the server decodes
a body: mistakes in the body are reported before all others. Absent fields are not sent
(`omit_defaults`). Unknown fields are ignored, except in commit metadata, where a misspelt field
would be lost silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, TypeAlias

from msgspec import Meta, Struct

from morag.errors import BadRequest
from morag.model.content import Content
from morag.model.json_types import Time
from morag.model.keys import ContentKey, check_elements, check_key
from morag.model.merging import MergeBehavior, MergeKey, MergeOptions
from morag.model.meta import CommitMeta
from morag.model.names import check_reference_name
from morag.model.operations import Delete, Key, Operation, Put, Unchanged
from morag.model.refspecs import check_hash_and_steps
from morag.model.times import parse_instant
from morag.rest.marks import NEEDED, SET_BY_SERVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_IGNORED: Final = Meta(description="Accepted and ignored, as Nessie does.")
_SHOWN_CHARACTERS: Final = 1000


class CommitMetaBody(
    Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """Commit metadata with the fields of version 1, of version 2, or of both."""

    message: Annotated[str, Meta(description="The commit message.")]
    author: Annotated[
        str | None, Meta(description="The author. Use `authors` for more than one.")
    ] = None
    authors: Annotated[tuple[str, ...] | None, Meta(description="The authors.")] = None
    author_time: Annotated[
        Time | None, Meta(description="When the change was written; by default the commit time.")
    ] = None
    signed_off_by: Annotated[
        str | None,
        Meta(description="The sign-off of the commit. Use `allSignedOffBy` for more than one."),
    ] = None
    all_signed_off_by: Annotated[
        tuple[str, ...] | None, Meta(description="All sign-offs of the commit.")
    ] = None
    properties: Annotated[
        dict[str, str] | None, Meta(description="Properties with one value each.")
    ] = None
    all_properties: Annotated[
        dict[str, tuple[str, ...]] | None,
        Meta(description="Properties with any number of values each."),
    ] = None
    hash: Annotated[str | None, SET_BY_SERVER] = None
    committer: Annotated[str | None, SET_BY_SERVER] = None
    commit_time: Annotated[str | None, SET_BY_SERVER] = None
    parent_commit_hashes: Annotated[tuple[str, ...] | None, SET_BY_SERVER] = None

    def __post_init__(self) -> None:
        for time in (self.author_time, self.commit_time):
            if time is not None:
                parse_instant(time)

    @classmethod
    def of(cls, meta: CommitMeta) -> CommitMetaBody:
        """The fields that a client sets. The caller has checked that the others are empty."""
        return cls(
            message=meta.message,
            authors=meta.authors or None,
            author_time=meta.author_time,
            all_signed_off_by=meta.signed_off_by or None,
            all_properties=meta.properties or None,
        )

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
    """Accepted and ignored, as Nessie does."""

    mime_type: Annotated[str, Meta(description="The media type of the text.")]
    text: Annotated[str, Meta(description="The text itself.")]


class ContentMetadata(Struct, frozen=True):
    """Accepted and ignored, as Nessie does."""

    variant: Annotated[str, Meta(description="The kind of metadata.")]


class PutBody(Struct, frozen=True, omit_defaults=True, tag="PUT", tag_field="type", rename="camel"):
    key: Key
    content: Annotated[
        Content,
        Meta(
            description="The new content of the key. With an `id` it replaces that content, "
            "without one it is new."
        ),
    ]
    metadata: Annotated[tuple[ContentMetadata, ...] | None, _IGNORED] = None
    documentation: Annotated[Documentation | None, _IGNORED] = None


class CommitBody(Struct, frozen=True, rename="camel"):
    commit_meta: Annotated[CommitMetaBody, Meta(description="The metadata of the commit.")]
    operations: Annotated[
        tuple[PutBody | Delete | Unchanged, ...] | None,
        Meta(description="The changes of the commit; each key may occur once."),
        NEEDED,
    ] = None

    def __post_init__(self) -> None:
        for operation in self.operations or ():
            check_key(operation.key)  # As in Nessie, before a missing branch is reported.

    @classmethod
    def of(cls, meta: CommitMeta, operations: Iterable[Operation]) -> CommitBody:
        sent = (PutBody(op.key, op.content) if isinstance(op, Put) else op for op in operations)
        return cls(CommitMetaBody.of(meta), tuple(sent))

    def changes(self) -> list[Operation]:
        return [
            Put(op.key, op.content) if isinstance(op, PutBody) else op
            for op in self.operations or ()
        ]


_HASH: Final = Meta(description="The commit that the reference points to.")


class NamedBody(Struct, frozen=True, omit_defaults=True):
    """The fields that branches and tags share."""

    name: Annotated[str, Meta(description="The name of the branch or tag.")]
    hash: Annotated[str | None, _HASH, NEEDED] = None
    nessie: ClassVar[str]

    def __post_init__(self) -> None:
        check_as_nessie(check_reference_name, self.name, self.nessie)
        if self.hash is not None:
            check_as_nessie(check_hash_and_steps, self.hash, self.nessie)


class BranchBody(NamedBody, frozen=True, tag="BRANCH", tag_field="type"):
    nessie: ClassVar = "model.ImmutableBranch"


class TagBody(NamedBody, frozen=True, tag="TAG", tag_field="type"):
    nessie: ClassVar = "model.ImmutableTag"


class DetachedBody(Struct, frozen=True, tag="DETACHED", tag_field="type"):
    hash: Annotated[str, _HASH]

    def __post_init__(self) -> None:
        check_as_nessie(check_hash_and_steps, self.hash, "model.ImmutableDetached")


ReferenceBody: TypeAlias = BranchBody | TagBody | DetachedBody
"""A source or a target of a change. Servers look up the name; the type may be wrong."""


class RequestedKey(Struct, frozen=True):
    """A key to look up. A key without elements is accepted and never found."""

    elements: Annotated[
        tuple[str, ...], Meta(description="The parts of the key, outermost first.")
    ] = ()

    def __post_init__(self) -> None:
        check_elements("Content key", self.elements)

    def key(self) -> ContentKey:
        return ContentKey(self.elements)


class KeysBody(Struct, frozen=True, rename="camel"):
    requested_keys: Annotated[
        tuple[RequestedKey, ...] | None, Meta(description="The keys to look up."), NEEDED
    ] = None

    @classmethod
    def of(cls, keys: Iterable[ContentKey]) -> KeysBody:
        return cls(tuple(RequestedKey(key.elements) for key in keys))

    def keys(self) -> list[ContentKey]:
        return [ContentKey(key.elements) for key in self.requested_keys or () if key.elements]


class MergeKeyBehavior(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """How a merge treats one key, in version 1, which has no resolved contents."""

    key: Annotated[RequestedKey, Meta(description="The content key.")]
    merge_behavior: Annotated[
        MergeBehavior,
        Meta(
            description="`NORMAL` makes a key that both sides changed a conflict, with `FORCE` the "
            "source wins, and with `DROP` the source's change is left out."
        ),
    ]

    def merge_key(self) -> MergeKey:
        return MergeKey(self.key.key(), self.merge_behavior)


class MergeKeyBody(MergeKeyBehavior, frozen=True, omit_defaults=True, rename="camel"):
    """How a merge or transplant treats one key."""

    expected_target_content: Annotated[
        Content | None,
        Meta(description="The content that the target must have for `resolvedContent` to be used."),
    ] = None
    resolved_content: Annotated[
        Content | None,
        Meta(description="The content to store instead of the source's, to resolve a conflict."),
    ] = None
    expected_target_documentation: Annotated[Documentation | None, _IGNORED] = None
    resolved_documentation: Annotated[Documentation | None, _IGNORED] = None
    metadata: Annotated[tuple[ContentMetadata, ...] | None, _IGNORED] = None

    @classmethod
    def of(cls, rule: MergeKey) -> MergeKeyBody:
        return cls(
            RequestedKey(rule.key.elements),
            rule.merge_behavior,
            rule.expected_target_content,
            rule.resolved_content,
        )

    def merge_key(self) -> MergeKey:
        contents = self.expected_target_content, self.resolved_content
        return MergeKey(self.key.key(), self.merge_behavior, *contents)


class MergeOptionsBody(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The fields that merges and transplants share, in both versions.

    In JSON the flags have names with `is`, as in `isDryRun`. Other spellings are ignored.
    """

    from_ref_name: Annotated[
        str,
        Meta(
            description="The branch or tag to take commits from; `DETACHED` if hashes are enough."
        ),
    ]
    default_key_merge_mode: Annotated[
        MergeBehavior | None,
        Meta(
            description="The behavior for keys that `keyMergeModes` does not list; by default "
            "`NORMAL`."
        ),
    ] = None
    is_dry_run: Annotated[
        bool | None, Meta(description="Only report what would happen; nothing is changed.")
    ] = None
    is_fetch_additional_info: Annotated[bool | None, _IGNORED] = None
    is_return_conflict_as_result: Annotated[
        bool | None,
        Meta(description="Report conflicts with status 200 and in `details`, instead of 409."),
    ] = None

    def options(
        self, meta: CommitMeta, keys: Iterable[MergeKeyBehavior] | None, *, squash: bool
    ) -> MergeOptions:
        return MergeOptions(
            meta=meta,
            squash=squash,
            keys=tuple(mode.merge_key() for mode in keys or ()),
            default=self.default_key_merge_mode or MergeBehavior.NORMAL,
            dry_run=bool(self.is_dry_run),
            conflicts_as_result=bool(self.is_return_conflict_as_result),
        )


KEY_MERGE_MODES: Final = Meta(description="The behavior for single keys.")
HASHES_TO_TRANSPLANT: Final = Meta(description="The commits to apply, oldest first, without gaps.")
FROM_HASH: Final = Meta(description="The last commit to merge. It may have steps, as in `HASH~1`.")
_MESSAGE: Final = Meta(description="The commit message.")


class MergeBody(MergeOptionsBody, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    from_hash: Annotated[str | None, FROM_HASH, NEEDED] = None
    message: Annotated[str | None, _MESSAGE] = None
    commit_meta: Annotated[
        CommitMetaBody | None, Meta(description="The metadata of the commit.")
    ] = None
    key_merge_modes: Annotated[tuple[MergeKeyBody, ...] | None, KEY_MERGE_MODES] = None

    def __post_init__(self) -> None:
        if self.from_hash is not None:
            nessie = "api.v2.params.ImmutableMerge"
            check_as_nessie(check_hash_and_steps, self.from_hash, nessie)


class TransplantBody(
    MergeOptionsBody, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    hashes_to_transplant: Annotated[tuple[str, ...] | None, HASHES_TO_TRANSPLANT, NEEDED] = None
    message: Annotated[str | None, _MESSAGE] = None
    key_merge_modes: Annotated[tuple[MergeKeyBody, ...] | None, KEY_MERGE_MODES] = None

    def __post_init__(self) -> None:
        for hash in self.hashes_to_transplant or ():
            check_as_nessie(check_hash_and_steps, hash, "api.v2.params.ImmutableTransplant")


class ConfigBody(Struct, frozen=True):
    """A configuration that is not decoded yet: its type decides which fields it has."""

    config: dict[str, Any]


def check_as_nessie(check: Callable[[str], object], text: str, nessie: str) -> None:
    """Refuse a name or a hash with Nessie's message, which clients match to the end of its line.

    `nessie` is the Java class in that message.
    """
    try:
        check(text)
    except BadRequest as problem:
        raise BadRequest(
            f"Cannot construct instance of `org.projectnessie.{nessie}`, problem: {problem} - but "
            f"was: {shortened(text)}\n"
        ) from None


def shortened(text: str) -> str:
    """A text from a client, shortened for a message."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _one_or_all(one: str | None, all: tuple[str, ...] | None) -> tuple[str, ...]:
    if all or one is None:
        return all or ()
    return (one,)
