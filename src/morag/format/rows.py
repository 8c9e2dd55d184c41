"""Rows as one message, as RocksDB stores them.

Other engines keep two fields of the message in columns: the time when the object was last
referenced, and the version of a custom object.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE, damaged_row
from morag.format.messages import BYTES, INT64, TEXT, Field
from morag.format.objects import KINDS
from morag.format.records import ObjId, Row
from morag.protobuf import (
    BYTES_TYPE,
    bytes_field,
    fields,
    int_field,
    read_varint,
    signed,
    tag_of,
    text_field,
    varint,
)

UNREADABLE_KIND: Final = ""
"""The kind that a scan gives to a row which cannot be decoded."""

_CUSTOM: Final = Field(9, "custom", BYTES)
_CUSTOM_KIND: Final = Field(1, "kind", TEXT)
_CUSTOM_VERSION: Final = Field(4, "version", TEXT)
_KINDS: Final = {tag_of(kind.field_number, BYTES_TYPE): letter for letter, kind in KINDS.items()}

_REFERENCED_TAG: Final = Field(11, "referenced", INT64).tag_bytes

NEVER_REFERENCED: Final = _REFERENCED_TAG + varint(0)
"""The field `referenced` of engines that have a column for the time: every object ends with it."""


def encode_row(row: Row) -> bytes:
    """The row as one message, with its time and its version inside."""
    data = row.data
    if row.version is not None:
        at, _ = _inner(row.id, data)
        data = bytes_field(
            _CUSTOM.number, data[at:] + text_field(_CUSTOM_VERSION.number, row.version)
        )
    return data + _referenced(row.referenced_micros)


def may_be_of(message: bytes, kinds: frozenset[str]) -> bool:
    """Whether the row in the message may be of one of the kinds: most rows need not be decoded."""
    kind = _KINDS.get(message[0]) if message else None
    return kind is None or kind in kinds


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


def decode_or_keep(id: ObjId, message: bytes) -> Row:
    """Like `decode_row`; a damaged row has the kind `UNREADABLE_KIND`, and the message as data."""
    try:
        return decode_row(id, message)
    except RepositoryCorrupt:
        return Row(id, UNREADABLE_KIND, message)


def refreshed(id: ObjId, message: bytes, micros: int) -> bytes:
    """The same message with another `referenced`."""
    return without_referenced(id, message) + _referenced(micros)


def without_referenced(id: ObjId, message: bytes) -> bytes:
    return message[: _inner(id, message)[1]]


@lru_cache(maxsize=64)  # The rows of one commit share their time.
def _referenced(micros: int) -> bytes:
    return _REFERENCED_TAG + varint(micros)


@lru_cache(maxsize=4096)  # Reads by key alternate between the times of many commits.
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
    if data[0] != _CUSTOM.tag:
        raise ValueError(f"an object that starts with {data[0]:#04x} is not known")
    kind, version = "", None
    for number, value in fields(inner):
        if number == _CUSTOM_KIND.number and isinstance(value, bytes):
            kind = value.decode()
        elif number == _CUSTOM_VERSION.number and isinstance(value, bytes):
            version = value.decode()
    if version is None:
        return kind, data, None
    rest = [_field(n, value) for n, value in fields(inner) if n != _CUSTOM_VERSION.number]
    return kind, bytes_field(_CUSTOM.number, b"".join(rest)), version


def _field(number: int, value: int | bytes) -> bytes:
    return int_field(number, value) if isinstance(value, int) else bytes_field(number, value)
