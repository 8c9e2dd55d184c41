"""Protobuf's wire format, by hand: the few shapes that the storage format uses.

A dozen message types with two wire types do not justify a generated library, and writing the
fields out is what keeps the bytes ours to promise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

UNREADABLE: Final = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)
"""What decoding raises on bytes that are not what they should be, whichever decoder it is.

Decoders of stored bytes touch nothing else, so that each of these means: the bytes are damaged.
Where msgspec decodes, its `MsgspecError` comes on top.
"""

VARINT: Final = 0
BYTES: Final = 2
_U64: Final = (1 << 64) - 1
_SMALL: Final = tuple(bytes([n]) for n in range(128))


def varint(value: int) -> bytes:
    """Seven bits per byte, lowest first; a negative number takes its 64-bit form."""
    if 0 <= value < 128:
        return _SMALL[value]
    if 0 <= value < 16384:
        return b"%c%c" % (value & 0x7F | 0x80, value >> 7)
    value &= _U64
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that starts at `at`, and where it ends. Raises IndexError on cut data."""
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
    """A 64-bit field's number as a signed one."""
    return value - (1 << 64) if value >> 63 else value


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def bytes_field(number: int, data: bytes) -> bytes:
    size = len(data)
    if number < 16:  # All but everywhere: the tag takes a byte, and the size one or two.
        if size < 128:
            return b"%c%c%b" % (number << 3 | BYTES, size, data)
        if size < 16384:
            return b"%c%c%c%b" % (number << 3 | BYTES, size & 0x7F | 0x80, size >> 7, data)
    return varint(number << 3 | BYTES) + varint(size) + data


def text_field(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode())


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Every field in the order written: its number, and an unsigned int or the bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = read_varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = read_varint(data, at)
            yield tag >> 3, value
        elif kind == BYTES:
            size, at = read_varint(data, at)
            if at + size > end:
                raise ValueError("message is cut short")
            yield tag >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind} is not used by the storage format")
