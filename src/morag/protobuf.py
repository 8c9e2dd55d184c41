"""Protobuf's wire format, written by hand: the parts that the storage format uses.

A dozen message types with two wire types do not justify a generated library, and code that writes
each field controls the exact bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT_TYPE: Final = 0
BYTES_TYPE: Final = 2
_U64: Final = (1 << 64) - 1
_I64: Final = 1 << 63
_TIMES_AND_IDS: Final = 1 << 49
"""Times in microseconds and ids of snapshots are not smaller: they take eight or nine bytes."""
_pack_nine: Final = Struct("9B").pack
SMALL_VARINTS: Final = tuple(bytes([n]) for n in range(128))
_USUAL_SIZE: Final = 1024
_USUAL_NUMBER: Final = 64


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; a negative number takes its 64-bit form."""
    if 0 <= value < 128:
        return SMALL_VARINTS[value]
    if 0 <= value < 16384:
        return b"%c%c" % (value & 0x7F | 0x80, value >> 7)
    if _TIMES_AND_IDS <= value < _I64:
        return _eight_or_nine_bytes(value & 0xFFF_FFFF, value >> 28 & 0x1F_FFFF, value >> 49)
    value &= _U64
    out = []
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _eight_or_nine_bytes(low: int, middle: int, high: int) -> bytes:
    """The varint of a number in parts of 28, 21 and 14 bits, a third faster than a loop for nine
    bytes, and a sixth for eight.

    Each part fits into one digit of Python's numbers, which is faster to compute with.
    """
    is_long = high > 0x7F
    nine = _pack_nine(
        low & 0x7F | 0x80,
        low >> 7 & 0x7F | 0x80,
        low >> 14 & 0x7F | 0x80,
        low >> 21 | 0x80,
        middle & 0x7F | 0x80,
        middle >> 7 & 0x7F | 0x80,
        middle >> 14 | 0x80,
        high & 0x7F | is_long << 7,
        high >> 7,
    )
    return nine if is_long else nine[:8]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and the offset after it. Raises IndexError on cut data."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise ValueError("varint is longer than ten bytes")


def signed(value: int) -> int:
    """The unsigned 64-bit number of a field as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def tag_of(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


class FieldHeads(dict[int, bytes]):
    """The bytes before a field that holds bytes, by its size: the tag and the size.

    To look up a usual one takes less time than to encode it; others are not kept.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self._tag = varint(tag_of(number, BYTES_TYPE))

    def __missing__(self, size: int) -> bytes:
        head = self._tag + varint(size)
        if size < _USUAL_SIZE:
            self[size] = head
        return head


class _AllHeads(dict[int, FieldHeads]):
    """The heads of every field, by its number.

    Those of large numbers are not kept: an unknown field may have any number.
    """

    def __missing__(self, number: int) -> FieldHeads:
        heads = FieldHeads(number)
        if number < _USUAL_NUMBER:
            self[number] = heads
        return heads


HEADS: Final = _AllHeads()
"""The heads of fields, by number."""


def bytes_field(number: int, data: bytes) -> bytes:
    return HEADS[number][len(data)] + data


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode())


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Every field in stored order: its number, and an unsigned int or bytes."""
    for tag, value in tagged_fields(data):
        yield tag >> 3, value


def tagged_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Every field in stored order: its tag, and an unsigned int or bytes by the wire type."""
    at, end = 0, len(data)
    while at < end:
        # Most tags and sizes take one byte; a call for each would double the time.
        tag, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
        kind = tag & 7
        if kind == BYTES_TYPE:
            size, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
            start, at = at, at + size
            if at > end:
                raise ValueError("message is cut short")
            yield tag, data[start:at]
        elif kind == VARINT_TYPE:
            value, at = read_varint(data, at)
            yield tag, value
        else:
            raise ValueError(f"wire type {kind} is not used by the storage format")
