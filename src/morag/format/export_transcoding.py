"""Stored commits as messages of an export, without decoding what both have in the same form.

Both formats write ids, numbers, headers and the message with the same bytes. An export spends most
of its time here, and decoding headers to encode them again would take as long as the rest. Commits
of unusual form are decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.export_messages import EXPORTED_COMMIT, EXPORTED_OPERATION, OperationKind
from morag.format.ids import ID_BYTES, NO_CONTENT_ID, uuid_text
from morag.format.index_bytes import own_entries
from morag.format.object_codec import COMMIT, COMMIT_START, HEADER, decode
from morag.format.objects import Commit
from morag.format.proof import id_of_texts, own_operations
from morag.format.records import ObjId, Row
from morag.protobuf import BYTES_TYPE, HEADS, read_varint, signed, tag_of, text_field, varint

if TYPE_CHECKING:
    from collections.abc import Mapping

    Own = list[tuple[bytes, bytes]]

_ADD: Final = ord("A")
_STEP: Final = 2 + ID_BYTES
_ROW_TAG: Final = tag_of(Commit.field_number, BYTES_TYPE)
_MERGE_PARENT: Final = COMMIT.fields["merge_parents"].tag
_HEADER: Final = COMMIT.fields["headers"].tag
_MESSAGE: Final = COMMIT.fields["message"].tag
_INCREMENTAL: Final = COMMIT.fields["incremental"].tag
_INCOMPLETE: Final = COMMIT.fields["incomplete_index"].tag
_NAME: Final = HEADER.fields["name"]
_VALUE: Final = HEADER.fields["values"]
_NAME_TAG, _VALUE_TAG = _NAME.tag, _VALUE.tag

_TO = EXPORTED_COMMIT.fields
_TO_ID: Final = _TO["id"].tag_bytes + varint(ID_BYTES)
_TO_SEQ: Final = _TO["seq"].tag_bytes
_TO_PARENT: Final = _TO["parent"].tag_bytes + varint(ID_BYTES)
_TO_MERGE_PARENT: Final = _TO["merge_parents"].tag_bytes + varint(ID_BYTES)
_TO_CREATED: Final = _TO["created_micros"].tag_bytes
_OPERATION_HEADS: Final = HEADS[_TO["operations"].number]
_MESSAGE_HEADS: Final = HEADS[_TO["message"].number]
_HEADER_HEADS: Final = HEADS[_TO["headers"].number]

_OF = EXPORTED_OPERATION.fields
_DELETE: Final = _OF["kind"].tag_bytes + varint(OperationKind.DELETE)  # A put is not written.
_KEY_HEADS: Final = HEADS[_OF["key"].number]
_CONTENT_ID_HEADS: Final = HEADS[_OF["content_id"].number]
_PAYLOADS: Final = tuple(_OF["payload"].tag_bytes + varint(n) for n in range(128))
_CONTENT_HEADS: Final = HEADS[_OF["value"].number]


class StoredCommit(Struct, frozen=True, gc=False):
    """A commit in pieces. Numbers, headers and the message are as they are stored."""

    row: Row
    created: bytes
    seq: int
    tail_fields: bytes
    merge_parents: tuple[ObjId, ...]
    headers: tuple[bytes, ...]
    message: bytes
    incremental: bytes

    @property
    def id(self) -> ObjId:
        return self.row.id

    @property
    def parent(self) -> ObjId:
        return ObjId(self.tail_fields[2:_STEP])

    @property
    def tail(self) -> tuple[ObjId, ...]:
        fields = self.tail_fields
        return tuple([ObjId(fields[at + 2 : at + _STEP]) for at in range(0, len(fields), _STEP)])

    def decoded(self) -> Commit:
        return _commit(self.row)


class ContentJson(Struct, frozen=True, gc=False):
    """A content as the JSON of the REST API, and its id."""

    id: bytes
    json: bytes


def stored_commit(row: Row) -> StoredCommit:
    """The commit in a row. Its id is not checked: `own_entries_of` does that."""
    try:
        found = _pieces(row)
    except UNREADABLE:
        found = None
    if found is not None:
        return found
    commit = _commit(row)
    if commit.incomplete:
        raise RepositoryCorrupt.object(row.id, "is incomplete: its import was cut short")
    return StoredCommit(
        row,
        varint(commit.created_micros),
        commit.seq,
        b"".join(_TO_ID + id for id in commit.tail),
        commit.merge_parents,
        tuple(
            text_field(_NAME.number, name)
            + b"".join(text_field(_VALUE.number, value) for value in values)
            for name, values in commit.headers
        ),
        commit.message.encode(),
        commit.incremental,
    )


def own_entries_of(stored: StoredCommit) -> tuple[Own, bool]:
    """As `proof.own_operations`: the commit's own entries, and whether its id follows from them."""
    try:
        own = list(own_entries(stored.incremental))
        texts = stored.message + b"".join(map(_header_text, stored.headers))
        if id_of_texts(stored.parent, texts, own) == stored.row.id:
            return own, True
    except UNREADABLE:
        pass
    return own_operations(stored.decoded())


def exported_message(
    stored: StoredCommit, own: Own, contents: Mapping[ObjId, ContentJson]
) -> bytes:
    """The commit as an encoded `ExportedCommit`. `contents` has those of its values."""
    parts = [_TO_ID, stored.row.id, _TO_SEQ, varint(stored.seq), _TO_PARENT, stored.parent]
    for parent in stored.merge_parents:
        parts += (_TO_MERGE_PARENT, parent)
    for key, op in own:
        if op[0] == _ADD:
            content = contents[ObjId(op[3:-16])]
            id, json = content.id, content.json
            operation = b"".join(
                (
                    _KEY_HEADS[len(key)],
                    key,
                    _CONTENT_ID_HEADS[len(id)],
                    id,
                    _PAYLOADS[op[1]],
                    _CONTENT_HEADS[len(json)],
                    json,
                )
            )
        else:
            operation = _deleted(key, op)
        parts += (_OPERATION_HEADS[len(operation)], operation)
    if stored.created != b"\0":
        parts += (_TO_CREATED, stored.created)
    if stored.message:
        parts += (_MESSAGE_HEADS[len(stored.message)], stored.message)
    for header in stored.headers:
        parts += (_HEADER_HEADS[len(header)], header)
    return b"".join(parts)


def _deleted(key: bytes, op: bytes) -> bytes:
    content_id = b""
    if op[-16:] != NO_CONTENT_ID:
        text = uuid_text(op[-16:]).encode()
        content_id = _CONTENT_ID_HEADS[len(text)] + text
    return b"".join((_DELETE, _KEY_HEADS[len(key)], key, content_id, _PAYLOADS[op[1]]))


def _pieces(row: Row) -> StoredCommit | None:
    """The commit if it has the usual form: None otherwise."""
    data = row.data
    if data[0] != _ROW_TAG:
        return None
    size, at = read_varint(data, 1)
    start = COMMIT_START.match(data, at)
    if start is None or at + size != len(data):
        return None
    seq = signed(read_varint(start[2], 0)[0])
    headers: list[bytes] = []
    merge_parents: list[ObjId] = []
    message = incremental = b""
    at, end = start.end(), len(data)
    while at < end:
        tag, at = data[at], at + 1
        if tag & 7 != BYTES_TYPE:
            if tag == _INCOMPLETE and data[at]:
                return None
            _, at = read_varint(data, at)
            continue
        size, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)
        field, at = data[at : at + size], at + size
        if tag == _HEADER:
            headers.append(field)
        elif tag == _INCREMENTAL:
            incremental = field
        elif tag == _MESSAGE:
            message = field
        elif tag == _MERGE_PARENT:
            merge_parents.append(ObjId(field))
        elif tag >= 0x80:
            return None
    if at != end or not incremental:
        return None
    return StoredCommit(
        row,
        start[1],
        seq,
        start[3],
        tuple(merge_parents),
        tuple(headers),
        message,
        incremental,
    )


def _header_text(header: bytes) -> bytes:
    """The name and the values of a header, joined, as they are hashed."""
    size = header[1]
    if header[0] != _NAME_TAG or size > 127:
        return _header_text_slowly(header)
    at = 2 + size
    text = header[2:at]
    while at < len(header):
        size = header[at + 1]
        if header[at] != _VALUE_TAG or size > 127:
            return _header_text_slowly(header)
        at += 2 + size
        text += header[at - size : at]
    return text


def _header_text_slowly(header: bytes) -> bytes:
    name, values = HEADER.decode(header)
    return "".join((name, *values)).encode()


def _commit(row: Row) -> Commit:
    commit = decode(row)
    if not isinstance(commit, Commit):
        raise RepositoryCorrupt.object(row.id, f"is a {type(commit).__name__}, not a Commit")
    return commit
