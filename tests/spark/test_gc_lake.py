"""Garbage collection of two hundred tables, against a search that is too slow to be wrong."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun, gc
from tests.spark.scene import AGED, Scene, Writer, paths

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.lake import Lake

TABLES = 200


@pytest.mark.timeout(600)
def test_exactly_what_nothing_leads_to_goes_and_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    scene = Scene(spark, tmp_path)
    _fill(scene)
    scene.age()
    before = scene.files()
    live = scene.live(_live_commits)
    assert len(before - live) > 0 and len(before & live) > 0

    run = scene.collect(cutoff="2", cutoffs={"main": "20", "keep/.*": "NONE"})
    assert paths(run.orphans) == before - live
    assert scene.files() == before, "a dry run has removed something"

    scene.sweep(run)
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert scene.files() == before & live

    gc.undo(spark, run.path)
    assert scene.files() == before
    with pytest.raises(CannotRun, match="was undone"):
        scene.sweep(run)
    scene.close()


def _live_commits(name: str) -> int:
    if name.startswith("keep/"):
        return 10**9
    return 20 if name == "main" else 2


def _fill(scene: Scene) -> None:
    """Tables and views on main, some of them only once; branches and tags; and some chance."""
    lake, refs = scene.lake, scene.catalog.references
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
        lake.make(f"told.{name}")
        lake.add_statistics(f"told.{name}")
        lake.make(f"{AGED}.{name}")
        lake.name_manifests(f"{AGED}.{name}")
    lake.make_view(f"views.kept{number}")
    for namespace in ("views", "told", AGED):
        lake.drop(f"{namespace}.lost{number}")
