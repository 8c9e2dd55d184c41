"""Columns of entries hold the same data as the entries themselves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import morag
from morag import (
    UDF,
    BadRequest,
    ContentKey,
    DeltaLakeTable,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
    RepositoryCorrupt,
    Settings,
)
from morag.format.content_rows import content_of_row
from morag.format.content_values import content_of_value, value_of_content
from morag.format.object_codec import decode, encode
from morag.format.objects import Value
from morag.model.entry_columns import EntryFilter, KeySpan, path_of_key
from morag.model.results import Entry
from morag.versions.columns import path_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag import Repository
    from morag.backend.base import Row
    from morag.index.keys import KeyRange
    from morag.model.content import Content

INT32 = st.integers(-(1 << 31), (1 << 31) - 1) | st.integers(0, 200)
TABLES = st.builds(
    IcebergTable,
    id=st.uuids().map(str) | st.text(min_size=1, max_size=50),
    metadata_location=st.text(max_size=200) | st.sampled_from(["x" * 127, "x" * 128, "x" * 5000]),
    snapshot_id=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-1, 1),
    schema_id=INT32,
    spec_id=INT32,
    sort_order_id=INT32,
)
ID = "12345678-1234-1234-1234-123456789abc"
OTHERS: list[Content] = [
    IcebergView(id=ID, metadata_location="v", version_id=1, schema_id=1),
    DeltaLakeTable(id=ID, metadata_location_history=("a",)),
    Namespace(id=ID, elements=("a", "b"), properties={"p": "q"}),
    UDF(id=ID, sql_text="1"),
]


@given(TABLES)
def test_the_fast_decoder_reads_a_table(table: IcebergTable) -> None:
    assert content_of_row(_row(table)) == table


@pytest.mark.parametrize("content", OTHERS)
def test_the_fast_decoder_reads_other_content(content: Content) -> None:
    assert content_of_row(_row(content)) == content


@given(TABLES, st.data())
def test_the_fast_decoder_treats_damage_like_the_full_decoder(
    table: IcebergTable, data: st.DataObject
) -> None:
    row = _row(table)
    at = data.draw(st.integers(0, min(len(row.data), 150) - 1))
    byte = data.draw(st.integers(0, 255))
    longer = data.draw(st.sampled_from([b"", b"", b"\0", b"*$"]))
    broken = row.data[:at] + bytes([byte]) + longer + row.data[at + 1 :]
    row = msgspec.structs.replace(row, data=broken)
    expected = _outcome(lambda: content_of_value(_value(row)))
    event("read" if not isinstance(expected, type) else expected.__name__)
    assert _outcome(lambda: content_of_row(row)) == expected


@pytest.mark.parametrize("longer", [b"", b"x", b"xx"])
def test_sizes_of_every_length_are_checked(longer: bytes) -> None:
    for length in range(300):
        row = _row(msgspec.structs.replace(_table(1), id=ID, metadata_location="x" * length))
        row = msgspec.structs.replace(row, data=row.data.replace(b"*$", longer + b"*$"))
        assert _outcome(lambda row=row: content_of_row(row)) == _outcome(
            lambda row=row: content_of_value(_value(row))
        )


@pytest.fixture(scope="module")
def repo() -> Iterator[Repository]:
    small = Settings(
        max_incremental_index_bytes=1024, min_index_segment_bytes=512, max_index_segment_bytes=2048
    )
    with morag.open("memory:", small) as repo:
        repo.commit("main", [Put(ContentKey.of(n), Namespace.of(n)) for n in "abc"], "spaces")
        for start in range(0, 300, 60):
            puts = [
                Put(ContentKey.of("abc"[n % 3], f"t{n:03}"), _table(n))
                for n in range(start, start + 60)
            ]
            repo.commit("main", puts, "tables")
        repo.commit("main", [Put(ContentKey.of("b", "ü"), _table(1))], "a late one")
        yield repo


@pytest.mark.parametrize("with_content", [True, False])
def test_columns_hold_all_entries(repo: Repository, with_content: bool) -> None:
    found = list(repo.contents.columns("main", with_content=with_content))
    rows = [
        row for some in found for row in zip(some.paths, some.types, some.content_ids, strict=True)
    ]
    entries = list(repo.contents.entries("main", with_content=with_content))
    assert rows == [("\x01".join(e.key.elements), e.type, e.content_id) for e in entries]
    if with_content:
        assert [c for some in found for c in some.contents or ()] == [e.content for e in entries]
    else:
        assert all(some.contents is None for some in found)


KEYS = st.builds(
    ContentKey.of, st.sampled_from(["a", "b", "c"]), st.text("t0123ü", max_size=4, min_size=1)
)


@given(
    st.none() | KEYS,
    st.none() | KEYS,
    st.sampled_from(["", "a", "b\x01", "b\x01t1", "b\x01ü", "x"]),
)
def test_a_range_limits_the_entries(
    repo: Repository, first: ContentKey | None, before: ContentKey | None, below: str
) -> None:
    span = KeySpan(first, before, below)
    cut = repo.contents.columns("main", span=span)
    expected = [
        path
        for key in repo.contents.keys("main")
        if (path := "\x01".join(key.elements)).startswith(below)
        and (first is None or not key < first)
        and (before is None or key < before)
    ]
    event("nothing" if not expected else "something")
    assert [path for some in cut for path in some.paths] == expected
    assert not (span.is_empty and expected)
    assert span.is_empty or not _is_empty(path_range(span))
    listed = [Entry(key, "", "") for key in repo.contents.keys("main", min_key=span.start)]
    assert [path_of_key(entry.key) for entry in span.cut(listed)] == expected


def test_entries_outside_the_filter_are_left_out(repo: Repository) -> None:
    tables = EntryFilter(
        types=frozenset({"ICEBERG_TABLE"}),
        names=frozenset({"b", *(f"t{number:03}" for number in range(7, 300, 10))}),
    )
    found = repo.contents.columns("main", with_content=True, selected=tables)
    paths = [path for some in found for path in some.paths]
    assert len(paths) == 30
    assert all(path.endswith("7") for path in paths)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 1000])
def test_splits_cut_into_ranges_of_about_the_same_size(repo: Repository, parts: int) -> None:
    cuts = repo.contents.splits("main", parts)
    assert list(cuts) == sorted(set(cuts))
    bounds = (None, *cuts, None)
    sizes = []
    for first, before in pairwise(bounds):
        cut = repo.contents.columns("main", span=KeySpan(first, before))
        sizes.append(sum(len(some.paths) for some in cut))
    assert sum(sizes) == 304 and min(sizes) > 0
    assert len(sizes) == parts if parts < 8 else 8 < len(sizes) < 100
    assert max(sizes) <= 3 * 304 / len(sizes) + 1


def test_a_small_index_is_not_split() -> None:
    with morag.open("memory:") as repo:
        assert repo.contents.splits("main", 8) == ()
        repo.commit("main", [Put(ContentKey.of(f"t{n}"), _table(n)) for n in range(9)], "few")
        assert repo.contents.splits("main", 8) == ()
        with pytest.raises(BadRequest, match="at least one part"):
            repo.contents.splits("main", 0)


def test_reversed_bounds_make_an_empty_range() -> None:
    cut = path_range(KeySpan(ContentKey.of("b"), ContentKey.of("a")))
    assert cut.upper is not None and cut.lower > cut.upper


def _is_empty(range: KeyRange) -> bool:
    return range.upper is not None and range.lower >= range.upper


def _table(number: int) -> IcebergTable:
    return IcebergTable(
        metadata_location=f"{number}", snapshot_id=number, schema_id=0, spec_id=0, sort_order_id=0
    )


def _row(content: Content) -> Row:
    return encode(value_of_content(content))


def _value(row: Row) -> Value:
    value = decode(row)
    assert isinstance(value, Value)
    return value


def _outcome(read: object) -> object:
    assert callable(read)
    try:
        return read()
    except (RepositoryCorrupt, ValueError) as error:
        return type(error)
