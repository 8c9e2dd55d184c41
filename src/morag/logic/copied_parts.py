"""Rows in the target of a copy that tell which parts of the source it has already."""

from __future__ import annotations

from typing import Final

from morag.format.records import ObjId, Row
from morag.protobuf import bytes_field, text_field

KIND: Final = "morag-copy"
_CUSTOM: Final = 9  # The field of custom objects in Nessie's ObjProto.


def part_id(index: int) -> ObjId:
    return ObjId(f"{KIND}-{index}".encode())


def part_row(index: int, state: str, now_micros: int) -> Row:
    """The row of a part that was copied while the references were in this `state`."""
    data = bytes_field(_CUSTOM, text_field(1, KIND) + bytes_field(2, b""))
    return Row(part_id(index), KIND, data, state, now_micros)
