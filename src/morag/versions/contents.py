"""Content to stored values and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.errors import BadRequest, RepositoryCorrupt
from morag.model.content import (
    PAYLOADS,
    UDF,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
)
from morag.persist.objects import Value
from morag.wire import (
    BYTES,
    UNREADABLE,
    bytes_field,
    fields,
    int_field,
    signed,
    text_field,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.model.content import Content

_OLD_POINTER: Final = 1
_TABLE: Final = 2
_VIEW: Final = 3
_DELTA: Final = 4
_SMALL: Final = 1024  # Bytes of a value that is worth to be remembered.
_LARGE: Final = 16 * 1024
_ID: Final = 5
_NAMESPACE: Final = 6
_UDF: Final = 7
_STATES: Final = frozenset({_OLD_POINTER, _TABLE, _VIEW, _DELTA, _NAMESPACE, _UDF})
LEGACY_PAYLOAD: Final = 0


def value_of_content(content: Content, *, legacy: bool = False) -> Value:
    """The stored form. Equal content has equal bytes, and hence one value id.

    Fields stand in the order of their numbers and none is written that says nothing: "no change"
    and merges rely on it. The value for a legacy entry has that entry's payload, and not its own.
    """
    id = content.id
    if id is None:
        raise BadRequest("Content to store must have a non-null content ID")
    kind = type(content)
    tag, encode = _ENCODERS[kind]
    state, id_text = encode(content), id.encode()
    state = tag + varint(len(state)) + state
    id_field = _ID_TAG + varint(len(id_text)) + id_text
    payload = LEGACY_PAYLOAD if legacy else PAYLOADS[kind]
    return Value(id, payload, state + id_field if tag < _ID_TAG else id_field + state)


class Undecoded(Struct, frozen=True, gc=False):
    """A content that was found. To decode and show a large one takes many milliseconds."""

    value: Value

    @property
    def is_large(self) -> bool:
        return len(self.value.data) > _LARGE

    def content(self) -> Content:
        return content_of_value(self.value)


def content_of_value(value: Value) -> Content:
    """The content as it was stored.

    A payload of 0 is from the time before payloads: then the message itself tells what it is.
    Fields that are not known are left alone, because old versions stored more than is used today.
    """
    try:
        return _remembered(value) if len(value.data) < _SMALL else _decode(value)
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            value.id, f"is not a readable value of content '{value.content_id}' ({damage})"
        ) from damage


@lru_cache(maxsize=4096)  # Clients ask for the same tables again and again.
def _remembered(value: Value) -> Content:
    return _decode(value)


def _decode(value: Value) -> Content:
    id, states = value.content_id, {}
    for number, data in fields(value.data):
        if number == _ID:
            id = _text(data)
        elif number in _STATES:
            states[number] = _bytes(data)
    if _OLD_POINTER in states:
        # All that was stored of a table once: where its metadata is.
        location = _Fields(states.pop(_OLD_POINTER)).text(1)
        states[_TABLE] = text_field(5, location) + states.get(_TABLE, b"")
    if len(states) != 1:
        raise ValueError(f"it holds {len(states)} contents")
    ((number, state),) = states.items()
    content = _DECODERS[number](id, _Fields(state))
    if value.payload not in (PAYLOADS[type(content)], LEGACY_PAYLOAD):
        raise ValueError(f"payload {value.payload} does not belong to {type(content).__name__}")
    return content


class _Fields:
    """The fields of a message by number, read as what they should be."""

    __slots__ = ("_got",)

    def __init__(self, data: bytes) -> None:
        self._got: dict[int, list[int | bytes]] = {}
        for number, value in fields(data):
            self._got.setdefault(number, []).append(value)

    def text(self, number: int) -> str:
        text = self.optional(number)
        if text is None:
            raise ValueError(f"field {number} is missing")
        return text

    def optional(self, number: int) -> str | None:
        found = self._got.get(number)
        return None if found is None else _text(found[-1])

    def texts(self, number: int) -> tuple[str, ...]:
        return tuple(_text(value) for value in self._got.get(number, ()))

    def messages(self, number: int) -> list[_Fields]:
        return [_Fields(_bytes(value)) for value in self._got.get(number, ())]

    def int64(self, number: int) -> int:
        found = self._got.get(number)
        return 0 if found is None else signed(_int(found[-1]) & 0xFFFF_FFFF_FFFF_FFFF)

    def int32(self, number: int) -> int:
        low = self.int64(number) & 0xFFFF_FFFF
        return low - (1 << 32) if low >> 31 else low


def _encode_table(table: IcebergTable) -> bytes:
    location = table.metadata_location.encode()
    snapshot, schema = table.snapshot_id, table.schema_id
    spec, sort_order = table.spec_id, table.sort_order_id
    return b"%b%b%b%b\x2a%b%b" % (
        b"\x08" + varint(snapshot) if snapshot else b"",
        b"\x10" + varint(schema) if schema else b"",
        b"\x18" + varint(spec) if spec else b"",
        b"\x20" + varint(sort_order) if sort_order else b"",
        varint(len(location)),
        location,
    )


def _decode_table(id: str, got: _Fields) -> IcebergTable:
    return IcebergTable(
        id=id,
        metadata_location=got.text(5),
        snapshot_id=got.int64(1),
        schema_id=got.int32(2),
        spec_id=got.int32(3),
        sort_order_id=got.int32(4),
    )


def _encode_view(view: IcebergView) -> bytes:
    return b"".join(
        (
            int_field(1, view.version_id) if view.version_id else b"",
            int_field(2, view.schema_id) if view.schema_id else b"",
            _optional(3, view.sql_text),
            _optional(4, view.dialect),
            text_field(5, view.metadata_location),
        )
    )


def _decode_view(id: str, got: _Fields) -> IcebergView:
    return IcebergView(
        id=id,
        metadata_location=got.text(5),
        version_id=got.int64(1),
        schema_id=got.int32(2),
        sql_text=got.optional(3),
        dialect=got.optional(4),
    )


def _encode_delta(table: DeltaLakeTable) -> bytes:
    return b"".join(
        (
            _optional(1, table.last_checkpoint),
            _repeated(2, table.checkpoint_location_history),
            _repeated(3, table.metadata_location_history),
        )
    )


def _decode_delta(id: str, got: _Fields) -> DeltaLakeTable:
    return DeltaLakeTable(
        id=id,
        metadata_location_history=got.texts(3),
        checkpoint_location_history=got.texts(2),
        last_checkpoint=got.optional(1),
    )


def _encode_namespace(namespace: Namespace) -> bytes:
    pairs = [
        bytes_field(2, text_field(1, name) + text_field(2, text))
        for name, text in namespace.properties.items()
    ]
    return b"".join((_repeated(1, namespace.elements), *pairs))


def _decode_namespace(id: str, got: _Fields) -> Namespace:
    pairs = got.messages(2)
    return Namespace(
        id=id,
        elements=got.texts(1),
        properties={pair.optional(1) or "": pair.optional(2) or "" for pair in pairs},
    )


def _encode_udf(udf: UDF) -> bytes:
    return b"".join(
        (
            _optional(1, udf.sql_text),
            _optional(2, udf.dialect),
            _optional(3, udf.version_id),
            _optional(4, udf.signature_id),
            _optional(5, udf.metadata_location),
        )
    )


def _decode_udf(id: str, got: _Fields) -> UDF:
    return UDF(
        id=id,
        sql_text=got.optional(1),
        dialect=got.optional(2),
        version_id=got.optional(3),
        signature_id=got.optional(4),
        metadata_location=got.optional(5),
    )


# Tags are written out beforehand: each put of each commit needs two of them.
_ID_TAG: Final = varint(_ID << 3 | BYTES)
_ENCODERS: Final[dict[type[Content], tuple[bytes, Callable[[Any], bytes]]]] = {
    IcebergTable: (varint(_TABLE << 3 | BYTES), _encode_table),
    IcebergView: (varint(_VIEW << 3 | BYTES), _encode_view),
    DeltaLakeTable: (varint(_DELTA << 3 | BYTES), _encode_delta),
    Namespace: (varint(_NAMESPACE << 3 | BYTES), _encode_namespace),
    UDF: (varint(_UDF << 3 | BYTES), _encode_udf),
}
_DECODERS: Final[dict[int, Callable[[str, _Fields], Content]]] = {
    _TABLE: _decode_table,
    _VIEW: _decode_view,
    _DELTA: _decode_delta,
    _NAMESPACE: _decode_namespace,
    _UDF: _decode_udf,
}


def _optional(number: int, text: str | None) -> bytes:
    return b"" if text is None else text_field(number, text)


def _repeated(number: int, texts: Iterable[str]) -> bytes:
    return b"".join([text_field(number, text) for text in texts])


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes belong")
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("bytes stand where a number belongs")
    return value
