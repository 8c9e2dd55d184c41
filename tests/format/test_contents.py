"""Content has the bytes of Nessie, and decodes to the content that was encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from morag.errors import BadRequest, RepositoryCorrupt
from morag.format.content_values import content_of_value, value_of_content
from morag.format.object_codec import decode, encode
from morag.format.objects import Value
from morag.model.content import (
    PAYLOADS,
    UDF,
    Content,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
)
from morag.protobuf import bytes_field, int_field, text_field
from tests.format import golden
from tests.format.damaged_rows import damaged

if TYPE_CHECKING:
    from collections.abc import Sequence

ID = "b9e9544c-9286-4222-9f85-09f0477c81f3"
TABLE = IcebergTable(
    id=ID, metadata_location="s3://b/m", snapshot_id=7, schema_id=1, spec_id=0, sort_order_id=-1
)
TEXTS = st.text(max_size=40)
LISTS = st.lists(TEXTS, max_size=3).map(tuple)
INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
MAYBE = st.none() | TEXTS
CONTENTS: st.SearchStrategy[Content] = st.one_of(
    st.builds(
        IcebergTable,
        id=TEXTS,
        metadata_location=TEXTS,
        snapshot_id=LONGS,
        schema_id=INTS,
        spec_id=INTS,
        sort_order_id=INTS,
    ),
    st.builds(
        IcebergView,
        id=TEXTS,
        metadata_location=TEXTS,
        version_id=LONGS,
        schema_id=INTS,
        sql_text=MAYBE,
        dialect=MAYBE,
    ),
    st.builds(
        DeltaLakeTable,
        id=TEXTS,
        metadata_location_history=LISTS,
        checkpoint_location_history=LISTS,
        last_checkpoint=MAYBE,
    ),
    st.builds(
        Namespace,
        id=TEXTS,
        elements=LISTS,
        properties=st.dictionaries(TEXTS, TEXTS, max_size=3),
    ),
    st.builds(
        UDF,
        id=TEXTS,
        sql_text=MAYBE,
        dialect=MAYBE,
        version_id=MAYBE,
        signature_id=MAYBE,
        metadata_location=MAYBE,
    ),
)


def test_recorded_values_are_encoded_to_the_same_bytes() -> None:
    kinds = set()
    for id, value in golden.of_kind(Value).items():
        content = content_of_value(value)
        kinds.add(type(content))
        encoded = value_of_content(content)
        assert (encoded, encoded.id) == (value, id)
    assert kinds == set(PAYLOADS), "the recording must have every type of content"


def test_a_table_has_the_bytes_of_the_format() -> None:
    assert value_of_content(TABLE).data == b"".join(
        (
            *(b"\x12\x19", b"\x08\x07", b"\x10\x01"),
            *(b"\x20", b"\xff" * 9, b"\x01"),
            *(b"\x2a\x08", b"s3://b/m"),
            *(b"\x2a\x24", ID.encode()),
        )
    )


@given(CONTENTS)
def test_content_is_read_as_it_was_stored(content: Content) -> None:
    value = value_of_content(content)
    assert value.content_id == content.id
    assert value.payload == PAYLOADS[type(content)]
    read = content_of_value(value)
    assert read == content
    # Equality of dicts is not enough: the order of a namespace's properties is part of the bytes.
    assert msgspec.json.encode(read) == msgspec.json.encode(content)


@given(CONTENTS)
def test_the_type_of_a_value_without_payload_follows_from_its_message(content: Content) -> None:
    value = value_of_content(content)
    assert content_of_value(Value(value.content_id, 0, value.data)) == content


def test_an_old_metadata_pointer_is_read_as_a_table_with_defaults() -> None:
    data = bytes_field(1, text_field(1, "s3://b/m")) + text_field(5, ID)
    assert content_of_value(Value(ID, 0, data)) == IcebergTable(
        id=ID, metadata_location="s3://b/m", snapshot_id=0, schema_id=0, spec_id=0, sort_order_id=0
    )


def test_unknown_fields_that_old_versions_stored_are_ignored() -> None:
    value = value_of_content(TABLE)
    state = value.data[2:27] + bytes_field(6, b"part") + bytes_field(7, b"part")
    data = bytes_field(2, state) + text_field(5, ID) + int_field(99, 1)
    assert content_of_value(Value(ID, 1, data)) == TABLE


def test_content_without_an_id_cannot_be_stored() -> None:
    with pytest.raises(BadRequest, match="Content to store must have a non-null content ID"):
        value_of_content(Namespace.of("db"))


@pytest.mark.parametrize(
    "value",
    [
        Value(ID, 0, b""),
        Value(ID, 1, text_field(5, ID)),
        Value(ID, 2, value_of_content(TABLE).data),
        Value(ID, 6, value_of_content(TABLE).data),
        Value(ID, 1, value_of_content(TABLE).data + bytes_field(6, b"")),
        Value(ID, 1, bytes_field(2, int_field(1, 7)) + text_field(5, ID)),  # No location.
        Value(ID, 1, int_field(2, 7)),
        Value(ID, 1, bytes_field(2, int_field(5, 7))),
        Value(ID, 1, bytes_field(2, bytes_field(1, b"7") + text_field(5, "s3://b/m"))),
        Value(ID, 1, bytes_field(2, bytes_field(5, b"\xff"))),
    ],
)
def test_an_invalid_value_is_damage(value: Value) -> None:
    with pytest.raises(RepositoryCorrupt, match=ID):
        content_of_value(value)


VALUES = [value_of_content(c) for c in (TABLE, Namespace(id=ID, properties={"a": "b"}))]


@given(
    st.sampled_from(VALUES),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(0, 100),
)
@example(VALUES[0], [], 3)
def test_damaged_bytes_decode_to_content_or_are_reported(
    value: Value, hits: Sequence[tuple[int, int]], size: int
) -> None:
    """If they decode to other content, the id of the object reveals the damage."""
    data = bytearray(value.data)
    for at, byte in hits:
        data[at % len(data)] = byte
    damaged = Value(ID, value.payload, bytes(data[:size]))
    try:
        content = content_of_value(damaged)
    except RepositoryCorrupt as error:
        event("reported")
        assert ID in str(error)
    else:
        event("read")
        assert isinstance(content, Content)
        assert value_of_content(content).payload == value.payload


@given(
    st.sampled_from(VALUES),
    st.lists(st.tuples(st.integers(0, 150), st.integers(1, 255)), min_size=1, max_size=3),
    st.none() | st.integers(0, 150),
)
def test_damage_to_a_value_object_is_reported_with_its_id(
    value: Value, hits: Sequence[tuple[int, int]], size: int | None
) -> None:
    row = damaged(encode(value), hits, size)
    with pytest.raises(RepositoryCorrupt, match=value.id.hex()):
        decode(row)
