"""Refs as Nessie stores them: one message in RocksDB, columns elsewhere."""

from __future__ import annotations

from functools import lru_cache
from typing import Final, TypeVar

from morag.format.damage import UNREADABLE, damaged_ref
from morag.format.messages import (
    ALWAYS,
    BOOL,
    ID,
    INT64,
    OPTIONAL,
    REPEATED,
    TEXT,
    Field,
    FieldType,
    Message,
)
from morag.format.records import PreviousPointer, Ref
from morag.protobuf import BYTES_TYPE, read_varint, varint


def encode_ref(ref: Ref) -> bytes:
    data = _REF.encode(ref)
    _refs.remember(data, ref)
    return data


def decode_ref(data: bytes, name: str = "") -> Ref:
    """The ref in the message. `name`, if it is known, is for the error if the ref is damaged."""
    known = _refs.get(data)
    if known is not None:
        return known
    try:
        ref = _REF.decode(data)
        if not ref.name or not ref.pointer:
            raise ValueError("it has no name or no pointer")
    except UNREADABLE as error:
        raise damaged_ref(name) from error
    return _refs.remember(data, ref)


def is_ref(data: bytes | None, expected: Ref | None) -> bool:
    """Whether a stored message is the expected ref, by its identity; None stands for absent."""
    if data is None or expected is None:
        return data is None and expected is None
    return decode_ref(data, expected.name).identity == expected.identity


def encode_previous(previous: tuple[PreviousPointer, ...]) -> bytes | None:
    """The value of the column `prev_ptr`; None if there is no previous pointer."""
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
            previous.append(_POINTER.decode(column[at : at + size]))
            at += size
    except UNREADABLE as error:
        raise damaged_ref(name) from error
    return _columns.remember(column, tuple(previous))


V = TypeVar("V")

_MOST_RECENT_BYTES: Final = 1024 * 1024
"""Of the encoded form; decoded, they take about five times as much."""


class _Recent(dict[bytes, V]):
    """Values that were recently encoded or decoded, by their bytes.

    A ref has up to twenty previous pointers, and decoding them takes longer than anything else in
    a read or a swap of a ref. Most refs have none, so the limit counts bytes: a listing of
    thousands of refs finds them here the next time.
    """

    size_bytes = 0

    def remember(self, data: bytes, value: V) -> V:
        if self.size_bytes >= _MOST_RECENT_BYTES:
            self.clear()
            self.size_bytes = 0
        self.size_bytes += len(data)
        self[data] = value
        return value


_refs: _Recent[Ref] = _Recent()
_columns: _Recent[tuple[PreviousPointer, ...]] = _Recent()


@lru_cache(maxsize=4096)  # Each move of a ref writes all previous pointers but one again.
def _sized(entry: PreviousPointer) -> bytes:
    message = _POINTER.encode(entry)
    return varint(len(message)) + message


_POINTER: Final = Message(
    PreviousPointer,
    Field(1, "pointer", ID, ALWAYS),
    Field(2, "until_micros", INT64),
    ignores_unknown=True,
)
_POINTERS: Final = FieldType(
    wire_type=BYTES_TYPE,
    write="{tag} + _sized({value})",
    write_all="{tag} + {tag}.join(map(_sized, {value}))",
    read="read_pointer({value})",
    names={"_sized": _sized, "read_pointer": _POINTER.decode},
)
_REF: Final = Message(
    Ref,
    Field(1, "name", TEXT, ALWAYS),
    Field(2, "pointer", ID, ALWAYS),
    Field(3, "deleted", BOOL),
    Field(4, "created_micros", INT64),
    Field(5, "extended_info", ID, OPTIONAL),
    Field(6, "previous", _POINTERS, REPEATED),
    ignores_unknown=True,
)
