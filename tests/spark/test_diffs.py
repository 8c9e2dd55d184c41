"""Differences of tables between two references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

import morag
from morag import ContentKey, ContentNotFound, DeltaLakeTable, Namespace, Put
from morag.spark import CannotRun
from morag.spark.content_comparison import compare
from morag.spark.content_state import Size, SnapshotInfo, State
from morag.spark.diffs import changed_rows, diff
from morag.spark.schema_changes import schema_changes
from tests.spark.watched_jobs import all_watched

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from morag.spark.opening import Origin
    from morag.spark.progress import Progress
    from tests.spark.iceberg_lake import Lake


INT, LONG, TEXT = IntegerType(), LongType(), StringType()


def test_changes_of_columns_are_described() -> None:
    before = Schema(
        NestedField(1, "id", INT, required=True),
        NestedField(2, "word", TEXT),
        NestedField(3, "place", StructType(NestedField(4, "x", INT), NestedField(5, "y", INT))),
        NestedField(6, "tags", ListType(7, StructType(NestedField(8, "tag", TEXT)))),
        NestedField(9, "gone", MapType(10, TEXT, 11, LONG)),
    )
    after = Schema(
        NestedField(2, "text", TEXT, doc="what it says"),
        NestedField(1, "id", LONG),
        NestedField(3, "place", StructType(NestedField(5, "y", INT), NestedField(4, "left", INT))),
        NestedField(6, "tags", ListType(7, StructType(NestedField(8, "tag", TEXT)))),
        NestedField(12, "new", StructType(NestedField(13, "inside", LONG)), required=True),
        identifier_field_ids=[],
    )
    assert schema_changes(before, after) == [
        "dropped gone map<string, long>",
        "added new struct<13: inside: optional long> required",
        "changed id from int to long",
        "made id optional",
        "renamed word to text",
        "described text: what it says",
        "renamed place.x to place.left",
        "reordered columns",
        "reordered columns of place",
    ]
    assert schema_changes(before, before) == []


def test_rows_may_be_identified_by_other_columns() -> None:
    fields = [NestedField(1, "a", INT, required=True), NestedField(2, "b", INT, required=True)]
    before = Schema(*fields, identifier_field_ids=[1])
    after = Schema(*fields, identifier_field_ids=[1, 2])
    assert schema_changes(before, after) == ["identified rows by a, b instead of a"]
    assert schema_changes(before, Schema(*fields)) == ["identified rows by nothing instead of a"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (3, 3, ("SAME", ())),
        (1, 3, ("AHEAD", ("overwrite", "delete"))),
        (3, 1, ("BEHIND", ())),
        (3, 5, ("DIVERGED", ("replace", "unknown"))),
        (3, 9, ("UNRELATED", ())),
        (-1, 3, ("AHEAD", ("append", "overwrite", "delete"))),
        (3, -1, ("BEHIND", ())),
    ],
)
def test_snapshots_are_related_by_their_parents(
    old: int, new: int, expected: tuple[str, Any]
) -> None:
    #  1 - 2 - 3,  1 - 4 - 5,  9
    known = {
        1: SnapshotInfo(None, "append"),
        2: SnapshotInfo(1, "overwrite"),
        3: SnapshotInfo(2, "delete"),
        4: SnapshotInfo(1, "replace"),
        5: SnapshotInfo(4, None),
        9: SnapshotInfo(8, "append"),  # Its parent has expired.
    }
    found = compare(
        State(snapshot_id=old, snapshots=known), State(snapshot_id=new, snapshots=known)
    )
    assert (found.history, found.operations) == expected


def test_a_missing_side_is_not_compared() -> None:
    size = Size(3, 1, 100)
    found = compare(None, State(snapshot_id=1, size=size, facts={"location": "a"}))
    assert (found.new, found.old, found.history) == (size, Size(), None)
    assert found.other_changes == ()


def test_properties_that_nessie_writes_for_itself_are_ignored() -> None:
    old, new = (
        State(snapshot_id=1, facts={"property nessie.commit.id": id, "property owner": id})
        for id in ("a", "b")
    )
    assert compare(old, new).other_changes == ("changed property owner from a to b",)


def test_every_kind_of_change_is_found_in_metadata_alone(
    spark: SparkSession, lake: Lake, origin: Origin
) -> None:
    lake.make("db.grown", rows=3)
    lake.make("db.old_name")
    lake.make("db.dropped", rows=2)
    lake.make("db.lost")
    lake.make("db.same")
    repository = lake.catalog
    repository.commit("main", [Put(ContentKey.of("log"), _delta("1.json"))], "a Delta table")
    repository.references.create_branch("dev", at="main")
    dev = lake.on("dev")
    dev.grow("db.grown", 4)
    dev.grow("db.grown", 5)
    with dev.load_table("db.grown").update_schema() as update:
        update.rename_column("word", "text")
    with dev.load_table("db.grown").transaction() as change:
        change.set_properties(owner="me")
    dev.rename("db.old_name", "db.new_name")
    dev.drop("db.dropped")
    dev.make("db.dropped", rows=1)
    dev.grow("db.lost")
    dev.make("db.added", rows=6)
    namespace = repository.contents.get("dev", ContentKey.of("db"))
    assert isinstance(namespace, Namespace)
    changed = morag.replace(namespace, properties={"team": "sales"})
    kept = repository.contents.get("dev", ContentKey.of("log"))
    logged = morag.replace(kept, metadata_location_history=("1.json", "2.json"))
    operations = [Put(ContentKey.of("db"), changed), Put(ContentKey.of("log"), logged)]
    repository.commit("dev", operations, "more")
    for location in (lake.warehouse, lake.warehouse):
        for data in Path(location.removeprefix("file://")).rglob("*.parquet"):
            data.unlink()  # None of them is needed.
    Path(dev.metadata_location("db.lost").removeprefix("file://")).unlink()

    found = {".".join(row.key): row for row in diff(spark, origin, "main", "dev").collect()}
    assert {name: row.change for name, row in found.items()} == {
        "db": "CHANGED",
        "db.added": "ADDED",
        "db.dropped": "REPLACED",
        "db.grown": "CHANGED",
        "db.lost": "CHANGED",
        "db.new_name": "RENAMED",
        "log": "CHANGED",
    }
    grown = found["db.grown"]
    assert grown.schema_changes == ["renamed word to text"]
    assert grown.other_changes == ["added property owner: me"]
    assert (grown.history, grown.operations) == ("AHEAD", ["append", "append"])
    assert _counts(grown) == (3, 12, 1, 3)
    assert grown.to_bytes > grown.from_bytes > 0
    assert grown.to_metadata_location == dev.metadata_location("db.grown")
    assert found["db.new_name"].old_key == ["db", "old_name"]
    assert found["db.new_name"].history == "SAME"
    assert _counts(found["db.dropped"]) == (2, 1, 1, 1)
    assert found["db.dropped"].history == "UNRELATED"
    assert _counts(found["db.added"]) == (None, 6, None, 1)
    assert found["db"].other_changes == ["added property team: sales"]
    assert found["log"].other_changes == ["changed log files from 1 to 2"]
    assert "lost" in found["db.lost"].problem
    assert {row.problem for name, row in found.items() if name != "db.lost"} == {None}


def test_rows_of_a_renamed_table_are_found_and_progress_is_reported(
    spark: SparkSession, lake: Lake, origin: Origin
) -> None:
    lake.make("db.old_name", rows=2)
    lake.catalog.references.create_branch("dev", at="main")
    dev = lake.on("dev")
    dev.rename("db.old_name", "db.new_name")
    dev.grow("db.new_name", 1)
    reported: list[Progress] = []
    renamed = ContentKey.of("db", "new_name")
    with all_watched(spark):
        rows = changed_rows(spark, origin, "main", "dev", renamed, progress=reported.append)
        found = diff(spark, origin, "main", "dev", progress=reported.append)
    assert rows.is_cached and found.is_cached
    assert [row._change for row in rows.collect()] == ["ADDED"]
    assert [row.change for row in found.collect()] == ["RENAMED"]
    assert {each.stage for each in reported} == {"rows", "diff"}
    for frame in (rows, found):
        frame.unpersist()


def test_contents_without_rows_are_refused(spark: SparkSession, lake: Lake, origin: Origin) -> None:
    lake.make("db.table", rows=0)
    with pytest.raises(ContentNotFound, match=r"has a table 'db\.nothing'"):
        changed_rows(spark, origin, "main", "main", ContentKey.of("db", "nothing"))
    with pytest.raises(CannotRun, match="NAMESPACE and has no rows"):
        changed_rows(spark, origin, "main", "main", ContentKey.of("db"))


def _counts(row: Row) -> tuple[int | None, ...]:
    return row.from_rows, row.to_rows, row.from_files, row.to_files


def _delta(*history: str) -> DeltaLakeTable:
    return DeltaLakeTable(metadata_location_history=history)
