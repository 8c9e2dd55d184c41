"""Objects to rows and back: Nessie's ObjProto, field by field, in its order."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from morag.backend.base import ObjId, Row
from morag.errors import RepositoryCorrupt
from morag.persist.ids import segments_id
from morag.persist.objects import (
    KINDS,
    Commit,
    CommitKind,
    Compression,
    Index,
    IndexSegments,
    RefObj,
    StringObj,
    Stripe,
    Tag,
    Unique,
    Value,
)
from morag.persist.order import key_from_utf8, key_to_utf8
from morag.wire import (
    BYTES,
    UNREADABLE,
    bytes_field,
    fields,
    int_field,
    read_varint,
    signed,
    text_field,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.persist.objects import Obj

_SHORT_HEADER: Final = 256  # Characters of a name and its value.
_NUMBER: Final = rb"([\x80-\xff]*+[\x00-\x7f])"
# Created, seq and the ids of the tail: how every commit starts, and most of its fields.
_START: Final = re.compile(
    rb"\x08" + _NUMBER + rb"\x10" + _NUMBER + rb"((?:\x1a\x20.{32})+)", re.DOTALL
)
_OBJ_FIELD: Final = {
    Commit: 2,
    RefObj: 3,
    Value: 4,
    IndexSegments: 5,
    Index: 6,
    StringObj: 7,
    Tag: 8,
    Unique: 10,
}


def encode(obj: Obj, referenced_micros: int = 0) -> Row:
    message = _ENCODERS[type(obj)](obj)
    data = bytes_field(_OBJ_FIELD[type(obj)], message)
    return Row(obj.id, obj.kind_letter, data, None, referenced_micros)


def decode(row: Row) -> Obj:
    """The object in the row, if its content hashes to the id that it is stored under.

    The id of a commit does not always follow from its row alone: `proof.py` has more on that.
    """
    kind = KINDS.get(row.kind)
    if kind is None:
        raise RepositoryCorrupt.object(row.id, f"has the unknown kind {row.kind!r}")
    try:
        ((number, message),) = fields(row.data)
        if number != _OBJ_FIELD[kind] or not isinstance(message, bytes):
            raise ValueError(f"it holds field {number}")
        obj: Obj = _DECODERS[kind](row.id, message)
        actual = obj.id
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            row.id, f"is not a readable {kind.__name__} ({damage})"
        ) from damage
    if actual != row.id:
        raise RepositoryCorrupt.object(row.id, f"is damaged: the {kind.__name__} has another id")
    return obj


def encoded_stripe(number: int, stripe: Stripe) -> bytes:
    """A stripe as a repeated field: 8 in a commit, 1 in an INDEX_SEGMENTS."""
    return bytes_field(
        number,
        bytes_field(1, key_to_utf8(stripe.first))
        + bytes_field(2, key_to_utf8(stripe.last))
        + bytes_field(3, stripe.segment),
    )


def hashed_stripe(stripe: Stripe) -> bytes:
    return key_to_utf8(stripe.first) + key_to_utf8(stripe.last) + stripe.segment


def decode_stripes(encoded: bytes) -> list[Stripe]:
    """The stripes of an INDEX_SEGMENTS."""
    stripes = []
    for number, value in fields(encoded):
        if number != 1 or not isinstance(value, bytes):
            raise _unexpected(number)
        stripes.append(_usual_stripe(value) or _decode_stripe(value))
    return stripes


def _usual_stripe(data: bytes) -> Stripe | None:
    """A stripe with short keys, without going from field to field: there may be thousands."""
    middle = data[1] + 2
    end = middle + data[middle + 1] + 2 if middle + 1 < len(data) else 0
    if data[0] != 0x0A or data[middle : middle + 1] != b"\x12" or len(data) != end + 34:
        return None
    if data[1] > 127 or data[middle + 1] > 127 or data[end : end + 2] != b"\x1a\x20":
        return None
    first, last = data[2:middle], data[middle + 2 : end]
    return Stripe(key_from_utf8(first), key_from_utf8(last), ObjId(data[end + 2 :]))


def _encode_commit(c: Commit) -> bytes:
    parts = [int_field(1, c.created_micros), int_field(2, c.seq)]
    # Ids of commits always have 32 bytes, and there is at least one.
    parts += (b"\x1a\x20", b"\x1a\x20".join(c.tail))
    parts += [bytes_field(4, id) for id in c.merge_parents]
    parts += [_encode_header_field(5, name, values) for name, values in c.headers]
    if c.message:
        parts.append(text_field(6, c.message))
    if c.reference_index is not None:
        parts.append(bytes_field(7, c.reference_index))
    parts += [encoded_stripe(8, s) for s in c.stripes]
    parts.append(bytes_field(9, c.incremental))
    if c.incomplete or c.sealed:
        parts.append(int_field(10, c.incomplete))
    parts.append(int_field(11, c.kind.value))
    return b"".join(parts)


def _decode_commit(id: ObjId, data: bytes) -> Commit:
    plain: dict[str, Any] = {"created_micros": 0, "seq": 0, "incremental": b""}
    tail: list[ObjId] = []
    merged: list[ObjId] = []
    headers: list[tuple[str, tuple[str, ...]]] = []
    stripes: list[Stripe] = []
    if (start := _START.match(data)) is not None:
        plain["created_micros"] = signed(read_varint(start[1], 0)[0])
        plain["seq"] = signed(read_varint(start[2], 0)[0])
        tail = [ObjId(start[3][at + 2 : at + 34]) for at in range(0, len(start[3]), 34)]
        data = data[start.end() :]
    for number, value in fields(data):
        match number, value:
            case 1, int():
                plain["created_micros"] = signed(value)
            case 2, int():
                plain["seq"] = signed(value)
            case 3, bytes():
                tail.append(ObjId(value))
            case 4, bytes():
                merged.append(ObjId(value))
            case 5, bytes():
                headers.append(_decode_header(value))
            case 6, bytes():
                plain["message"] = value.decode()
            case 7, bytes():
                plain["reference_index"] = ObjId(value)
            case 8, bytes():
                stripes.append(_decode_stripe(value))
            case 9, bytes():
                plain["incremental"] = value
            case 10, int():
                plain["incomplete"] = bool(value)
                plain["sealed"] = not value
            case 11, int():
                plain["kind"] = CommitKind(value)
            case _:
                raise _unexpected(number)
    if not tail:
        raise ValueError("it has no parent")
    return Commit(
        id=id,
        tail=tuple(tail),
        merge_parents=tuple(merged),
        headers=tuple(headers),
        stripes=tuple(stripes),
        **plain,
    )


def _encode_ref(ref: RefObj) -> bytes:
    extended = b"" if ref.extended_info is None else bytes_field(4, ref.extended_info)
    created = int_field(3, ref.created_micros) if ref.created_micros else b""
    return text_field(1, ref.name) + bytes_field(2, ref.initial_pointer) + created + extended


def _decode_ref(_: ObjId, data: bytes) -> RefObj:
    got = _singles(data, {1, 2, 3, 4})
    return RefObj(
        _text(got.get(1)),
        ObjId(_bytes(got.get(2))),
        signed(_int(got.get(3))),
        ObjId(_bytes(got[4])) if 4 in got else None,
    )


def _encode_value(value: Value) -> bytes:
    content_id = value.content_id.encode()
    return b"".join(
        (
            bytes_field(1, content_id) if content_id else b"",
            int_field(2, value.payload) if value.payload else b"",
            bytes_field(3, value.data) if value.data else b"",
        )
    )


def _decode_value(_: ObjId, data: bytes) -> Value:
    got = _singles(data, {1, 2, 3})
    payload = _int(got.get(2))
    if payload > 127:
        raise ValueError(f"payload {payload} is not one byte")
    return Value(_text(got.get(1)), payload, _bytes(got.get(3)))


def _encode_index(index: Index) -> bytes:
    return bytes_field(1, index.encoded)


def _decode_index(_: ObjId, data: bytes) -> Index:
    return Index(_bytes(_singles(data, {1}).get(1)))


def _encode_segments(segments: IndexSegments) -> bytes:
    return segments.encoded


def _decode_segments(_: ObjId, data: bytes) -> IndexSegments:
    stripes = decode_stripes(data)
    segments = IndexSegments(segments_id(map(hashed_stripe, stripes)), data)
    segments.memo.form = stripes
    return segments


def _decode_stripe(data: bytes) -> Stripe:
    got = _singles(data, {1, 2, 3})
    first, last = key_from_utf8(_bytes(got.get(1))), key_from_utf8(_bytes(got.get(2)))
    return Stripe(first, last, ObjId(_bytes(got.get(3))))


def _encode_string(string: StringObj) -> bytes:
    return b"".join(
        (
            text_field(1, string.content_type) if string.content_type else b"",
            int_field(2, string.compression.value),
            b"" if string.filename is None else text_field(3, string.filename),
            *(bytes_field(4, id) for id in string.predecessors),
            bytes_field(54, string.text) if string.text else b"",
        )
    )


def _decode_string(_: ObjId, data: bytes) -> StringObj:
    got: dict[int, Any] = {}
    predecessors = []
    for number, value in fields(data):
        if number == 4 and isinstance(value, bytes):
            predecessors.append(ObjId(value))
        elif number in (1, 2, 3, 54):
            got[number] = value
        else:
            raise _unexpected(number)
    return StringObj(
        _text(got.get(1)),
        _bytes(got.get(54)),
        Compression(_int(got.get(2))),
        _text(got[3]) if 3 in got else None,
        tuple(predecessors),
    )


def _encode_tag(tag: Tag) -> bytes:
    return b"".join(
        (
            b"" if tag.message is None else text_field(2, tag.message),
            *(_encode_header_field(3, n, v) for n, v in tag.headers or ()),
            b"" if tag.signature is None else bytes_field(4, tag.signature),
        )
    )


def _decode_tag(_: ObjId, data: bytes) -> Tag:
    got: dict[int, Any] = {}
    headers = []
    for number, value in fields(data):
        if number == 3 and isinstance(value, bytes):
            headers.append(_decode_header(value))
        elif number in (2, 4):
            got[number] = value
        else:
            raise _unexpected(number)
    return Tag(
        _text(got[2]) if 2 in got else None,
        tuple(headers) or None,
        _bytes(got[4]) if 4 in got else None,
    )


def _encode_unique(unique: Unique) -> bytes:
    return text_field(1, unique.space) + bytes_field(2, unique.value)


def _decode_unique(_: ObjId, data: bytes) -> Unique:
    got = _singles(data, {1, 2})
    return Unique(_text(got.get(1)), _bytes(got.get(2)))


def _encode_header_field(number: int, name: str, values: tuple[str, ...]) -> bytes:
    # All but the times are the same in most commits. Long ones would take too much memory.
    is_short = len(values) == 1 and len(name) + len(values[0]) <= _SHORT_HEADER
    return (_remembered_header_field if is_short else _header_field)(number, name, values)


@lru_cache(maxsize=2048)
def _remembered_header_field(number: int, name: str, values: tuple[str, ...]) -> bytes:
    return _header_field(number, name, values)


def _header_field(number: int, name: str, values: tuple[str, ...]) -> bytes:
    if len(values) == 1:
        known, value = name.encode(), values[0].encode()
        size = len(known) + len(value) + 4
        if size < 128:  # Nearly all: each tag and each size takes a byte.
            shape = (number << 3 | BYTES, size, len(known), known, len(value), value)
            return b"%c%c\x0a%c%b\x12%c%b" % shape
    encoded = b"".join([text_field(2, value) for value in values])
    return bytes_field(number, text_field(1, name) + encoded)


def _decode_header(data: bytes) -> tuple[str, tuple[str, ...]]:
    name, values = "", []
    for number, value in fields(data):
        if number == 1:
            name = _text(value)
        elif number == 2:
            values.append(_text(value))
        else:
            raise _unexpected(number)
    return name, tuple(values)


def _singles(data: bytes, known: set[int]) -> dict[int, int | bytes]:
    """The fields of a message in which none is repeated."""
    got = dict(fields(data))
    for number in got.keys() - known:
        raise _unexpected(number)
    return got


def _text(value: int | bytes | None) -> str:
    return _bytes(value).decode()


def _bytes(value: int | bytes | None) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes belong")
    return value or b""


def _int(value: int | bytes | None) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number belongs")
    if value is not None and value >> 64:
        raise ValueError("a number takes more than 64 bits")
    return value or 0


def _unexpected(number: int) -> ValueError:
    # A field that this version does not know would be lost when the object is written again.
    return ValueError(f"field {number} is not known")


_ENCODERS: Final[dict[type[Obj], Callable[[Any], bytes]]] = {
    Commit: _encode_commit,
    RefObj: _encode_ref,
    Value: _encode_value,
    Index: _encode_index,
    IndexSegments: _encode_segments,
    StringObj: _encode_string,
    Tag: _encode_tag,
    Unique: _encode_unique,
}
_DECODERS: Final[dict[type[Obj], Callable[[ObjId, bytes], Any]]] = {
    Commit: _decode_commit,
    RefObj: _decode_ref,
    Value: _decode_value,
    Index: _decode_index,
    IndexSegments: _decode_segments,
    StringObj: _decode_string,
    Tag: _decode_tag,
    Unique: _decode_unique,
}
