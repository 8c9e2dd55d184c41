"""Encodes objects to rows and decodes them: tables of the fields of Nessie's ObjProto."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.ids import ID_BYTES, segments_id
from morag.format.key_order import key_from_utf8, key_to_utf8
from morag.format.messages import (
    ALWAYS,
    BOOL,
    BYTES,
    ID,
    INT64,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    TEXT,
    VARINT_PATTERN,
    Field,
    FieldType,
    Message,
    enumerated,
    int64,
    nested,
    sized_tag,
)
from morag.format.objects import (
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
from morag.format.records import ObjId, Row
from morag.protobuf import (
    BYTES_TYPE,
    HEADS,
    bytes_field,
    read_varint,
    tag_of,
    tagged_fields,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.format.ids import Headers
    from morag.format.objects import Obj
    from morag.protobuf import FieldHeads


def encode(obj: Obj, referenced_micros: int = 0) -> Row:
    heads, encode_fields = _ENCODERS[type(obj)]
    message = encode_fields(obj)
    return Row(obj.id, obj.kind_letter, heads[len(message)] + message, None, referenced_micros)


def decode(row: Row) -> Obj:
    """The object in the row. Raises an error if the hash of its content is not the row's id.

    The id of a commit is not checked here, because it does not always follow from the row alone
    (`proof.py`).
    """
    kind = KINDS.get(row.kind)
    if kind is None:
        raise RepositoryCorrupt.object(row.id, f"has the unknown kind {row.kind!r}")
    try:
        ((tag, message),) = tagged_fields(row.data)
        if tag != tag_of(kind.field_number, BYTES_TYPE):
            raise ValueError(f"it holds field {tag >> 3}")
        obj: Obj = _DECODERS[kind](row.id, message)
        actual = obj.id
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            row.id, f"is not a readable {kind.__name__} ({damage})"
        ) from damage
    if actual != row.id:
        raise RepositoryCorrupt.object(row.id, f"is damaged: the {kind.__name__} has another id")
    return obj


def encoded_stripe(stripe: Stripe) -> bytes:
    """A stripe as a field of an INDEX_SEGMENTS."""
    return bytes_field(_SEGMENTS_STRIPE, _encode_stripe(stripe))


def hashed_stripe(stripe: Stripe) -> bytes:
    return key_to_utf8(stripe.first) + key_to_utf8(stripe.last) + stripe.segment


def decode_stripes(encoded: bytes) -> list[Stripe]:
    """The stripes of an INDEX_SEGMENTS."""
    return _SEGMENTS.decode(encoded)


# Stripes


_KEY: Final = FieldType(
    wire_type=BYTES_TYPE,
    write="{heads}[len(_bytes := key_to_utf8({value}))] + _bytes",
    read="key_from_utf8({value})",
    zero=key_from_utf8(b""),
    names={"key_to_utf8": key_to_utf8, "key_from_utf8": key_from_utf8},
)
_STRIPE: Final = Message(
    Stripe,
    Field(1, "first", _KEY, ALWAYS),
    Field(2, "last", _KEY, ALWAYS),
    Field(3, "segment", ID, ALWAYS),
)
_encode_stripe: Final = _STRIPE.encode
_FIRST_TAG, _LAST_TAG, _ = (field.tag_bytes for field in _STRIPE.fields.values())
_SIZED_SEGMENT_TAG: Final = sized_tag(_STRIPE.fields["segment"], ID_BYTES)


def _stripe_field(number: int, stripe: Stripe) -> bytes:
    return bytes_field(number, _encode_stripe(stripe))


def _decode_stripe(data: bytes) -> Stripe:
    return _short_stripe(data) or _STRIPE.decode(data)


def _short_stripe(data: bytes) -> Stripe | None:
    """A fast decoder for stripes with short keys, because there may be thousands of stripes."""
    if len(data) < 2 or data[:1] != _FIRST_TAG or data[1] > 127:
        return None
    middle = data[1] + 2
    if data[middle : middle + 1] != _LAST_TAG or middle + 1 == len(data) or data[middle + 1] > 127:
        return None
    end = middle + data[middle + 1] + 2
    if data[end : end + 2] != _SIZED_SEGMENT_TAG or len(data) != end + 2 + ID_BYTES:
        return None
    first, last = data[2:middle], data[middle + 2 : end]
    return Stripe(key_from_utf8(first), key_from_utf8(last), ObjId(data[end + 2 :]))


# Headers


def _header_fields(number: int, headers: Headers) -> bytes:
    heads = HEADS[number]
    fields: list[bytes] = []
    for name, values in headers:
        text = name.encode()
        message = _NAME_HEADS[len(text)] + text
        for value in values:
            text = value.encode()
            message += _VALUE_HEADS[len(text)] + text
        fields += (heads[len(message)], message)
    return b"".join(fields)


def _header(name: str, values: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    return name, values


HEADER: Final = Message(_header, Field(1, "name", TEXT), Field(2, "values", TEXT, REPEATED))
_NAME_HEADS, _VALUE_HEADS = (HEADS[field.number] for field in HEADER.fields.values())
HEADERS: Final = nested(
    "headers", _header_fields, HEADER.decode, write_all="write_headers({number}, {value})"
)


# Objects


def _commit(incomplete_index: bool | None, tail: tuple[ObjId, ...], **fields: Any) -> Commit:
    if not tail:
        raise ValueError("it has no parent")
    incomplete, sealed = bool(incomplete_index), incomplete_index is False
    return Commit(tail=tail, incomplete=incomplete, sealed=sealed, **fields)


_COMMIT_ID: Final = FieldType(
    wire_type=BYTES_TYPE,
    write=BYTES.write,
    # Ids of commits always have 32 bytes, and there is at least one.
    write_all="{tag} + b'\\x20' + ({tag} + b'\\x20').join({value})",
)
_STRIPES: Final = nested("stripe", _stripe_field, _decode_stripe)
COMMIT: Final = Message(
    _commit,
    Field(1, "created_micros", INT64, ALWAYS),
    Field(2, "seq", INT64, ALWAYS),
    Field(3, "tail", _COMMIT_ID, REPEATED),
    Field(4, "merge_parents", ID, REPEATED),
    Field(5, "headers", HEADERS, REPEATED),
    Field(6, "message", TEXT),
    Field(7, "reference_index", ID, OPTIONAL),
    Field(8, "stripes", _STRIPES, REPEATED),
    Field(9, "incremental", BYTES, ALWAYS),
    Field(10, "incomplete_index", BOOL, OPTIONAL),
    Field(11, "kind", enumerated(CommitKind, CommitKind.NORMAL), ALWAYS),
    given=("id",),
)
# The start of every commit, which has most of its fields: created, seq, and the ids of the tail.
COMMIT_START: Final = re.compile(
    re.escape(COMMIT.fields["created_micros"].tag_bytes)
    + VARINT_PATTERN
    + re.escape(COMMIT.fields["seq"].tag_bytes)
    + VARINT_PATTERN
    + rb"((?:%b.{%d})+)" % (re.escape(sized_tag(COMMIT.fields["tail"], ID_BYTES)), ID_BYTES),
    re.DOTALL,
)


def _stripes(stripes: tuple[Stripe, ...]) -> list[Stripe]:
    return [*stripes]


def _index(encoded: bytes) -> Index:
    return Index(encoded)


def _tag(message: str | None, headers: Headers, signature: bytes | None) -> Tag:
    return Tag(message, headers or None, signature)


def _payload(payload: int) -> int:
    if int64(payload) not in range(128):
        raise ValueError(f"payload {payload} is not one byte")
    return payload


_REF: Final = Message(
    RefObj,
    Field(1, "name", TEXT, ALWAYS),
    Field(2, "initial_pointer", ID, ALWAYS),
    Field(3, "created_micros", INT64),
    Field(4, "extended_info", ID, OPTIONAL),
)
VALUE: Final = Message(
    Value,
    Field(1, "content_id", TEXT),
    Field(2, "payload", replace(INT64, read="_payload({value})", names={"_payload": _payload})),
    Field(3, "data", BYTES),
)
_SEGMENTS: Final = Message(_stripes, Field(1, "stripes", _STRIPES, REPEATED))
_SEGMENTS_STRIPE: Final = _SEGMENTS.fields["stripes"].number
_INDEX: Final = Message(_index, Field(1, "encoded", BYTES, ALWAYS))
_STRING: Final = Message(
    StringObj,
    Field(1, "content_type", TEXT),
    Field(2, "compression", enumerated(Compression), REQUIRED),
    Field(3, "filename", TEXT, OPTIONAL),
    Field(4, "predecessors", ID, REPEATED),
    Field(54, "text", BYTES),
)
_TAG: Final = Message(
    _tag,
    Field(2, "message", TEXT, OPTIONAL),
    Field(3, "headers", HEADERS, REPEATED),
    Field(4, "signature", BYTES, OPTIONAL),
)
_UNIQUE: Final = Message(Unique, Field(1, "space", TEXT, ALWAYS), Field(2, "value", BYTES, ALWAYS))


def _decode_commit(id: ObjId, data: bytes) -> Commit:
    start = COMMIT_START.match(data)
    if start is None:
        return COMMIT.decode(data, id)
    ids, step = start[3], 2 + ID_BYTES
    return COMMIT.decode(
        data[start.end() :],
        id,
        created_micros=int64(read_varint(start[1], 0)[0]),
        seq=int64(read_varint(start[2], 0)[0]),
        tail=[ObjId(ids[at + 2 : at + step]) for at in range(0, len(ids), step)],
    )


def _decode_segments(_: ObjId, data: bytes) -> IndexSegments:
    stripes = decode_stripes(data)
    segments = IndexSegments(segments_id(map(hashed_stripe, stripes)), data)
    segments.memo.form = stripes
    return segments


_ENCODERS: Final[dict[type[Obj], tuple[FieldHeads, Callable[[Any], bytes]]]] = {
    kind: (HEADS[kind.field_number], encode_fields)
    for kind, encode_fields in (
        (Commit, COMMIT.encode),
        (RefObj, _REF.encode),
        (Value, VALUE.encode),
        (Index, _INDEX.encode),
        (IndexSegments, lambda segments: segments.encoded),
        (StringObj, _STRING.encode),
        (Tag, _TAG.encode),
        (Unique, _UNIQUE.encode),
    )
}
_DECODERS: Final[dict[type[Obj], Callable[[ObjId, bytes], Any]]] = {
    Commit: _decode_commit,
    RefObj: lambda _, data: _REF.decode(data),
    Value: lambda _, data: VALUE.decode(data),
    Index: lambda _, data: _INDEX.decode(data),
    IndexSegments: _decode_segments,
    StringObj: lambda _, data: _STRING.decode(data),
    Tag: lambda _, data: _TAG.decode(data),
    Unique: lambda _, data: _UNIQUE.decode(data),
}
