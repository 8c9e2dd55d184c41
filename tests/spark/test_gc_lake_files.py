"""The directories that are listed, and the files in them that are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from morag.spark import CannotRun, gc
from morag.spark.files import Files
from morag.spark.gc.lake_files import list_below
from tests.spark.gc_scenario import Scenario, paths, write_file
from tests.spark.reachable_files import path_of
from tests.spark.s3_buckets import bucket, put

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.

_LISTED = Row("path", "size_bytes", "modified_micros", "location")


def test_a_directory_of_a_dropped_table_is_listed_only_if_it_is_not_shared(
    scenario: Scenario,
) -> None:
    shared = {
        f"write.{kind}.path": f"{scenario.warehouse.as_uri()}/shared/{kind}"
        for kind in ("metadata", "data")
    }
    scenario.lake.make("db.known", properties=shared)
    scenario.lake.make("db.own")
    scenario.lake.make("db.bad")
    scenario.lake.make("db.sharing", properties=shared)
    locations = {
        name: scenario.lake.metadata_location(f"db.{name}") for name in ("own", "bad", "sharing")
    }
    for name in ("known", *locations):
        scenario.lake.drop(f"db.{name}")
    for location in locations.values():
        path_of(location).unlink()
    path_of(locations["bad"]).mkdir()
    for name in ("0.parquet", "data/1.parquet", "metadata/2.json"):
        write_file(scenario.warehouse / "shared" / name)
    write_file(scenario.warehouse / "db" / "sharing" / "3.parquet")
    stray = write_file(scenario.warehouse / "db" / "known" / "4.parquet")
    scenario.age()
    run = scenario.collect(cutoff="1")
    assert paths(run.orphans) == {
        stray.as_uri(),
        *(each for each in scenario.files() if "/db/own/" in each or "/db/bad/" in each),
    }


def test_a_location_is_listed_once_under_all_its_names_and_without_hidden_files(
    scenario: Scenario, tmp_path: Path
) -> None:
    scenario.lake.make("db.t")
    table, link = scenario.warehouse / "db" / "t", tmp_path / "link"
    link.symlink_to(table)
    for name in ("_SUCCESS", "data/.0.parquet.crc", "_checkpoint/0", ".staging/0.parquet"):
        write_file(table / name)
    strays = [write_file(table / name) for name in ("0", "a/1", "a/b/2", "a/b/c/3", "_p=4/4")]
    write_file(table / "runs" / "20200101T000000Z-01234567" / "plan.json")
    (tmp_path / "runs").symlink_to(table / "runs")
    scenario.age()
    run = scenario.collect(locations=[str(link)])
    found = [row.path for row in run.orphans.collect()]
    assert sorted(found) == sorted(f"file://{stray}" for stray in strays)


def test_a_listing_in_parts_equals_one_listing() -> None:
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
def test_locations_that_cannot_be_listed_are_refused_before_the_run_starts(
    scenario: Scenario, location: str, message: str
) -> None:
    with pytest.raises(CannotRun, match=message):
        scenario.collect(locations=[location])
    assert gc.runs(scenario.spark, scenario.records) == []


def _below(files: Files, rows: list[Any], *, whole: bool) -> list[Row]:
    found = list_below(files, "s3://lake/runs", iter(rows), whole=whole)
    return [_LISTED(*each) for each in found]
