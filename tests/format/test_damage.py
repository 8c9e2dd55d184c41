"""Damaged rows are reported as damage, whatever part of them is damaged."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from morag.config import Settings
from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.index_entries import ADD, content_id_of, is_current
from morag.format.objects import Commit, Obj, RefObj, StringObj, Tag
from morag.format.proof import is_proven
from morag.format.records import ObjId, Row
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.protobuf import bytes_field, int_field, text_field
from tests.format import golden

ID = ObjId(b"\x01" * 32)
TAG = Tag("m", (("a", ("b", "c")),), b"signature")


def one_of_each() -> list[Row]:
    """The smallest row of every kind. Nessie writes no tags, so Morag encodes that one."""
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
    try:
        obj = codec.decode(Row(row.id, row.kind, bytes(data[:size])))
    except RepositoryCorrupt as error:
        event("reported")
        assert row.id.hex() in str(error)
        assert "backup" in str(error)
        return
    if isinstance(obj, Commit) and not is_proven(obj):
        event("a commit that is not proven")
        return
    if isinstance(obj, Commit) and not has_readable_index(obj):
        event("an index that is reported when it is used")
        with pytest.raises(RepositoryCorrupt, match=row.id.hex()):
            index_of(golden.store(Settings()), obj)
        return
    event("no damage that the id covers")
    assert covered(obj) == covered(codec.decode(row))


def has_readable_index(commit: Commit) -> bool:
    try:
        Segment.decode(commit.incremental)
    except UNREADABLE:
        return False
    return True


def covered(obj: Obj) -> object:
    """The fields that an id covers. docs/stores.md lists the others.

    Names and values of headers are hashed without separators.
    """
    if isinstance(obj, Commit):
        headers = "".join([part for name, values in obj.headers for part in (name, *values)])
        operations = [
            (key, op if op[:1] == ADD else op[:2] + content_id_of(op))
            for key, op in Segment.decode(obj.incremental).items()
            if is_current(op)
        ]
        return obj.id, obj.parent, obj.message + headers, operations
    if isinstance(obj, RefObj):
        return obj.id, obj.name, obj.initial_pointer, obj.created_micros
    if isinstance(obj, Tag | StringObj):
        return obj.id  # Several fields are hashed without separators.
    return obj


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
