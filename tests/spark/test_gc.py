"""Garbage collection on small lakes: what it keeps, when it refuses, how it goes on."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import morag
from morag import ContentKey, IcebergTable, MoragError, Put
from morag.model.configs import GarbageCollectorConfig, ReferenceCutoffPolicy
from morag.spark import CannotRun, gc
from morag.spark.gc.busy import alone
from morag.spark.opening import Origin
from tests.spark.lake import ROWS
from tests.spark.scene import Scene, paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.


@pytest.mark.long
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
    scene.age(days=30)
    dropped = {each for each in scene.files() if "/db/gone/" in each}
    young = Path(min(dropped).removeprefix("file://"))
    now = scene.world.clock_nanos()
    os.utime(young, ns=(now, now))

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
    for step in ("listed", "live-kept", "orphans"):  # As if it had been stopped while it listed.
        Path(f"{run.path}/{step}.json").unlink()
    with pytest.raises(CannotRun, match="resume it first"):
        scene.sweep(run)

    scene.catalog.references.create_branch("again", f"@{old}")
    scene.lake.make("db.new")
    gc.resume(scene.spark, run.path, scene.origin, dry_run=False)
    kept = [step.name for step in run.steps() if step in made]
    assert kept == [step.name for step in made][:-3]
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert all("/db/gone/" in path for path in paths(run.removed))
    assert scene.files() == scene.live(lambda name: 1)


@pytest.mark.long
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


@pytest.mark.long
def test_what_cannot_be_put_back_is_told_and_keeps_nothing_else_away(scene: Scene) -> None:
    scene.lake.make("db.t")
    old = scene.catalog.references.get("main").hash
    scene.lake.drop("db.t")
    scene.age()
    before = scene.files()
    taken = _path(min(each for each in before if each.endswith(".parquet")))
    content = taken.read_bytes()

    def race(progress: Progress) -> None:
        names = {each.name for each in scene.catalog.references.list()}
        if progress.stage == "removed" and "again" not in names:
            scene.catalog.references.create_branch("again", f"@{old}")
            lost = IcebergTable(
                metadata_location=f"{scene.warehouse.as_uri()}/lost/metadata/1.json",
                snapshot_id=1,
                schema_id=0,
                spec_id=0,
                sort_order_id=0,
            )
            scene.catalog.commit("again", [Put(ContentKey.of("lost"), lost)], "lost")
        if progress.stage == "rescued-again-refs":
            taken.write_bytes(b"somebody else's")

    with pytest.raises(CannotRun, match=f"could not be put back, such as .*{taken.name}"):
        scene.collect(cutoff="1", dry_run=False, progress=race)
    assert scene.files() == before
    assert taken.read_bytes() == b"somebody else's"

    taken.unlink()
    [run] = gc.runs(scene.spark, scene.records)
    with pytest.raises(CannotRun, match="Live files may still be in quarantine"):
        gc.purge(scene.spark, run.path, scene.origin)
    assert taken.read_bytes() == content
    assert _outcomes(run.read("rescued")) == {"RESTORED": len(before) - 1, "FAILED": 1}
    assert _outcomes(run.tries("rescued").outcomes)["FAILED"] == 0


@pytest.mark.long
def test_what_is_deleted_while_it_comes_to_life_is_told(scene: Scene) -> None:
    scene.lake.make("db.t", rows=0)
    old = scene.catalog.references.get("main").hash
    scene.lake.drop("db.t")
    scene.age()

    def race(progress: Progress) -> None:
        if progress.stage == "removed" and len(list(scene.catalog.references.list())) == 1:
            scene.catalog.references.create_branch("again", f"@{old}")

    with pytest.raises(CannotRun, match=r"live again.*lost"):
        scene.collect(cutoff="1", dry_run=False, action="delete", progress=race)


@pytest.mark.long
def test_every_try_is_recorded_and_takes_on_what_others_have_left(scene: Scene) -> None:
    scene.lake.make("db.t")
    scene.lake.drop("db.t")
    scene.age()
    before = scene.files()
    run = scene.collect(cutoff="1")
    waiting = _path(run.plan.quarantined(min(before)))
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"another one")
    scene.sweep(run)
    assert scene.files() == {min(before)}
    waiting.unlink()
    scene.sweep(run)
    assert scene.files() == set()
    assert _outcomes(run.read("removed")) == {"QUARANTINED": len(before) - 1, "FAILED": 1}
    assert _outcomes(run.read("removed-2")) == {"QUARANTINED": 1}
    assert _outcomes(run.removed) == {"QUARANTINED": len(before)}

    gc.undo(scene.spark, run.path)
    gc.undo(scene.spark, run.path)
    assert scene.files() == before
    assert _outcomes(run.tries("undone").outcomes) == {"RESTORED": len(before)}
    for job in (gc.purge, gc.sweep):
        with pytest.raises(CannotRun, match="was undone"):
            job(scene.spark, run.path, scene.origin)


def test_a_run_is_for_its_own_catalog_and_for_one_job_at_a_time(
    scene: Scene, tmp_path: Path
) -> None:
    scene.lake.make("db.t")
    scene.catalog.references.create_tag("old", "main")
    [_, before, *_] = scene.catalog.history.hashes("main")
    scene.catalog.references.create_branch("was", f"@{before}")
    scene.catalog.references.delete("was")
    older = _copied(tmp_path / "catalog.db", tmp_path / "older.db")
    scene.lake.drop("db.t")
    scene.age()
    run = scene.collect(cutoff="1", cutoffs={"old": "1"})
    assert {row.root for row in run.read("refs").collect()} == {"main", "old", f"@{before}"}
    assert {root.root for root in run.roots()} == {"main", "old"}
    empty = f"sqlite:{tmp_path}/empty.db"
    morag.open(empty).close()
    for store in (empty, older):
        for job in (gc.sweep, gc.purge, gc.resume):
            with pytest.raises(CannotRun, match=f"catalog.db', but this is '{store}', which"):
                job(scene.spark, run.path, Origin(store=store))

    with alone(run, "purge"):
        with pytest.raises(CannotRun, match=r"at work on the run .*: purge, process"):
            scene.sweep(run)
        with pytest.raises(CannotRun, match="at work on the run"):
            gc.undo(scene.spark, run.path)
        with pytest.raises(CannotRun, match="at work on the run"):
            gc.resume(scene.spark, run.path, scene.origin)
    Path(f"{run.path}/busy").touch()  # Somebody was killed in the very moment.
    with pytest.raises(CannotRun, match="unlock the run"):
        scene.sweep(run)
    gc.unlock(scene.spark, run.path)
    with pytest.raises(CannotRun, match="sweep it first"):
        gc.purge(scene.spark, run.path, scene.origin)

    Path(f"{run.path}/refs.json").unlink()
    with pytest.raises(CannotRun, match="nothing that was recorded tells"):
        gc.resume(scene.spark, run.path, Origin(store=empty))


@pytest.mark.long
def test_odd_names_links_to_files_and_a_quarantine_elsewhere(scene: Scene, tmp_path: Path) -> None:
    scene.lake.create_table("db.odd", ROWS, location=f"{scene.lake.warehouse}/db/50% off%20")
    scene.lake.grow("db.odd")
    scene.lake.make("db.linked")
    [data] = (scene.warehouse / "db" / "linked" / "data").iterdir()
    data.symlink_to(data.rename(data.with_name("kept.parquet")))
    scene.lake.make("db.gone")
    scene.lake.drop("db.gone")
    scene.age()
    before = scene.files()
    with pytest.raises(CannotRun, match=r"files on disk stay on disk .*/warehouse/db/"):
        scene.collect(cutoff="1", quarantine="s3://away")
    away = tmp_path / "away"
    run = scene.collect(cutoff="1", dry_run=False, quarantine=str(away))
    gone = {each for each in before if "/db/gone/" in each}
    assert before - scene.files() == paths(run.removed) == gone
    assert len([each for each in away.rglob("*") if each.is_file()]) == len(gone)
    gc.undo(scene.spark, run.path)
    assert scene.files() == before


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


def _outcomes(frame: DataFrame) -> Counter[str]:
    return Counter(row.outcome for row in frame.collect())


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _copied(database: Path, to: Path) -> str:
    with closing(sqlite3.connect(database)) as here, closing(sqlite3.connect(to)) as there:
        here.backup(there)
    return f"sqlite:{to}"
