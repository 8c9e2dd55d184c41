"""Contents as the values that Nessie stores, and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from morag.errors import BadRequest, RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.messages import (
    BYTES,
    INT32,
    INT64,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    TEXT,
    Field,
    Message,
    nested,
    wrong_wire_type,
)
from morag.format.objects import Value
from morag.model.content import (
    PAYLOADS,
    UDF,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
)
from morag.protobuf import BYTES_TYPE, HEADS, bytes_field, tag_of, tagged_fields, text_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.content import Content
    from morag.protobuf import FieldHeads

LEGACY_PAYLOAD: Final = 0
_SMALL_BYTES: Final = 1024
"""Contents of smaller values are cached."""


def value_of_content(content: Content, *, legacy: bool = False) -> Value:
    """The stored form. Equal content has equal bytes, and hence one value id.

    Detecting unchanged content and merging rely on that. The value for a legacy entry has that
    entry's payload, and not the payload of its type.
    """
    if content.id is None:
        raise BadRequest("Content to store must have a non-null content ID")
    kind = type(content)
    encode, heads, is_before_id = _ENCODERS[kind]
    state, id = encode(content), content.id.encode()
    state_field, id_field = heads[len(state)] + state, _ID_HEADS[len(id)] + id
    return Value(
        content.id,
        LEGACY_PAYLOAD if legacy else PAYLOADS[kind],
        state_field + id_field if is_before_id else id_field + state_field,
    )


def content_of_value(value: Value) -> Content:
    """The content as it was stored.

    A payload of 0 is from a Nessie without payloads: the field of the message then gives the type.
    Unknown fields are ignored, because old versions of Nessie stored more than is used today.
    """
    try:
        return _cached(value) if len(value.data) < _SMALL_BYTES else decode_value(value)
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            value.id, f"is not a readable value of content '{value.content_id}' ({damage})"
        ) from damage


@lru_cache(maxsize=4096)  # Clients read the same tables many times.
def _cached(value: Value) -> Content:
    return decode_value(value)


def decode_value(value: Value) -> Content:
    """Decodes a value without the cache. Raises one of `UNREADABLE` if it is damaged."""
    id, states = value.content_id, {}
    for tag, data in tagged_fields(value.data):
        if tag == ID.tag:
            id = data.decode()
        elif tag in _CONTENTS or tag == _OLD_POINTER_TAG:
            states[tag] = data
        elif tag >> 3 in _KNOWN:
            raise wrong_wire_type(tag)
    if _OLD_POINTER_TAG in states:
        # An old version of Nessie stored only the metadata location of a table.
        location = _OLD_POINTER.decode(states.pop(_OLD_POINTER_TAG))
        pointed = text_field(TABLE.fields["metadata_location"].number, location)
        states[TABLE_STATE.tag] = pointed + states.get(TABLE_STATE.tag, b"")
    if len(states) != 1:
        raise ValueError(f"it holds {len(states)} contents")
    ((tag, state),) = states.items()
    kind, message = _CONTENTS[tag]
    if value.payload not in (PAYLOADS[kind], LEGACY_PAYLOAD):
        raise ValueError(f"payload {value.payload} does not belong to {kind.__name__}")
    content: Content = message.decode(state, id)
    return content


def _location(metadata_location: str) -> str:
    return metadata_location


def _property_field(number: int, pair: tuple[str, str]) -> bytes:
    name, text = pair
    return bytes_field(number, text_field(_NAME.number, name) + text_field(_TEXT.number, text))


def _pair(name: str, text: str) -> tuple[str, str]:
    return name, text


TABLE: Final = Message(
    IcebergTable,
    Field(1, "snapshot_id", INT64),
    Field(2, "schema_id", INT32),
    Field(3, "spec_id", INT32),
    Field(4, "sort_order_id", INT32),
    Field(5, "metadata_location", TEXT, REQUIRED),
    given=("id",),
    ignores_unknown=True,
)
_VIEW: Final = Message(
    IcebergView,
    Field(1, "version_id", INT64),
    Field(2, "schema_id", INT32),
    Field(3, "sql_text", TEXT, OPTIONAL),
    Field(4, "dialect", TEXT, OPTIONAL),
    Field(5, "metadata_location", TEXT, REQUIRED),
    given=("id",),
    ignores_unknown=True,
)
_DELTA: Final = Message(
    DeltaLakeTable,
    Field(1, "last_checkpoint", TEXT, OPTIONAL),
    Field(2, "checkpoint_location_history", TEXT, REPEATED),
    Field(3, "metadata_location_history", TEXT, REPEATED),
    given=("id",),
    ignores_unknown=True,
)
_NAME: Final = Field(1, "name", TEXT)
_TEXT: Final = Field(2, "text", TEXT)
_PROPERTY: Final = Message(_pair, _NAME, _TEXT, ignores_unknown=True)
PROPERTIES: Final = nested(
    "property",
    _property_field,
    _PROPERTY.decode,
    write_all="b''.join([write_property({number}, pair) for pair in {value}.items()])",
    collect=dict,
)
_NAMESPACE: Final = Message(
    Namespace,
    Field(1, "elements", TEXT, REPEATED),
    Field(2, "properties", PROPERTIES, REPEATED),
    given=("id",),
    ignores_unknown=True,
)
_UDF: Final = Message(
    UDF,
    Field(1, "sql_text", TEXT, OPTIONAL),
    Field(2, "dialect", TEXT, OPTIONAL),
    Field(3, "version_id", TEXT, OPTIONAL),
    Field(4, "signature_id", TEXT, OPTIONAL),
    Field(5, "metadata_location", TEXT, OPTIONAL),
    given=("id",),
    ignores_unknown=True,
)

_OLD_POINTER: Final = Message(
    _location, Field(1, "metadata_location", TEXT, REQUIRED), ignores_unknown=True
)

# A content is a message with one of these states, and with the id.
TABLE_STATE: Final = Field(2, "table", BYTES)
ID: Final = Field(5, "id", TEXT)
_STATES: Final[dict[int, tuple[type[Content], Message[Any]]]] = {
    TABLE_STATE.number: (IcebergTable, TABLE),
    3: (IcebergView, _VIEW),
    4: (DeltaLakeTable, _DELTA),
    6: (Namespace, _NAMESPACE),
    7: (UDF, _UDF),
}
_OLD_POINTER_TAG: Final = tag_of(1, BYTES_TYPE)
_CONTENTS: Final = {tag_of(number, BYTES_TYPE): state for number, state in _STATES.items()}
_KNOWN: Final = {tag >> 3 for tag in (*_CONTENTS, _OLD_POINTER_TAG, ID.tag)}
_ID_HEADS: Final = HEADS[ID.number]
_ENCODERS: Final[dict[type[Content], tuple[Callable[[Any], bytes], FieldHeads, bool]]] = {
    kind: (message.encode, HEADS[number], number < ID.number)
    for number, (kind, message) in _STATES.items()
}
"""The encoder of a state, the heads of its field, and whether it comes before the id."""
