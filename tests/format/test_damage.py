"""Rows that were damaged on disk are reported as damage, whatever is wrong with them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morag.backend.base import ObjId, Row
from morag.errors import RepositoryCorrupt
from morag.index.segment import Segment
from morag.persist import codec
from morag.persist.objects import Commit, Index, Tag
from morag.wire import bytes_field, int_field, text_field
from tests.format import golden

ID = ObjId(b"\x01" * 32)
TAG = Tag("m", (("a", ("b", "c")),), b"signature")


def one_of_each() -> list[Row]:
    """The smallest row of every kind. The server writes no tags, so that one is ours."""
    smallest = {r.kind: r for r in sorted(golden.rows(), key=lambda r: -len(r.data))}
    return [*smallest.values(), codec.encode(TAG)]


@settings(max_examples=400)
@given(
    st.sampled_from(one_of_each()),
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=3),
    st.none() | st.integers(0, 1000),
)
def test_a_damaged_object_is_reported_as_damage(
    row: Row, hits: list[tuple[int, int]], size: int | None
) -> None:
    data = bytearray(row.data)
    for at, byte in hits:
        data[at % len(data)] = byte
    with suppress(RepositoryCorrupt):
        obj = codec.decode(Row(row.id, row.kind, bytes(data[:size])))
        # What could be read has an id and can be written.
        assert len(obj.id) == 32
        codec.encode(obj)
        if isinstance(obj, Commit):
            Segment.decode(obj.incremental)
        if isinstance(obj, Index):
            Segment.decode(obj.encoded)


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("x", b"", "unknown kind 'x'"),
        ("v", b"", "Value"),
        ("v", bytes_field(6, b""), "field 6"),
        ("v", int_field(4, 1), "field 4"),
        ("v", bytes_field(4, b"") * 2, "Value"),
        ("v", bytes_field(4, bytes_field(4, b"")), "field 4 is not known"),
        ("v", bytes_field(4, int_field(1, 5)), "a number stands where bytes belong"),
        ("v", bytes_field(4, bytes_field(2, b"")), "bytes stand where a number belongs"),
        ("v", bytes_field(4, int_field(2, 128)), "payload 128"),
        ("v", bytes_field(4, b"\x10" + b"\xff" * 9 + b"\x7f"), "64 bits"),
        ("v", bytes_field(4, b"\x10" + b"\xff" * 11), "varint"),
        ("v", bytes_field(4, b"\x09"), "wire type 1"),
        ("v", b"\x22\x05", "cut short"),
        ("r", bytes_field(3, bytes_field(1, b"\xff")), "utf-8"),
        ("s", bytes_field(7, int_field(2, 9)), "Compression"),
        ("c", bytes_field(2, int_field(11, 1)), "no parent"),
        ("c", bytes_field(2, bytes_field(3, ID) + int_field(11, 0)), "CommitKind"),
        ("c", bytes_field(2, bytes_field(3, ID) + int_field(12, 0)), "field 12"),
        ("t", bytes_field(8, text_field(1, "a")), "field 1"),
    ],
)
def test_damage_is_explained_with_the_id(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(RepositoryCorrupt, match=reason) as raised:
        codec.decode(Row(ID, kind, data))
    assert ID.hex() in str(raised.value)


def test_a_tag_is_read_as_it_was_written() -> None:
    assert codec.decode(codec.encode(TAG)) == TAG
    assert codec.decode(codec.encode(Tag())) == Tag()
