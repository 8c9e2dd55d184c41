"""Where garbage is looked for, and what is passed over there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from morag.spark import CannotRun, gc
from morag.spark.files import Files
from morag.spark.gc.listing import found_below
from tests.spark.buckets import bucket, put
from tests.spark.scene import Scene, paths

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.

_LISTED = Row("path", "size_bytes", "modified_micros", "location")


def test_dropped_tables_are_looked_for_only_where_nobody_else_is(scene: Scene) -> None:
    shared = {
        f"write.{kind}.path": f"{scene.warehouse.as_uri()}/shared/{kind}"
        for kind in ("metadata", "data")
    }
    scene.lake.make("db.known", properties=shared)
    scene.lake.make("db.own")
    scene.lake.make("db.bad")
    scene.lake.make("db.sharing", properties=shared)
    locations = {
        name: scene.lake.metadata_location(f"db.{name}") for name in ("own", "bad", "sharing")
    }
    for name in ("known", *locations):
        scene.lake.drop(f"db.{name}")
    for location in locations.values():
        _path(location).unlink()
    _path(locations["bad"]).mkdir()
    for name in ("0.parquet", "data/1.parquet", "metadata/2.json"):
        _write(scene.warehouse / "shared" / name)
    _write(scene.warehouse / "db" / "sharing" / "3.parquet")
    stray = _write(scene.warehouse / "db" / "known" / "4.parquet")
    scene.age()
    run = scene.collect(cutoff="1")
    assert paths(run.orphans) == {
        stray.as_uri(),
        *(each for each in scene.files() if "/db/own/" in each or "/db/bad/" in each),
    }


def test_a_location_is_listed_once_by_whatever_names_and_without_what_is_hidden(
    scene: Scene, tmp_path: Path
) -> None:
    scene.lake.make("db.t")
    table, link = scene.warehouse / "db" / "t", tmp_path / "link"
    link.symlink_to(table)
    for name in ("_SUCCESS", "data/.0.parquet.crc", "_checkpoint/0", ".staging/0.parquet"):
        _write(table / name)
    strays = [_write(table / name) for name in ("0", "a/1", "a/b/2", "a/b/c/3", "_p=4/4")]
    _write(table / "runs" / "20200101T000000Z-01234567" / "plan.json")
    (tmp_path / "runs").symlink_to(table / "runs")
    scene.age()
    run = scene.collect(locations=[str(link)])
    found = [row.path for row in run.orphans.collect()]
    assert sorted(found) == sorted(f"file://{stray}" for stray in strays)


def test_what_is_listed_in_parts_is_what_is_listed_at_once() -> None:
    names = ("0", "a/1", "a/b/2", "a/b/c/3", "_p=4/4", "_hidden/5", "a/.6", "a/runs/7")
    with bucket("lake") as options:
        for name in names:
            put(options, f"s3://lake/t/{name}", b"something")
        files = Files(options)
        top = _LISTED("s3://lake/t", None, None, "s3://lake/t")
        at_once = _below(files, [top], whole=True)
        assert {each.path for each in at_once} == {
            f"s3://lake/t/{name}" for name in (*names[:5], names[7])
        }
        some = _below(files, [top], whole=False)
        assert {each.path for each in some} == {
            f"s3://lake/t/{name}" for name in ("0", "a", "_p=4")
        }
        assert sorted(_below(files, some, whole=True)) == sorted(at_once)


@pytest.mark.parametrize(
    ("location", "message"),
    [("s3://bucket/", "whole disk or bucket"), ("gs://bucket/warehouse", "is on 'gs'")],
)
def test_locations_that_cannot_be_listed_are_refused_at_once(
    scene: Scene, location: str, message: str
) -> None:
    with pytest.raises(CannotRun, match=message):
        scene.collect(locations=[location])
    assert gc.runs(scene.spark, scene.records) == []


def _below(files: Files, rows: list[Any], *, whole: bool) -> list[Row]:
    found = found_below(files, "s3://lake/runs", iter(rows), whole=whole)
    return [_LISTED(*each) for each in found]


def _write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"something")
    return path


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))
