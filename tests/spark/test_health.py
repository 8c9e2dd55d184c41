"""The report on a lake: lost files, orphans, counts and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import morag
from morag import UDF, ContentKey, DeltaLakeTable, IcebergTable, IcebergView, Put
from morag.spark.diffs import changed_rows
from morag.spark.files import Files
from morag.spark.health import report, totals
from tests.spark.iceberg_lake import ROWS, Lake
from tests.spark.s3_buckets import bucket
from tests.spark.watched_jobs import all_watched

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from morag.spark.opening import Origin
    from morag.spark.progress import Progress


def test_lost_files_of_each_content_are_reported(
    spark: SparkSession, lake: Lake, origin: Origin, tmp_path: Path
) -> None:
    for name in ("well", "missing", "unreadable", "wrong", "no_data", "no_manifest"):
        lake.make(f"db.{name}", rows=2)
    lake.make("db.empty", rows=0)
    lake.grow("db.well", 3)
    # Some writers decode names.
    lake.create_table("db.decoded", ROWS, location=f"{lake.warehouse}/db/a%20b")
    lake.grow("db.decoded")
    _path(f"{lake.warehouse}/db/a%20b").rename(_path(f"{lake.warehouse}/db/a b"))
    # Some files of a manifest cannot be reached: they are links to themselves.
    for name, lost in (("no_way", 0), ("no_way_lost", 1)):
        lake.make(f"db.{name}", rows=9, properties={"write.target-file-size-bytes": "100"})
        out_of_reach, *others = _data(lake, f"db.{name}")
        out_of_reach.unlink()
        out_of_reach.symlink_to(out_of_reach)
        for other in others[:lost]:
            other.unlink()
    _path(lake.metadata_location("db.missing")).unlink()
    _path(lake.metadata_location("db.unreadable")).write_text("{}")
    table = lake.catalog.contents.get("main", ContentKey.of("db", "wrong"))
    assert isinstance(table, IcebergTable)
    delta = DeltaLakeTable(metadata_location_history=(f"{tmp_path}/nothing.json",))
    operations = [
        Put(ContentKey.of("db", "wrong"), morag.replace(table, snapshot_id=1)),
        Put(ContentKey.of("delta"), delta),
    ]
    lake.catalog.commit("main", operations, "a snapshot that is not there, and a log that is not")
    (data,) = lake.load_table("db.no_data").scan().plan_files()
    _path(data.file.file_path).unlink()
    snapshot = lake.load_table("db.no_manifest").current_snapshot()
    assert snapshot is not None
    _path(snapshot.manifest_list).unlink()

    reported: list[Progress] = []
    with all_watched(spark):
        found = report(spark, origin, deep=True, progress=reported.append)
    assert found.is_cached and {each.stage for each in reported} == {"report"}
    rows = {".".join(row.key): row for row in found.collect()}
    assert {name: row.status for name, row in rows.items()} == {
        "db": "OK",
        "db.decoded": "OK",
        "db.empty": "OK",
        "db.missing": "MISSING",
        "db.no_data": "BROKEN",
        "db.no_manifest": "BROKEN",
        "db.no_way": "UNREADABLE",
        "db.no_way_lost": "BROKEN",
        "db.unreadable": "UNREADABLE",
        "db.well": "OK",
        "db.wrong": "UNREADABLE",
        "delta": "MISSING",
    }
    assert "snapshot 1," in rows["db.wrong"].problem
    assert data.file.file_path in rows["db.no_data"].problem
    assert "symbolic links" in rows["db.no_way"].problem
    assert (rows["db.no_way"].missing_files, rows["db.no_way_lost"].missing_files) == (0, 1)
    well, empty = rows["db.well"], rows["db.empty"]
    assert (well.rows, well.files, well.snapshots, well.missing_files) == (5, 2, 2, 0)
    assert well.bytes > 0
    assert well.problem is None
    assert (empty.rows, empty.files, empty.bytes, empty.snapshots) == (0, 0, 0, 0)
    assert well.orphan_files is None
    summed = {(row.content_type, row.status): row for row in totals(found).collect()}
    assert summed["ICEBERG_TABLE", "OK"].contents == 3
    assert summed["ICEBERG_TABLE", "OK"].rows == 6
    assert summed["ICEBERG_TABLE", "BROKEN"].missing_files == 3
    found.unpersist()


def test_rare_kinds_of_contents_are_checked(
    spark: SparkSession, lake: Lake, origin: Origin, tmp_path: Path
) -> None:
    for name in ("view", "lost_view", "torn_view"):
        lake.make_view(f"db.{name}")
    _path(_location(lake, "lost_view")).unlink()
    _path(_location(lake, "torn_view")).write_text('{"location": "x"}')
    (tmp_path / "f.json").touch()
    functions = {
        "function": UDF(metadata_location=str(tmp_path / "f.json")),
        "lost_function": UDF(metadata_location=str(tmp_path / "g.json")),
        "plain_function": UDF(sql_text="1", dialect="spark"),
    }
    puts = [Put(ContentKey.of("db", name), function) for name, function in functions.items()]
    lake.catalog.commit("main", puts, "functions")
    for name in ("aged", "aged_broken", "equality"):
        lake.make(f"db.{name}", rows=2)
    _path(_manifests(lake, "db.aged_broken")[0]).unlink()
    lake.rewrite("db.equality", _add_deleted_rows)
    for name in ("aged", "aged_broken"):
        lake.name_manifests(f"db.{name}")

    rows = {row.key[-1]: row for row in report(spark, origin, deep=True).collect()}
    assert {name: row.status for name, row in rows.items()} == {
        "aged": "OK",
        "aged_broken": "BROKEN",
        "db": "OK",
        "equality": "OK",
        "function": "OK",
        "lost_function": "MISSING",
        "lost_view": "MISSING",
        "plain_function": "OK",
        "torn_view": "UNREADABLE",
        "view": "OK",
    }
    assert (rows["aged"].rows, rows["aged"].missing_files) == (2, 0)
    assert rows["aged_broken"].missing_files == 1
    assert (rows["equality"].rows, rows["equality"].files) == (None, 2)
    assert rows["view"].location == f"{lake.warehouse}/db/view"


def test_a_lake_on_s3_is_checked_with_the_given_options(
    spark: SparkSession, origin: Origin, lake: Lake
) -> None:
    with bucket("lake") as options:
        remote = Lake(lake.catalog, "s3://lake/warehouse", options=options)
        remote.make("db.well", rows=2)
        remote.make("db.broken", rows=1)
        (data,) = remote.load_table("db.broken").scan().plan_files()
        Files(options).delete(data.file.file_path)
        found = report(spark, origin, deep=True, files=options)
        rows = {row.key[-1]: row for row in found.collect()}
        well = ContentKey.of("db", "well")
        changes = changed_rows(spark, origin, "main~3", "main", well, files=options).collect()
    assert {name: row.status for name, row in rows.items()} == {
        "db": "OK",
        "well": "OK",
        "broken": "BROKEN",
    }
    assert (rows["well"].rows, rows["broken"].missing_files) == (2, 1)
    assert [change.word for change in changes] == ["word 1000", "word 1001"]


def _add_deleted_rows(metadata: dict[str, Any]) -> None:
    summary = metadata["snapshots"][-1]["summary"]
    summary |= {"total-equality-deletes": "1", "total-delete-files": "1"}


def _manifests(lake: Lake, name: str) -> list[str]:
    table = lake.load_table(name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [each.manifest_path for each in snapshot.manifests(table.io)]


def _data(lake: Lake, name: str) -> list[Path]:
    """The data files, in the order of the manifest."""
    tasks = lake.load_table(name).scan().plan_files()
    return [_path(task.file.file_path) for task in tasks]


def _location(lake: Lake, name: str) -> str:
    view = lake.catalog.contents.get("main", ContentKey.of("db", name))
    assert isinstance(view, IcebergView)
    return view.metadata_location


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
