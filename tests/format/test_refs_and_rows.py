"""Refs and rows: recorded bytes of Nessie, round trips, and damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from morag.errors import RepositoryCorrupt
from morag.format.records import ObjId, PreviousPointer, Ref, Row
from morag.format.refs import (
    _columns,
    _refs,
    decode_previous,
    decode_ref,
    encode_previous,
    encode_ref,
)
from morag.format.rows import decode_row, encode_row, refreshed, without_referenced
from morag.protobuf import bytes_field, int_field, text_field
from morag.testing.backend_contract import PREVIOUS, a_custom_row, a_row, an_id

GOLDEN = Path(__file__).parents[1] / "data" / "golden-refs.jsonl"
"""The table refs2 of a PostgreSQL database that Nessie wrote."""

ids = st.binary(min_size=1, max_size=40).map(ObjId)
micros = st.integers(0, 2**63 - 1)
refs = st.builds(
    Ref,
    name=st.text(min_size=1),
    pointer=ids,
    deleted=st.booleans(),
    created_micros=micros,
    extended_info=st.none() | ids,
    previous=st.lists(st.builds(PreviousPointer, ids, micros), max_size=20).map(tuple),
)


def golden_refs() -> list[dict[str, Any]]:
    records = [json.loads(text) for text in GOLDEN.read_text().splitlines()]
    return [
        {name: bytes.fromhex(v["hex"]) if isinstance(v, dict) else v for name, v in record.items()}
        for record in records
    ]


@pytest.fixture(autouse=True)
def forget_recent_refs() -> None:
    """Otherwise decoding would return the object that was just encoded."""
    _refs.clear()
    _columns.clear()


@pytest.mark.parametrize("record", golden_refs(), ids=lambda record: record["ref_name"])
def test_recorded_previous_pointers_are_encoded_to_the_same_bytes(
    record: dict[str, Any],
) -> None:
    previous = decode_previous(record["prev_ptr"])
    _columns.clear()
    assert encode_previous(previous) == record["prev_ptr"]
    assert (previous == ()) == (record["prev_ptr"] is None)
    assert all(len(entry.pointer) == 32 for entry in previous)
    times = [entry.until_micros for entry in previous]
    assert times == sorted(times, reverse=True), "the newest must come first"
    assert all(time >= record["created_at"] for time in times)


def test_some_recorded_rows_have_the_largest_number_of_previous_pointers() -> None:
    assert max(len(decode_previous(record["prev_ptr"])) for record in golden_refs()) == 20


@given(refs)
def test_a_ref_survives_encoding_and_decoding(ref: Ref) -> None:
    data = encode_ref(ref)
    assert decode_ref(data) == ref
    _refs.clear()
    assert decode_ref(data) == ref


@given(refs)
def test_previous_pointers_survive_encoding_and_decoding(ref: Ref) -> None:
    column = encode_previous(ref.previous)
    _columns.clear()
    assert decode_previous(column) == ref.previous


def test_unset_fields_of_a_ref_are_not_written() -> None:
    assert encode_ref(Ref("n", ObjId(b"p"))) == text_field(1, "n") + bytes_field(2, b"p")
    full = Ref("n", ObjId(b"p"), True, 5, ObjId(b"i"), PREVIOUS[:1])
    assert encode_ref(full) == b"".join(
        [
            text_field(1, "n"),
            bytes_field(2, b"p"),
            int_field(3, 1),
            int_field(4, 5),
            bytes_field(5, b"i"),
            bytes_field(
                6, bytes_field(1, PREVIOUS[0].pointer) + int_field(2, PREVIOUS[0].until_micros)
            ),
        ]
    )


@pytest.mark.parametrize("name_length", [10, 10_000])
def test_the_memory_of_remembered_refs_is_limited(name_length: int) -> None:
    most = 0
    for n in range(2_000_000 // name_length):
        encode_ref(Ref(f"{n}".rjust(name_length, "x"), an_id(n)))
        if n % 1000 == 0 or name_length > 1000:
            most = max(most, sum(map(len, _refs)))
    assert 900_000 < most < 1_100_000


@given(ids, st.binary(max_size=300), st.none() | st.text(), st.integers(-1, 2**63 - 1))
def test_a_custom_row_survives_encoding_and_decoding(
    id: ObjId, text: bytes, version: str | None, time: int
) -> None:
    row = a_custom_row(id, version, text, time)
    assert decode_row(id, encode_row(row)) == row


def test_a_new_time_changes_no_other_field() -> None:
    for row in (a_row(1, micros=1000), a_custom_row(b"c", "v"), a_custom_row(b"c", None)):
        message = encode_row(row)
        later = refreshed(row.id, message, 2**50)
        assert decode_row(row.id, later) == Row(row.id, row.kind, row.data, row.version, 2**50)
        assert later.startswith(without_referenced(row.id, message))


@pytest.mark.parametrize(
    "cut", [b"", b"\x22", b"\x22\x05abc", b"\x22\x01a\x58", b"\x4a\x02\x0a\x05"]
)
def test_a_damaged_object_is_reported_with_its_id(cut: bytes) -> None:
    with pytest.raises(RepositoryCorrupt, match="6964"):
        decode_row(ObjId(b"id"), cut)


WHOLE = encode_ref(Ref("main", an_id(1), True, 5, an_id(2), PREVIOUS))
COLUMN = encode_previous(PREVIOUS) or b""


@pytest.mark.parametrize(
    "damage",
    [b"", b"\x0a", b"\x0a\x05ab", b"\x0a\x01\xff\x12\x01p", b"\x0b", b"\xff" * 12, WHOLE[:-1]],
)
def test_a_damaged_ref_is_reported_with_its_name(damage: bytes) -> None:
    with pytest.raises(RepositoryCorrupt, match="'main'"):
        decode_ref(damage, "main")
    with pytest.raises(RepositoryCorrupt, match="A stored reference"):
        decode_ref(damage)


@pytest.mark.parametrize("damage", [b"\x05", b"\x05ab", b"\x01\x0a", b"\xff" * 12, COLUMN[:-1]])
def test_a_damaged_column_is_reported_with_the_name_of_its_ref(damage: bytes) -> None:
    with pytest.raises(RepositoryCorrupt, match="'main'"):
        decode_previous(damage, "main")


@given(st.binary(max_size=60) | st.integers(0, len(WHOLE)).map(lambda size: WHOLE[:size]))
def test_any_stored_bytes_decode_or_are_reported(data: bytes) -> None:
    codecs: tuple[Any, ...] = ((decode_ref, encode_ref), (decode_previous, encode_previous))
    for decode, encode in codecs:
        try:
            decoded = decode(data)
        except RepositoryCorrupt:
            event(f"{decode.__name__} fails")
        else:
            event(f"{decode.__name__} succeeds")
            assert decode(encode(decoded)) == decoded


def test_an_object_of_an_unknown_kind_is_reported() -> None:
    with pytest.raises(RepositoryCorrupt):
        decode_row(ObjId(b"id"), bytes_field(12, b"from the future"))
