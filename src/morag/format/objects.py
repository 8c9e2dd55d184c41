"""The objects of a store, which are immutable and addressed by their content.

`kind_letter` is the kind of an object in its row, `field_number` its field in Nessie's ObjProto.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr

from morag.format import ids
from morag.format.ids import NO_ANCESTOR, Headers
from morag.format.records import UNIQUE_KIND, ObjId

if TYPE_CHECKING:
    from collections.abc import Callable


class Memo:
    """The decoded form of an object, stored in the object itself.

    It stays in the object cache together with the object, so that a cached index is decoded only
    once. Equality ignores it.
    """

    __slots__ = ("form",)

    def __init__(self) -> None:
        self.form: Any = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memo)

    __hash__ = None  # type: ignore[assignment]


class CommitKind(Enum):
    NORMAL = 1
    INTERNAL = 2
    """A commit on an internal reference: never shown to users."""


class Stripe(Struct, frozen=True, gc=False):
    """One segment of a striped index and the keys it spans, as sortable bytes (`key_order.py`)."""

    first: bytes
    last: bytes
    segment: ObjId


class Commit(Struct, frozen=True, kw_only=True):
    """The state of the whole catalog, and the metadata of the change that led to it.

    `seq` is the first parent's `seq` plus one; merge parents do not count. `tail` is the parent and
    its ancestors, newest first. The keys are those of the reference index (`reference_index` or
    `stripes`, never both), overlaid by the incremental index.

    `sealed` means that the id follows from this row (`proof.py`), or from this row and the parent's
    entries under the keys that it replaced (`logic/refutation.py`). A sealed row with another id is
    therefore certainly damaged. The mark is stored as an `incomplete_index` that is written
    although it is false: readers of the format see no difference, and Nessie never writes it.
    """

    kind_letter: ClassVar[str] = "c"
    field_number: ClassVar[int] = 2

    id: ObjId
    created_micros: int
    seq: int
    tail: tuple[ObjId, ...]
    merge_parents: tuple[ObjId, ...] = ()
    headers: Headers = ()
    message: str = ""
    reference_index: ObjId | None = None
    stripes: tuple[Stripe, ...] = ()
    incremental: bytes
    incomplete: bool = False
    sealed: bool = False
    kind: CommitKind = CommitKind.NORMAL
    memo: Memo = field(default_factory=Memo)

    @property
    def incomplete_index(self) -> bool | None:
        """The field as it is stored; None if it is not written."""
        return self.incomplete if self.incomplete or self.sealed else None

    @property
    def parent(self) -> ObjId:
        return self.tail[0]

    @property
    def parents(self) -> tuple[ObjId, ...]:
        """All parents that exist: the first parent, then the merge parents."""
        all = (self.tail[0], *self.merge_parents)
        return tuple(p for p in all if p != NO_ANCESTOR)


# `RefObj`, `Value`, `Index` and `Unique` compute their ids when they are created, because every
# user needs them several times.


class RefObj(Struct, frozen=True, gc=False):
    """The initial state of a reference, from which a missing ref is inserted."""

    kind_letter: ClassVar[str] = "r"
    field_number: ClassVar[int] = 3

    name: str
    initial_pointer: ObjId
    created_micros: int
    extended_info: ObjId | None = None
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "id", ids.ref_id(self.name, self.initial_pointer, self.created_micros))


class Value(Struct, frozen=True, gc=False):
    """One version of a content."""

    kind_letter: ClassVar[str] = "v"
    field_number: ClassVar[int] = 4

    content_id: str
    payload: int
    data: bytes
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "id", ids.value_id(self.content_id.encode(), self.payload, self.data))


class Serializable(Protocol):
    def serialize(self) -> bytes: ...


D = TypeVar("D", bound=Serializable)


class Index(Struct, gc=False):
    """An index segment, in its encoded form, its decoded form, or both.

    The encoded form is dropped once the segment is stored and decoded: thousands of segments fill
    the cache, and the two forms are equivalent.
    """

    kind_letter: ClassVar[str] = "i"
    field_number: ClassVar[int] = 6

    _encoded: bytes | None
    _decoded: Serializable | None = None
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        assert self._encoded is not None, "an Index is created from its encoded form"
        self.id = ids.index_id(self._encoded)

    @property
    def encoded(self) -> bytes:
        encoded = self._encoded
        if encoded is not None:
            return encoded
        assert self._decoded is not None, "an Index always has one of the two forms"
        return self._decoded.serialize()

    def decoded(self, decode: Callable[[bytes], D]) -> D:
        """The decoded form; `decode` is called if it does not exist yet."""
        if self._decoded is None:
            self._decoded = decode(self.encoded)
            self._encoded = None
        return cast("D", self._decoded)

    def settle(self) -> None:
        """Call this when the segment is stored: the encoded form is no longer needed."""
        if self._decoded is not None:
            self._encoded = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class IndexSegments(Struct, frozen=True):
    """The stripes of a reference index that is too wide to be inlined into its commits.

    It holds its stripes encoded, together with its id: there may be thousands of stripes, and the
    writer joins both from pieces that it keeps (`encoded_stripe` and `hashed_stripe` of
    `object_codec`). When it is loaded, its memo holds the stripes, which were decoded to compute
    the id.
    """

    kind_letter: ClassVar[str] = "I"
    field_number: ClassVar[int] = 5

    id: ObjId
    encoded: bytes
    memo: Memo = field(default_factory=Memo)


class Compression(Enum):
    NONE = 1
    GZIP = 2
    DEFLATE = 3
    ZSTD = 4
    LZ4 = 5
    SNAPPY = 6

    @property
    def letter(self) -> str:
        return self.name[0]


class StringObj(Struct, frozen=True):
    """A text, such as the repository's description."""

    kind_letter: ClassVar[str] = "s"
    field_number: ClassVar[int] = 7

    content_type: str
    text: bytes
    compression: Compression = Compression.NONE
    filename: str | None = None
    predecessors: tuple[ObjId, ...] = ()

    @property
    def id(self) -> ObjId:
        return ids.string_id(
            self.content_type, self.compression.letter, self.filename, self.predecessors, self.text
        )


class Tag(Struct, frozen=True):
    """The message, headers and signature of a tag, named by the reference's `extended_info`."""

    kind_letter: ClassVar[str] = "t"
    field_number: ClassVar[int] = 8

    message: str | None = None
    headers: Headers | None = None
    signature: bytes | None = None

    @property
    def id(self) -> ObjId:
        return ids.tag_id(self.message, self.headers, self.signature)


CONTENT_ID_SPACE: Final = "content-id"
"""The space of the claims on content ids."""


class Unique(Struct, frozen=True, gc=False):
    """A claim on a value that must be used only once in a space, such as a new content id."""

    kind_letter: ClassVar[str] = UNIQUE_KIND
    field_number: ClassVar[int] = 10

    space: str
    value: bytes
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "id", ids.unique_id(self.space, self.value))


Obj: TypeAlias = Commit | RefObj | Value | Index | IndexSegments | StringObj | Tag | Unique

KINDS: Final[dict[str, type[Obj]]] = {
    kind.kind_letter: kind
    for kind in (Commit, RefObj, Value, Index, IndexSegments, StringObj, Tag, Unique)
}
