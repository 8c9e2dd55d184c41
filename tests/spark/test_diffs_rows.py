"""Rows that differ between two states of a table."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType

import morag
from morag import ContentKey, IcebergTable
from morag.spark import CannotRun
from morag.spark.row_changes import CHANGE, rows_between
from tests.spark.iceberg_lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession


ITEMS = pa.schema([pa.field("id", pa.int32()), pa.field("word", pa.string())])


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with morag.open("memory:") as repository:
        yield Lake(repository, (tmp_path / "lake").as_uri())


def test_equal_rows_are_counted(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("db.items", ITEMS)
    table.append(_items((1, "one"), (2, "two"), (2, "two"), (3, "three")))
    old = _content(lake, "db.items")
    table.overwrite(_items((1, "one"), (2, "two"), (4, "four"), (4, "four")))
    new = _content(lake, "db.items")
    assert _sorted_rows(rows_between(spark, old, new)) == [
        ("ADDED", 4, "four"),
        ("ADDED", 4, "four"),
        ("REMOVED", 2, "two"),
        ("REMOVED", 3, "three"),
    ]


def test_files_that_both_states_have_are_not_read(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("db.items", ITEMS)
    table.append(_items((1, "one")))
    old = _content(lake, "db.items")
    table.append(_items((2, "two")))
    (shared,) = table.scan(snapshot_id=old.snapshot_id).plan_files()
    Path(shared.file.file_path.removeprefix("file://")).unlink()
    assert _sorted_rows(rows_between(spark, old, _content(lake, "db.items"))) == [
        ("ADDED", 2, "two")
    ]


def test_a_table_without_snapshots_has_no_rows(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("db.items", ITEMS)
    empty = _content(lake, "db.items")
    assert empty.snapshot_id == -1
    table.append(_items((1, "one")))
    full = _content(lake, "db.items")
    assert _sorted_rows(rows_between(spark, full, empty)) == [("REMOVED", 1, "one")]


def test_all_rows_of_a_dropped_table_are_removed(spark: SparkSession, lake: Lake) -> None:
    lake.create_table("db.items", ITEMS).append(_items((1, "one")))
    table = _content(lake, "db.items")
    assert _sorted_rows(rows_between(spark, table, None)) == [("REMOVED", 1, "one")]
    with pytest.raises(CannotRun, match="Neither state has a table"):
        rows_between(spark, None, None)


def test_columns_are_identified_by_their_ids(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("db.items", ITEMS)
    table.append(_items((1, "one"), (2, "two")))
    old = _content(lake, "db.items")
    with table.update_schema() as update:
        update.rename_column("word", "text")
        update.update_column("id", LongType())
        update.add_column("note", StringType())
    rows = {"id": [1, 2], "text": ["one", "two"], "note": [None, "new"]}
    table.overwrite(pa.table(rows, table.schema().as_arrow()))
    new = _content(lake, "db.items")
    assert _sorted_rows(rows_between(spark, old, new)) == [
        ("ADDED", 2, "two", "new"),
        ("REMOVED", 2, "two", None),
    ]
    # In the reverse direction, the older names and columns and the wider type count.
    assert _sorted_rows(rows_between(spark, new, old)) == []


def test_a_changed_row_is_shown_before_and_after(spark: SparkSession, lake: Lake) -> None:
    table = lake.create_table("db.items", ITEMS)
    table.append(_items((1, "one"), (2, "two"), (3, "three")))
    old = _content(lake, "db.items")
    table.overwrite(_items((1, "one"), (2, "zwei"), (4, "four")))
    new = _content(lake, "db.items")
    assert _sorted_rows(rows_between(spark, old, new, on=["id"])) == [
        ("ADDED", 4, "four"),
        ("AFTER", 2, "zwei"),
        ("BEFORE", 2, "two"),
        ("REMOVED", 3, "three"),
    ]
    with pytest.raises(CannotRun, match="no such column"):
        rows_between(spark, old, new, on=["nr"])


def test_another_table_of_the_same_name_is_compared_by_names(
    spark: SparkSession, lake: Lake
) -> None:
    lake.create_table("db.items", ITEMS).append(_items((1, "one"), (2, "two")))
    old = _content(lake, "db.items")
    lake.drop("db.items")
    swapped = pa.schema([ITEMS.field("word"), ITEMS.field("id")])
    lake.create_table("db.items", swapped).append(
        pa.table({"word": ["one", "three"], "id": [1, 3]}, swapped)
    )
    new = _content(lake, "db.items")
    assert old.id != new.id
    changes = rows_between(spark, old, new).select(CHANGE, "id", "word")
    assert _sorted_rows(changes) == [("ADDED", 3, "three"), ("REMOVED", 2, "two")]


def test_rows_of_all_types_can_be_compared(spark: SparkSession, lake: Lake) -> None:
    schema = pa.schema(
        [
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("day", pa.date32()),
            pa.field("price", pa.decimal128(9, 2)),
            pa.field("raw", pa.binary()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("counts", pa.map_(pa.string(), pa.int64())),
            pa.field("place", pa.struct({"x": pa.float64(), "y": pa.float32()})),
            pa.field("yes", pa.bool_()),
        ]
    )
    table = lake.create_table("db.wide", schema)
    row = {
        "at": 1_700_000_000_000_000,
        "local": 1,
        "day": 3,
        "price": Decimal("1.25"),
        "raw": b"\x00\xff",
        "tags": ["a", None],
        "counts": [("a", 1), ("b", None)],
        "place": {"x": float("nan"), "y": None},
        "yes": True,
    }
    other = row | {"yes": False}
    nothing = dict.fromkeys(row)
    table.append(_table([row, nothing], schema))
    old = _content(lake, "db.wide")
    table.overwrite(_table([row, nothing, other], schema))
    (found,) = rows_between(spark, old, _content(lake, "db.wide")).collect()
    assert (found[CHANGE], found.yes) == ("ADDED", False)
    assert found.counts == {"a": 1, "b": None}
    assert found.tags == ["a", None]
    assert found.raw == b"\x00\xff"
    assert str(found.price) == "1.25"
    assert found.local == datetime(1970, 1, 1, microsecond=1)  # noqa: DTZ001 - It has no zone.


def _table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)


def _items(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": id, "word": word} for id, word in rows], ITEMS)


def _content(lake: Lake, name: str) -> IcebergTable:
    content = lake.catalog.contents.get(lake.branch, ContentKey.of(*name.split(".")))
    assert isinstance(content, IcebergTable)
    return content


def _sorted_rows(rows: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows.collect()), key=repr)
