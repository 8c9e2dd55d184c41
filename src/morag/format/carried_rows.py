"""Rows that an export carries as they are: custom objects, and those that no message describes."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from morag.errors import ArchiveInvalid, RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.export_messages import SMILE, RelatedObj
from morag.format.messages import BYTES, TEXT, Field, Message, enumerated
from morag.format.object_codec import decode, encode
from morag.format.objects import KINDS, Compression, Unique
from morag.format.records import UNIQUE_KIND, ObjId, Row
from morag.protobuf import bytes_field, fields

EXPORTED_CUSTOM_KINDS: Final = frozenset({"c-e", "c-s"})
"""The custom objects that Nessie exports: entities and snapshots of its Iceberg REST catalog.

Others, such as keys of its request signer, belong to one installation.
"""


class _Custom(Struct, frozen=True):
    kind: str
    data: bytes
    compression: Compression


_CUSTOM: Final = Message(
    _Custom,
    Field(1, "kind", TEXT),
    Field(2, "data", BYTES),
    Field(3, "compression", enumerated(Compression, Compression.NONE)),
    ignores_unknown=True,
)
_CUSTOM_NUMBER: Final = 9
_LETTERS: Final = {compression.letter: compression for compression in Compression}


def related_of_row(row: Row) -> RelatedObj:
    """A custom object as a message of an export."""
    try:
        ((number, inner),) = fields(row.data)
        if number != _CUSTOM_NUMBER or not isinstance(inner, bytes):
            raise ValueError(f"it holds field {number}")
        custom = _CUSTOM.decode(inner)
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            row.id, f"is not a readable custom object ({damage})"
        ) from damage
    return RelatedObj(
        id=row.id,
        type=row.kind,
        data=custom.data,
        version=row.version,
        encoding=SMILE,
        compression=custom.compression.letter,
    )


def row_of_related(related: RelatedObj, referenced_micros: int) -> Row:
    """The row of a claim, or of a custom object, whose bytes are not looked into."""
    if related.type == UNIQUE_KIND:
        claim = Unique(related.space or "", related.data)
        if claim.id != related.id:
            raise ArchiveInvalid(f"Object {related.id.hex()} of the export has another id")
        return encode(claim, referenced_micros)
    if related.type in KINDS or not related.type or not related.id:
        raise ArchiveInvalid(
            f"The export has an object of the kind {related.type!r} where only custom ones can be"
        )
    if related.encoding != SMILE:
        raise ArchiveInvalid(
            f"Object {related.id.hex()} has the unknown encoding {related.encoding}"
        )
    compression = _LETTERS.get(related.compression or Compression.NONE.letter)
    if compression is None:
        raise ArchiveInvalid(
            f"Object {related.id.hex()} has the unknown compression {related.compression!r}"
        )
    inner = _CUSTOM.encode(_Custom(related.type, related.data, compression))
    data = bytes_field(_CUSTOM_NUMBER, inner)
    return Row(related.id, related.type, data, related.version, referenced_micros)


def checked_row(id: bytes, kind: str, data: bytes, referenced_micros: int) -> Row:
    """A row that is copied from another store. Refuses one that is damaged."""
    row = Row(ObjId(id), kind, data, None, referenced_micros)
    try:
        decode(row)
    except RepositoryCorrupt as damage:
        raise ArchiveInvalid(f"The export has a damaged object: {damage}") from None
    return row
