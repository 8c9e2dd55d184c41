"""Arrays in PostgreSQL's binary form. The driver's own encoder visits each element three times."""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final

from psycopg.adapt import Dumper
from psycopg.pq import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from psycopg import Connection
    from psycopg.abc import Buffer

# Dimensions, whether there are NULLs, type of the elements; and for the only dimension: length,
# index of the first element. Then each element with its length before it.
_EMPTY: Final = Layout("!iiI")
_HEAD: Final = Layout("!iiIii")
_LENGTH: Final = Layout("!i")
_NUMBER: Final = Layout("!iq")
_NULL: Final = _LENGTH.pack(-1)
_BYTEA, _INT8, _TEXT = 17, 20, 25


class BytesArray(bytes):
    """A `bytea[]`."""

    @classmethod
    def of(cls, values: Iterable[bytes]) -> BytesArray:
        parts = [part for value in values for part in (_LENGTH.pack(len(value)), value)]
        return cls(_whole(_BYTEA, len(parts) // 2, parts))


class TextArray(bytes):
    """A `text[]`."""

    @classmethod
    def of(cls, values: Sequence[str | None]) -> TextArray:
        return cls(_whole(_TEXT, len(values), [_text(value) for value in values]))


class NumberArray(bytes):
    """An `int8[]`."""

    @classmethod
    def of(cls, values: Sequence[int]) -> NumberArray:
        return cls(_whole(_INT8, len(values), [_NUMBER.pack(8, value) for value in values]))


def understand_arrays(db: Connection) -> None:
    for dumper in (_BytesArrays, _TextArrays, _NumberArrays):
        db.adapters.register_dumper(dumper.kind, dumper)


class _Dumper(Dumper):
    format = Format.BINARY
    kind: type[bytes]

    def dump(self, obj: bytes) -> Buffer:
        return obj


class _BytesArrays(_Dumper):
    oid, kind = 1001, BytesArray


class _TextArrays(_Dumper):
    oid, kind = 1009, TextArray


class _NumberArrays(_Dumper):
    oid, kind = 1016, NumberArray


def _whole(element: int, count: int, parts: Sequence[bytes]) -> bytes:
    if not count:
        return _EMPTY.pack(0, 0, element)
    return b"".join((_HEAD.pack(1, 1, element, count, 1), *parts))


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    encoded = value.encode()
    return _LENGTH.pack(len(encoded)) + encoded
