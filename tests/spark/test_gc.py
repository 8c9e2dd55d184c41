"""Garbage collection on small lakes: what it keeps, when it refuses, how it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from morag import MoragError
from morag.model.configs import GarbageCollectorConfig, ReferenceCutoffPolicy
from morag.spark import CannotRun, gc
from tests.spark.scene import Scene, paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    made = Scene(spark, tmp_path)
    yield made
    made.close()


def test_policies_grace_snapshots_and_locations_are_as_asked_for(scene: Scene) -> None:
    scene.lake.make("db.t")
    scene.lake.grow("db.t")
    scene.lake.load_table("db.t").delete("id < 2000")
    scene.lake.make("db.gone")
    scene.catalog.references.create_branch("etl", "main")
    scene.lake.drop("db.gone")
    scene.lake.on("etl").drop("db.gone")
    scene.catalog.configs.update(
        GarbageCollectorConfig(
            default_cutoff_policy="1",
            per_ref_cutoff_policies=(ReferenceCutoffPolicy("etl", "2"),),
            new_files_grace_period="P30D",
        )
    )
    stray = scene.warehouse / "stray.parquet"
    stray.write_bytes(b"nobody knows")
    scene.age()
    dropped = {each for each in scene.files() if "/db/gone/" in each}
    young = Path(min(dropped).removeprefix("file://"))
    young.touch()

    by_configuration = scene.collect()
    assert by_configuration.plan.grace_nanos == 30 * 86_400 * 10**9
    assert paths(by_configuration.orphans) == set(), "etl had the table one commit ago"

    asked = scene.collect(cutoffs={"etl": "1"}, locations=[str(scene.warehouse)])
    assert paths(asked.orphans) == dropped - {young.as_uri()} | {stray.as_uri()}
    assert [row.location for row in asked.read("locations").collect()] == [scene.warehouse.as_uri()]

    as_the_original = scene.collect(cutoff="1", snapshots="current", dropped=False)
    orphans = paths(as_the_original.orphans)
    assert all("/db/t/" in path for path in orphans), "dropped tables are not looked for"
    assert sum("/snap-" in path for path in orphans) == 2
    assert sum(path.endswith(".parquet") for path in orphans) == 1


def test_nothing_goes_while_live_metadata_is_missing(scene: Scene) -> None:
    scene.lake.make("db.t")
    scene.lake.make("db.lost")
    scene.lake.make("db.gone")
    scene.lake.drop("db.gone")
    scene.age()
    lost = scene.lake.metadata_location("db.lost")
    Path(lost.removeprefix("file://")).unlink()
    before = scene.files()
    with pytest.raises(CannotRun, match="ignore_missing"):
        scene.collect(cutoff="1", dry_run=False)
    assert scene.files() == before
    [run] = gc.runs(scene.spark, scene.records)
    assert [(row.role, row.path) for row in run.problems.collect()] == [("MISSING", lost)]

    run = scene.collect(cutoff="1", ignore_missing=True, dry_run=False, action="delete")
    assert {row.outcome for row in run.removed.collect()} == {"DELETED"}
    assert before - scene.files() == paths(run.removed)
    assert not any("/db/gone/" in each for each in scene.files())
    assert any("/db/t/" in each for each in scene.files())


def test_a_run_goes_on_where_it_was_stopped_and_keeps_what_came_to_life(scene: Scene) -> None:
    scene.lake.make("db.t")
    old = scene.catalog.references.get("main").hash
    scene.lake.drop("db.t")
    scene.lake.make("db.gone")
    scene.lake.drop("db.gone")
    scene.age()
    run = scene.collect(cutoff="1")
    made = run.steps()
    assert paths(run.orphans) == scene.files()
    for step in ("listed", "orphans"):  # As if it had been stopped while it listed.
        Path(f"{run.path}/{step}.json").unlink()
    with pytest.raises(CannotRun, match="resume it first"):
        scene.sweep(run)

    scene.catalog.references.create_branch("again", f"@{old}")
    scene.lake.make("db.new")
    gc.resume(scene.spark, run.path, scene.origin, dry_run=False)
    kept = [step.name for step in run.steps() if step in made]
    assert kept == [step.name for step in made][:-2]
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert all("/db/gone/" in path for path in paths(run.removed))
    assert scene.files() == scene.live(lambda name: 1)


def test_what_comes_to_life_while_files_move_is_put_back(scene: Scene) -> None:
    scene.lake.make("db.t")
    old = scene.catalog.references.get("main").hash
    scene.lake.drop("db.t")
    scene.age()
    before = scene.files()

    def race(progress: Progress) -> None:
        if progress.stage == "removed" and len(list(scene.catalog.references.list())) == 1:
            scene.catalog.references.create_branch("again", f"@{old}")

    run = scene.collect(cutoff="1", dry_run=False, progress=race)
    assert paths(run.removed) == before
    assert scene.files() == scene.live(lambda name: 1)
    assert {row.outcome for row in run.read("rescued").collect()} == {"RESTORED"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoff": "soon"}, "Cut-off policy 'soon'"),
        ({"snapshots": "some"}, "'all' or 'current'"),
        ({"grace": "3 days"}, "not a duration"),
        ({"grace": "-PT1H"}, "must not be negative"),
    ],
)
def test_bad_wishes_are_refused_before_anything_is_done(
    scene: Scene, options: dict[str, str], message: str
) -> None:
    with pytest.raises(MoragError, match=message):
        scene.collect(**options)
    assert gc.runs(scene.spark, scene.records) == []
