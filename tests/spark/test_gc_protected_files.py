"""Directories of live contents that cannot be read completely are protected as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from morag import UDF, ContentKey, Delete, DeltaLakeTable, IcebergTable, Put
from morag.cli.main import main
from morag.spark import CannotRun
from tests.spark.gc_scenario import Scenario, paths, write_file
from tests.spark.reachable_files import path_of

if TYPE_CHECKING:
    from pathlib import Path

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.


@pytest.mark.long
def test_live_contents_that_are_not_icebergs_keep_all_their_files(scenario: Scenario) -> None:
    scenario.lake.make("db.t")
    nested = _make_delta(scenario, "db/t/nested")
    again, gone = _make_delta(scenario, "again"), _make_delta(scenario, "gone")
    function = UDF(metadata_location=_write(scenario, "functions/f.json").as_uri())
    older = _write(scenario, "functions/e.json")
    stray = _write(scenario, "stray.parquet")
    tables = {"nested": nested, "again": again, "gone": gone}
    puts = [Put(ContentKey.of(name), table) for name, table in tables.items()]
    scenario.catalog.commit("main", [*puts, Put(ContentKey.of("f"), function)], "make them")
    old = scenario.catalog.references.get("main").hash
    scenario.catalog.commit("main", [_delete("again"), _delete("gone")], "drop two")
    scenario.age()
    before = scenario.files()

    def race(progress: Progress) -> None:
        branches = [each.name for each in scenario.catalog.references.list()]
        if progress.stage == "removed" and "back" not in branches:
            scenario.catalog.references.create_branch("back", f"@{old}")
            scenario.catalog.commit("back", [_delete("gone")], "bring one back")

    run = scenario.collect(
        cutoff="1", locations=[str(scenario.warehouse)], dry_run=False, progress=race
    )
    dead = {
        f"{scenario.warehouse.as_uri()}/gone/{name}" for name in ("0.parquet", "deep/1.parquet")
    }
    assert paths(run.orphans) == {stray.as_uri(), *dead, *(_in_again(each) for each in dead)}
    assert before - scenario.files() == {stray.as_uri(), *dead}
    assert older.exists()
    kept = {row.path: row.detail for row in run.live.where("kind = 'kept'").collect()}
    assert kept[older.as_uri()] == older.parent.as_uri()


def test_tables_with_lost_metadata_keep_all_their_files(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = scenario.lake
    # The metadata of the tag is lost. Its directory is not the one of the data.
    lake.make("db.far", properties={"write.metadata.path": f"{scenario.warehouse.as_uri()}/far"})
    scenario.catalog.references.create_tag("past", "main")
    tagged = lake.metadata_location("db.far")
    lake.grow("db.far")
    path_of(tagged).unlink()
    for name in ("well", "lost", "listless", "moved", "gone"):
        lake.make(f"db.{name}")
    path_of(lake.metadata_location("db.lost")).unlink()
    snapshot = lake.load_table("db.listless").current_snapshot()
    assert snapshot is not None
    path_of(snapshot.manifest_list).unlink()
    # Its metadata is on an unknown store, and its data on a known one.
    moved = scenario.catalog.contents.get("main", ContentKey.of("db", "moved"))
    assert isinstance(moved, IcebergTable)
    elsewhere = morag.replace(moved, metadata_location="gs://bucket/moved/metadata/9.json")
    scenario.catalog.commit("main", [Put(ContentKey.of("db", "moved"), elsewhere)], "move it")
    lake.drop("db.gone")
    tables = ("well", "lost", "listless", "moved", "far", "gone")
    strays = {name: _write(scenario, f"db/{name}/data/stray.parquet").as_uri() for name in tables}
    scenario.age()
    gone = {each for each in scenario.files() if "/db/gone/" in each}
    # The unreadable metadata may have its data here.
    requested = _write(scenario, "requested/0.parquet")
    before = scenario.files()
    run = scenario.collect(cutoff="1", ignore_missing=True, locations=[str(requested.parent)])
    assert paths(run.orphans) == gone | {strays["well"], requested.as_uri()}
    with pytest.raises(CannotRun, match=r"further locations .*'gs://bucket/moved/metadata/9.json'"):
        scenario.sweep(run)
    assert scenario.files() == before

    assert main(["spark", "gc", "resume", run.path, "--store", scenario.origin.store or ""]) == 0
    output = capsys.readouterr().out
    assert "  problems: metadata of 1 contents is on stores that are not read" in output
    assert "  problems: metadata of 3 contents is missing" in output


def _make_delta(scenario: Scenario, name: str) -> DeltaLakeTable:
    for file in ("0.parquet", "deep/1.parquet"):
        _write(scenario, f"{name}/{file}")
    log = _write(scenario, f"{name}/_delta_log/00000000000000000000.json").as_uri()
    return DeltaLakeTable(metadata_location_history=(log,))


def _in_again(path: str) -> str:
    return path.replace("/gone/", "/again/")


def _write(scenario: Scenario, name: str) -> Path:
    return write_file(scenario.warehouse / name)


def _delete(name: str) -> Delete:
    return Delete(ContentKey.of(name))
