"""Garbage collection of two hundred tables, compared with a slow and simple search."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun, gc
from tests.spark.gc_scenario import AGED, Scenario, Writer, paths

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.iceberg_lake import Lake

TABLES = 200


@pytest.mark.timeout(600)
def test_exactly_the_unreachable_files_are_removed_and_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    scenario = Scenario(spark, tmp_path)
    _fill(scenario)
    scenario.age()
    before = scenario.files()
    live = scenario.live(_live_commits)
    assert len(before - live) > 0 and len(before & live) > 0

    run = scenario.collect(cutoff="2", cutoffs={"main": "20", "keep/.*": "NONE"})
    assert paths(run.orphans) == before - live
    assert scenario.files() == before, "a dry run removed a file"

    scenario.sweep(run)
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert scenario.files() == before & live

    gc.undo(spark, run.path)
    assert scenario.files() == before
    with pytest.raises(CannotRun, match="was undone"):
        scenario.sweep(run)
    scenario.close()


def _live_commits(name: str) -> int:
    if name.startswith("keep/"):
        return 10**9
    return 20 if name == "main" else 2


def _fill(scenario: Scenario) -> None:
    """Tables and views on main, some of them dropped; branches and tags; and random changes."""
    lake, refs = scenario.lake, scenario.catalog.references
    writer = Writer(lake, Random(5))
    for number in range(TABLES):
        lake.make(f"db{number % 7}.t{number}", rows=number % 2)
        if number % 20 == 5:
            refs.create_tag(f"keep/{number}", "main")
        if number % 20 == 10:
            refs.create_branch(f"etl/{number}", "main")
            lake.on(f"etl/{number}").make(f"db.only{number}")
        if number % 10 == 9:
            lake.drop(f"db{(number - 9) % 7}.t{number - 9}")
            lake.rename(f"db{(number - 8) % 7}.t{number - 8}", f"moved.t{number}")
            lake.grow(f"db{number % 7}.t{number}")
            lake.expire(f"db{number % 7}.t{number}")
        if number % 60 == 15:
            _add_rare_kinds(lake, number)
        if number % 40 == 39:
            refs.delete(f"etl/{number - 9}")
    for _ in range(60):
        writer.step()


def _add_rare_kinds(lake: Lake, number: int) -> None:
    """Views, statistics, and snapshots without manifest lists: some stay, and some are dropped."""
    for name in (f"kept{number}", f"lost{number}"):
        lake.make_view(f"views.{name}")
        lake.make(f"described.{name}")
        lake.add_statistics(f"described.{name}")
        lake.make(f"{AGED}.{name}")
        lake.name_manifests(f"{AGED}.{name}")
    lake.make_view(f"views.kept{number}")
    for namespace in ("views", "described", AGED):
        lake.drop(f"{namespace}.lost{number}")
