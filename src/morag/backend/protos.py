"""The messages of the storage format that an engine itself has to take apart.

A ref is a message in RocksDB and a row of columns elsewhere. An object's message is opaque but for
two things that move between it and a column: when it was last referenced, and the version of a
custom object.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeVar

from morag.backend.base import ObjId, PreviousPointer, Ref, Row
from morag.errors import RepositoryCorrupt
from morag.wire import (
    UNREADABLE,
    bytes_field,
    fields,
    int_field,
    read_varint,
    signed,
    text_field,
    varint,
)

NEVER_REFERENCED: Final = b"\x58\x00"
"""The field `referenced` as it ends every object where a column holds the time instead."""

_PREVIOUS: Final = b"\x32"
_REFERENCED: Final = b"\x58"
_CUSTOM: Final = 0x4A
_CUSTOM_FIELD: Final = 9
_CUSTOM_KIND: Final = 1
_CUSTOM_VERSION: Final = 4
_KINDS: Final = {
    0x12: "c",
    0x1A: "r",
    0x22: "v",
    0x2A: "I",
    0x32: "i",
    0x3A: "s",
    0x42: "t",
    0x52: "u",
}


def encode_ref(ref: Ref) -> bytes:
    parts = [text_field(1, ref.name), bytes_field(2, ref.pointer)]
    if ref.deleted:
        parts.append(int_field(3, 1))
    if ref.created_micros:
        parts.append(int_field(4, ref.created_micros))
    if ref.extended_info is not None:
        parts.append(bytes_field(5, ref.extended_info))
    for entry in ref.previous:
        parts += (_PREVIOUS, _sized(entry))
    data = b"".join(parts)
    _refs.remember(data, ref)
    return data


def decode_ref(data: bytes, name: str = "") -> Ref:
    """The ref in the message. Where it is known, `name` says which one to report if damaged."""
    known = _refs.get(data)
    if known is not None:
        return known
    try:
        ref = _ref(data)
    except UNREADABLE as error:
        raise damaged_ref(name) from error
    return _refs.remember(data, ref)


def encode_previous(previous: tuple[PreviousPointer, ...]) -> bytes | None:
    """What the column `prev_ptr` holds: nothing at all if there is no previous pointer."""
    if not previous:
        return None
    column = b"".join(map(_sized, previous))
    _columns.remember(column, previous)
    return column


def decode_previous(column: bytes | None, name: str = "") -> tuple[PreviousPointer, ...]:
    if column is None:
        return ()
    known = _columns.get(column)
    if known is not None:
        return known
    previous, at = [], 0
    try:
        while at < len(column):
            size, at = read_varint(column, at)
            if at + size > len(column):
                raise ValueError("the column is cut short")
            previous.append(_previous_pointer(column[at : at + size]))
            at += size
    except UNREADABLE as error:
        raise damaged_ref(name) from error
    return _columns.remember(column, tuple(previous))


def damaged_ref(name: str) -> RepositoryCorrupt:
    which = f"The stored reference '{name}'" if name else "A stored reference"
    return RepositoryCorrupt.found(which, "is damaged")


def encode_row(row: Row) -> bytes:
    """The row as one message, with its time and its version inside."""
    data = row.data
    if row.version is not None:
        at, _ = _inner(row.id, data)
        data = bytes_field(_CUSTOM_FIELD, data[at:] + text_field(_CUSTOM_VERSION, row.version))
    return data + _referenced(row.referenced_micros)


def decode_row(id: ObjId, message: bytes) -> Row:
    at, end = _inner(id, message)
    kind, data, version = _KINDS.get(message[0]), message[:end], None
    try:
        micros = _micros(message[end + 1 :]) if end < len(message) else 0
        if kind is None:
            kind, data, version = _custom(message[at:end], data)
    except UNREADABLE as error:
        raise damaged_row(id) from error
    return Row(id, kind, data, version, micros)


def refreshed(id: ObjId, message: bytes, micros: int) -> bytes:
    """The same message with another `referenced`."""
    return without_referenced(id, message) + _referenced(micros)


def without_referenced(id: ObjId, message: bytes) -> bytes:
    return message[: _inner(id, message)[1]]


V = TypeVar("V")


class _Recent(dict[bytes, V]):
    """What bytes stand for that were encoded or decoded lately.

    A ref drags twenty previous pointers along, and to decode them takes longer than anything else
    in a read or a swap of a ref.
    """

    def remember(self, data: bytes, value: V) -> V:
        if len(self) >= 1024:
            self.clear()
        self[data] = value
        return value


_refs: _Recent[Ref] = _Recent()
_columns: _Recent[tuple[PreviousPointer, ...]] = _Recent()


def _ref(data: bytes) -> Ref:
    name, pointer, deleted, created, info = "", ObjId(b""), False, 0, None
    previous: list[PreviousPointer] = []
    for number, value in fields(data):
        if isinstance(value, int):
            if number == 3:
                deleted = bool(value)
            elif number == 4:
                created = signed(value)
        elif number == 1:
            name = value.decode()
        elif number == 2:
            pointer = ObjId(value)
        elif number == 5:
            info = ObjId(value)
        elif number == 6:
            previous.append(_previous_pointer(value))
    if not name or not pointer:
        raise ValueError("a ref has a name and points somewhere")
    return Ref(name, pointer, deleted, created, info, tuple(previous))


@lru_cache(maxsize=4096)  # Each move of a ref writes the same pointers again, but for one.
def _sized(entry: PreviousPointer) -> bytes:
    message = bytes_field(1, entry.pointer)
    if entry.until_micros:
        message += int_field(2, entry.until_micros)
    return varint(len(message)) + message


def _previous_pointer(message: bytes) -> PreviousPointer:
    pointer, until = ObjId(b""), 0
    for number, value in fields(message):
        if isinstance(value, int):
            until = signed(value) if number == 2 else until
        elif number == 1:
            pointer = ObjId(value)
    return PreviousPointer(pointer, until)


@lru_cache(maxsize=64)  # The rows of one commit share their time.
def _referenced(micros: int) -> bytes:
    return _REFERENCED + varint(micros)


@lru_cache(maxsize=4096)  # Who reads by key meets the times of many commits in turn.
def _micros(referenced: bytes) -> int:
    return signed(read_varint(referenced, 0)[0])


def _inner(id: ObjId, message: bytes) -> tuple[int, int]:
    """Where the object inside the message starts and ends. `referenced` comes after it."""
    try:
        size, at = read_varint(message, 1)
    except UNREADABLE as error:
        raise damaged_row(id) from error
    if at + size > len(message):
        raise damaged_row(id)
    return at, at + size


def _custom(inner: bytes, data: bytes) -> tuple[str, bytes, str | None]:
    if data[0] != _CUSTOM:
        raise ValueError(f"nothing is known of an object that starts with {data[0]:#04x}")
    kind, version = "", None
    for number, value in fields(inner):
        if number == _CUSTOM_KIND and isinstance(value, bytes):
            kind = value.decode()
        elif number == _CUSTOM_VERSION and isinstance(value, bytes):
            version = value.decode()
    if version is None:
        return kind, data, None
    rest = [_field(n, value) for n, value in fields(inner) if n != _CUSTOM_VERSION]
    return kind, bytes_field(_CUSTOM_FIELD, b"".join(rest)), version


def damaged_row(id: ObjId) -> RepositoryCorrupt:
    return RepositoryCorrupt.object(id, "is damaged")


def _field(number: int, value: int | bytes) -> bytes:
    return int_field(number, value) if isinstance(value, int) else bytes_field(number, value)
