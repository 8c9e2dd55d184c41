"""Content is stored as Nessie stores it, and read as it was stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from morag.errors import BadRequest, RepositoryCorrupt
from morag.model.content import (
    PAYLOADS,
    UDF,
    Content,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
)
from morag.persist.codec import decode, encode
from morag.persist.objects import Value
from morag.versions.contents import content_of_value, value_of_content
from morag.wire import bytes_field, int_field, text_field
from tests.format import golden
from tests.format.damaging import damaged

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


def test_values_of_the_original_are_made_again_byte_by_byte() -> None:
    kinds = set()
    for id, value in golden.of_kind(Value).items():
        content = content_of_value(value)
        kinds.add(type(content))
        again = value_of_content(content)
        assert (again, again.id) == (value, id)
    assert kinds == set(PAYLOADS), "the recording has every type of content"


def test_the_bytes_are_those_of_the_format() -> None:
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
def test_a_value_without_payload_tells_itself_what_it_is(content: Content) -> None:
    value = value_of_content(content)
    assert content_of_value(Value(value.content_id, 0, value.data)) == content


def test_an_old_metadata_pointer_is_a_table_of_which_little_is_known() -> None:
    data = bytes_field(1, text_field(1, "s3://b/m")) + text_field(5, ID)
    assert content_of_value(Value(ID, 0, data)) == IcebergTable(
        id=ID, metadata_location="s3://b/m", snapshot_id=0, schema_id=0, spec_id=0, sort_order_id=0
    )


def test_what_old_versions_stored_beside_a_table_is_left_alone() -> None:
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
def test_a_value_that_makes_no_sense_is_damage(value: Value) -> None:
    with pytest.raises(RepositoryCorrupt, match=ID):
        content_of_value(value)


VALUES = [value_of_content(c) for c in (TABLE, Namespace(id=ID, properties={"a": "b"}))]


@given(
    st.sampled_from(VALUES),
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 255)), max_size=3),
    st.integers(0, 100),
)
@example(VALUES[0], [], 3)
def test_damaged_bytes_are_content_or_damage_and_nothing_else(
    value: Value, hits: Sequence[tuple[int, int]], size: int
) -> None:
    """Where another content can be read: that its object is damaged shows by the object's id."""
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
