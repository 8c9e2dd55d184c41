"""The nouns of the store. Everything here is immutable and addressed by its content."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct, field
from msgspec.structs import force_setattr

from morag.backend.base import UNIQUE_KIND, ObjId
from morag.persist import ids
from morag.persist.ids import NO_ANCESTOR, Headers

if TYPE_CHECKING:
    from collections.abc import Callable


class Memo:
    """Room for a decoded form, kept with the object it was decoded from.

    It rides along in the object cache, so that a hot index is never decoded twice, and takes no
    part in equality.
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
    """One segment of a striped index and the keys it spans, as sortable bytes (`order.py`)."""

    first: bytes
    last: bytes
    segment: ObjId


class Commit(Struct, frozen=True, kw_only=True):
    """A whole catalog state, plus how it came to be.

    `seq` is the first parent's plus one, whatever the merge parents have. `tail` starts with the
    parent and goes on with its ancestors, newest first. The keys are those of the reference index
    (`reference_index` or `stripes`, never both), overlaid by the incremental one.

    `sealed` says that the id follows from this row (`proof.py`), or from this row and what the
    parent has under the keys that it replaced (`logic/refutation.py`), so that a row with another
    id is damaged for sure. It is stored as an `incomplete_index` that is written although it is
    false: readers of the format see no difference, and Nessie never writes it.
    """

    kind_letter: ClassVar[str] = "c"

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
    def parent(self) -> ObjId:
        return self.tail[0]

    @property
    def parents(self) -> tuple[ObjId, ...]:
        """All parents that exist: the predecessor first, then those that were merged."""
        all = (self.tail[0], *self.merge_parents)
        return tuple(p for p in all if p != NO_ANCESTOR)


class RefObj(Struct, frozen=True, gc=False):
    """How a reference came into being; what recovery restores a lost row from."""

    kind_letter: ClassVar[str] = "r"

    name: str
    initial_pointer: ObjId
    created_micros: int
    extended_info: ObjId | None = None

    @property
    def id(self) -> ObjId:
        return ids.ref_id(self.name, self.initial_pointer, self.created_micros)


class Value(Struct, frozen=True, gc=False):
    """One version of a content. Its id is computed when it is made: every user needs it."""

    kind_letter: ClassVar[str] = "v"

    content_id: str
    payload: int
    data: bytes
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        force_setattr(self, "id", ids.value_id(self.content_id, self.payload, self.data))


class Serializable(Protocol):
    def serialize(self) -> bytes: ...


D = TypeVar("D", bound=Serializable)


class Index(Struct, gc=False):
    """An index segment: as it is stored, until it was stored and somebody has decoded it.

    From then on only the decoded form is kept. Both say the same, and thousands of these are what
    fills a cache.
    """

    kind_letter: ClassVar[str] = "i"

    _encoded: bytes | None
    _decoded: Serializable | None = None
    id: ObjId = ObjId(b"")

    def __post_init__(self) -> None:
        assert self._encoded is not None, "it is made from its encoded form"
        self.id = ids.index_id(self._encoded)

    @property
    def encoded(self) -> bytes:
        encoded = self._encoded
        if encoded is not None:
            return encoded
        assert self._decoded is not None, "one of the two forms is always there"
        return self._decoded.serialize()

    def decoded(self, decode: Callable[[bytes], D]) -> D:
        """The decoded form, made by `decode` if it is not there yet."""
        if self._decoded is None:
            self._decoded = decode(self.encoded)
            self._encoded = None
        return cast("D", self._decoded)

    def settle(self) -> None:
        """It is stored: the encoded form has done its work."""
        if self._decoded is not None:
            self._encoded = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)


class IndexSegments(Struct, frozen=True):
    """The stripes of a reference index that is too wide to be inlined into its commits.

    Kept encoded, and made with its id: there may be thousands of stripes, and the writer has both
    from pieces it has at hand (`codec.encoded_stripe`, `ids.segments_id`). The memo of one that
    was loaded holds its stripes, which were decoded for its id.
    """

    kind_letter: ClassVar[str] = "I"

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
    """What a tag says beside its commit. Named by the reference's `extended_info`."""

    kind_letter: ClassVar[str] = "t"

    message: str | None = None
    headers: Headers | None = None
    signature: bytes | None = None

    @property
    def id(self) -> ObjId:
        return ids.tag_id(self.message, self.headers, self.signature)


class Unique(Struct, frozen=True, gc=False):
    """A claim on a value that must be used once, such as a new content id."""

    kind_letter: ClassVar[str] = UNIQUE_KIND

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
