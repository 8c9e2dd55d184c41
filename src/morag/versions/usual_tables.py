"""Iceberg tables out of rows that look as they nearly always do: the whole row in one step.

Who reads a million of them would otherwise spend most of the time on taking messages apart, one
inside the other. A row that looks different in any way is left to those who do that.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.model.content import PAYLOADS, IcebergTable
from morag.persist.ids import value_id_of
from morag.wire import read_varint, signed, varint

if TYPE_CHECKING:
    from morag.backend.base import Row

_PAYLOAD: Final = PAYLOADS[IcebergTable]
_NUMBER: Final = rb"([\x80-\xff]*+[\x00-\x7f])"
# A value object, in it the content's id, its type and the message of the content, in that the
# state and the id again: what `persist.codec` and `versions.contents` write.
_ROW: Final = re.compile(
    rb"\x22" + _NUMBER + rb"\x0a\x24(.{36})\x10\x01\x1a" + _NUMBER + rb"\x12" + _NUMBER +
    rb"(?:\x08" + _NUMBER + rb")?(?:\x10" + _NUMBER + rb")?(?:\x18" + _NUMBER + rb")?"
    rb"(?:\x20" + _NUMBER + rb")?\x2a" + _NUMBER + rb"(.*)\x2a\x24(.{36})",
    re.DOTALL,
)  # fmt: skip
_FRONT: Final = 2 + 36 + 2 + 1
"""Bytes between the size of the object and that of the message."""
_BACK: Final = 2 + 36
"""Bytes behind the state."""
_NUMBERS: Final[dict[bytes | None, int]] = {varint(n): n for n in range(1 << 12)} | {None: 0}


def usual_table(row: Row) -> IcebergTable | None:
    """The table in a row. It is taken only if all sizes fit what they stand in front of, and if it
    has the id that it is stored under."""
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
        if value_id_of(id, _PAYLOAD, data[found.end(3) :]) != row.id:
            return None
        return IcebergTable(
            id=id.decode(),
            metadata_location=at.decode(),
            snapshot_id=0 if snapshot is None else signed(read_varint(snapshot, 0)[0]),
            schema_id=_NUMBERS[schema],
            spec_id=_NUMBERS[spec],
            sort_order_id=_NUMBERS[sort],
        )
    except (KeyError, ValueError):  # Larger than usual, or damaged.
        return None


@lru_cache(maxsize=4096)  # Rows differ a lot, but their lengths do not.
def _sizes(row: int, location: int) -> tuple[bytes, bytes, bytes, bytes]:
    """What the four sizes have to be: of the object, the message, the state and the location."""
    object = _framed(row - 1)
    message = _framed(object - _FRONT)
    state = _framed(message - 1 - _BACK)
    return varint(object), varint(message), varint(state), varint(location)


def _framed(room: int) -> int:
    """The size of what fills the room together with its own size in front of it."""
    for written in (1, 2, 3):
        if len(varint(room - written)) == written:
            return room - written
    raise ValueError("no size fits")
