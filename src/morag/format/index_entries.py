"""Index entries: the stored bytes behind a key.

An entry stays in its encoded form, because most entries are only copied from one index into the
next. The payload is below 128 and hence always one byte.
"""

from __future__ import annotations

from typing import Final

from morag.format.ids import NO_CONTENT_ID
from morag.format.records import ObjId

NONE: Final = b"N"
"""Present; the only action in a reference index."""
ADD: Final = b"A"
"""Added or updated by this commit."""
REMOVE: Final = b"R"
"""Removed by this commit; the rest of the entry describes the removed content."""
INCREMENTAL_ADD: Final = b"a"
"""Added by an earlier commit and not yet in the reference index."""
INCREMENTAL_REMOVE: Final = b"r"
"""Removed by an earlier commit, but possibly still in the reference index."""

_BYTES: Final = tuple(bytes([n]) for n in range(256))
_EXISTS: Final = frozenset(b"NAa")
_CURRENT: Final = frozenset(b"AR")


def make_op(action: bytes, payload: int, value: ObjId | None, content_id: bytes) -> bytes:
    assert 0 <= payload < 128, f"payload {payload} does not fit one byte"
    id = value or b""
    return b"".join((action, _BYTES[payload], _BYTES[len(id)], id, content_id))


def exists(op: bytes) -> bool:
    return op[0] in _EXISTS


def is_current(op: bytes) -> bool:
    """Whether the commit that has this index wrote the entry."""
    return op[0] in _CURRENT


def payload_of(op: bytes) -> int:
    return op[1]


def value_of(op: bytes) -> ObjId:
    """The id of the value. An entry that exists has one."""
    return ObjId(op[3:-16])


def content_id_of(op: bytes) -> bytes:
    """Sixteen bytes; `NO_CONTENT_ID` if the content's id is not a UUID."""
    return op[-16:]


def parts_of(op: bytes) -> tuple[int, ObjId, bytes]:
    """The payload, the id of the value and the content id, as the functions above."""
    return op[1], ObjId(op[3:-16]), op[-16:]


def with_action(action: bytes, op: bytes) -> bytes:
    return action + op[1:]


def has_content_id(op: bytes) -> bool:
    return op[-16:] != NO_CONTENT_ID
