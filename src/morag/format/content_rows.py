"""Decodes rows to contents in one step, for scans of millions of rows.

Nearly all rows of Iceberg tables have the same shape, so one regular expression decodes them.
Decoding their nested messages one by one would take most of the time of a large scan. That is done
only for rows of any other shape.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format.content_values import ID, TABLE, TABLE_STATE, content_of_value
from morag.format.ids import value_id
from morag.format.messages import VARINT_PATTERN, int64, sized_tag
from morag.format.object_codec import VALUE, decode
from morag.format.objects import Value
from morag.model.content import PAYLOADS, IcebergTable
from morag.protobuf import BYTES_TYPE, read_varint, tag_of, varint

if TYPE_CHECKING:
    from morag.format.records import Row
    from morag.model.content import Content

_PAYLOAD: Final = PAYLOADS[IcebergTable]
_NUMBERS: Final[dict[bytes | None, int]] = {varint(n): n for n in range(1 << 12)} | {None: 0}
_UUID_CHARACTERS: Final = 36

# The bytes that `object_codec` and `content_values` write for a table. A value object holds the
# content's id, its type and its message; the message holds the state and the id again. Each
# `_BEFORE_...` is the fixed bytes before a group.
_BEFORE_ID: Final = sized_tag(VALUE.fields["content_id"], _UUID_CHARACTERS)
_BEFORE_MESSAGE: Final = (
    VALUE.fields["payload"].tag_bytes + varint(_PAYLOAD) + VALUE.fields["data"].tag_bytes
)
_BEFORE_ID_AGAIN: Final = sized_tag(ID, _UUID_CHARACTERS)
*_TABLE_NUMBERS, _LOCATION = TABLE.fields.values()
_ROW: Final = re.compile(
    b"".join(
        (
            re.escape(varint(tag_of(Value.field_number, BYTES_TYPE))) + VARINT_PATTERN,
            re.escape(_BEFORE_ID) + rb"(.{%d})" % _UUID_CHARACTERS,
            re.escape(_BEFORE_MESSAGE) + VARINT_PATTERN,
            re.escape(TABLE_STATE.tag_bytes) + VARINT_PATTERN,
            *(b"(?:" + re.escape(f.tag_bytes) + VARINT_PATTERN + b")?" for f in _TABLE_NUMBERS),
            re.escape(_LOCATION.tag_bytes) + VARINT_PATTERN + b"(.*)",
            re.escape(_BEFORE_ID_AGAIN) + rb"(.{%d})" % _UUID_CHARACTERS,
        )
    ),
    re.DOTALL,
)
_FRONT: Final = len(_BEFORE_ID) + _UUID_CHARACTERS + len(_BEFORE_MESSAGE)
"""Bytes between the size of the object and that of the message."""
_BACK: Final = len(_BEFORE_ID_AGAIN) + _UUID_CHARACTERS
"""Bytes behind the state."""


def content_of_row(row: Row) -> Content:
    table = _usual_table(row)
    if table is not None:
        return table
    value = decode(row)
    if not isinstance(value, Value):
        raise RepositoryCorrupt.object(row.id, f"is a {type(value).__name__}, not a Value")
    return content_of_value(value)


def _usual_table(row: Row) -> IcebergTable | None:
    """The table in a row of the usual shape. All sizes in the row, and its id, are verified."""
    data = row.data
    found = _ROW.fullmatch(data)
    if found is None:
        return None
    size, same_id, inner_size, state_size, snapshot, schema, spec, sort, at_size, at, id = (
        found.groups()
    )
    try:
        if same_id != id or (size, inner_size, state_size, at_size) != _sizes(len(data), len(at)):
            return None
        if value_id(id, _PAYLOAD, data[found.end(3) :]) != row.id:
            return None
        return IcebergTable(
            id=id.decode(),
            metadata_location=at.decode(),
            snapshot_id=0 if snapshot is None else int64(read_varint(snapshot, 0)[0]),
            schema_id=_NUMBERS[schema],
            spec_id=_NUMBERS[spec],
            sort_order_id=_NUMBERS[sort],
        )
    except (KeyError, ValueError):  # Numbers are larger than usual, or the row is damaged.
        return None


@lru_cache(maxsize=4096)  # Rows have few different lengths.
def _sizes(row: int, location: int) -> tuple[bytes, bytes, bytes, bytes]:
    """The four sizes that a row must contain: of the object, message, state and location."""
    object = _framed(row - 1)
    message = _framed(object - _FRONT)
    state = _framed(message - 1 - _BACK)
    return varint(object), varint(message), varint(state), varint(location)


def _framed(total: int) -> int:
    """The size of a field whose data and size prefix have `total` bytes together."""
    for prefix in (1, 2, 3):
        if len(varint(total - prefix)) == prefix:
            return total - prefix
    raise ValueError("no size fits")
