"""Garbage collection on small lakes: what it keeps, when it refuses, how it continues."""

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
from morag.spark.gc.lock import locked
from morag.spark.gc.mark import recorded_roots
from morag.spark.gc.steps import RESCUED, UNDONE
from morag.spark.opening import Origin
from tests.spark.gc_scenario import Scenario, paths
from tests.spark.iceberg_lake import ROWS
from tests.spark.reachable_files import path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.


@pytest.mark.long
def test_policies_grace_snapshots_and_locations_are_those_requested(scenario: Scenario) -> None:
    scenario.lake.make("db.t")
    scenario.lake.grow("db.t")
    scenario.lake.load_table("db.t").delete("id < 2000")
    scenario.lake.make("db.gone")
    scenario.catalog.references.create_branch("etl", "main")
    scenario.lake.drop("db.gone")
    scenario.lake.on("etl").drop("db.gone")
    scenario.catalog.configs.update(
        GarbageCollectorConfig(
            default_cutoff_policy="1",
            per_ref_cutoff_policies=(ReferenceCutoffPolicy("etl", "2"),),
            new_files_grace_period="P30D",
        )
    )
    stray = scenario.warehouse / "stray.parquet"
    stray.write_bytes(b"in no table")
    scenario.age(days=30)
    dropped = {each for each in scenario.files() if "/db/gone/" in each}
    young = Path(min(dropped).removeprefix("file://"))
    now = scenario.world.clock_nanos()
    os.utime(young, ns=(now, now))

    by_configuration = scenario.collect()
    assert by_configuration.plan.grace_nanos == 30 * 86_400 * 10**9
    assert paths(by_configuration.orphans) == set(), "etl had the table one commit ago"

    requested = scenario.collect(cutoffs={"etl": "1"}, locations=[str(scenario.warehouse)])
    assert paths(requested.orphans) == dropped - {young.as_uri()} | {stray.as_uri()}
    assert [row.location for row in requested.read("locations").collect()] == [
        scenario.warehouse.as_uri()
    ]

    as_nessie = scenario.collect(cutoff="1", snapshots="current", dropped=False)
    orphans = paths(as_nessie.orphans)
    assert all("/db/t/" in path for path in orphans), (
        "the directories of dropped tables are not listed"
    )
    assert sum("/snap-" in path for path in orphans) == 2
    assert sum(path.endswith(".parquet") for path in orphans) == 1


def test_nothing_is_removed_while_live_metadata_is_missing(scenario: Scenario) -> None:
    scenario.lake.make("db.t")
    scenario.lake.make("db.lost")
    scenario.lake.make("db.gone")
    scenario.lake.drop("db.gone")
    scenario.age()
    lost = scenario.lake.metadata_location("db.lost")
    Path(lost.removeprefix("file://")).unlink()
    before = scenario.files()
    with pytest.raises(CannotRun, match="ignore_missing"):
        scenario.collect(cutoff="1", dry_run=False)
    assert scenario.files() == before
    [run] = gc.runs(scenario.spark, scenario.records)
    assert [(row.role, row.path) for row in run.problems.collect()] == [("MISSING", lost)]

    held: dict[str, str] = {}

    def look_at_lock(progress: Progress) -> None:
        [lock] = Path(scenario.records).glob("*/busy")
        held[progress.stage] = lock.read_text()

    run = scenario.collect(
        cutoff="1", ignore_missing=True, dry_run=False, action="delete", progress=look_at_lock
    )
    assert {"refs", "orphans", "removed", "rescued"} <= held.keys()
    assert len(set(held.values())) == 1, "one lock is held from the first step to the last"
    assert {row.outcome for row in run.removed.collect()} == {"DELETED"}
    assert before - scenario.files() == paths(run.removed)
    assert not any("/db/gone/" in each for each in scenario.files())
    assert any("/db/t/" in each for each in scenario.files())


def test_a_resumed_run_repeats_no_step_and_keeps_files_that_became_live(scenario: Scenario) -> None:
    scenario.lake.make("db.t")
    old = scenario.catalog.references.get("main").hash
    scenario.lake.drop("db.t")
    scenario.lake.make("db.gone")
    scenario.lake.drop("db.gone")
    scenario.age()
    run = scenario.collect(cutoff="1")
    made = run.steps()
    assert paths(run.orphans) == scenario.files()
    # As after a stop during the listing.
    for step in ("listed", "live-kept", "orphans", "kept-files"):
        Path(f"{run.path}/{step}.json").unlink()
    with pytest.raises(CannotRun, match="resume it first"):
        scenario.sweep(run)

    scenario.catalog.references.create_branch("again", f"@{old}")
    scenario.lake.make("db.new")
    gc.resume(scenario.spark, run.path, scenario.origin, dry_run=False)
    kept = [step.name for step in run.steps() if step in made]
    assert kept == [step.name for step in made][:-4]
    assert {row.outcome for row in run.removed.collect()} == {"QUARANTINED"}
    assert all("/db/gone/" in path for path in paths(run.removed))
    assert scenario.files() == scenario.live(lambda name: 1)


@pytest.mark.long
def test_files_that_become_live_during_the_sweep_are_put_back(scenario: Scenario) -> None:
    scenario.lake.make("db.t")
    old = scenario.catalog.references.get("main").hash
    scenario.lake.drop("db.t")
    scenario.age()
    before = scenario.files()

    def race(progress: Progress) -> None:
        if progress.stage == "removed" and len(list(scenario.catalog.references.list())) == 1:
            scenario.catalog.references.create_branch("again", f"@{old}")

    run = scenario.collect(cutoff="1", dry_run=False, progress=race)
    assert paths(run.removed) == before
    assert scenario.files() == scenario.live(lambda name: 1)
    assert {row.outcome for row in run.read("rescued").collect()} == {"RESTORED"}


@pytest.mark.long
def test_a_live_file_that_cannot_be_put_back_is_reported_after_all_others_are_back(
    scenario: Scenario,
) -> None:
    scenario.lake.make("db.t")
    old = scenario.catalog.references.get("main").hash
    scenario.lake.drop("db.t")
    scenario.age()
    before = scenario.files()
    taken = path_of(min(each for each in before if each.endswith(".parquet")))
    content = taken.read_bytes()

    def race(progress: Progress) -> None:
        names = {each.name for each in scenario.catalog.references.list()}
        if progress.stage == "removed" and "again" not in names:
            scenario.catalog.references.create_branch("again", f"@{old}")
            lost = IcebergTable(
                metadata_location=f"{scenario.warehouse.as_uri()}/lost/metadata/1.json",
                snapshot_id=1,
                schema_id=0,
                spec_id=0,
                sort_order_id=0,
            )
            scenario.catalog.commit("again", [Put(ContentKey.of("lost"), lost)], "lost")
        if progress.stage == "rescued-again-refs":
            taken.write_bytes(b"another file")

    with pytest.raises(CannotRun, match=f"could not be put back, such as .*{taken.name}"):
        scenario.collect(cutoff="1", dry_run=False, progress=race)
    assert scenario.files() == before
    assert taken.read_bytes() == b"another file"

    taken.unlink()
    [run] = gc.runs(scenario.spark, scenario.records)
    with pytest.raises(CannotRun, match="Live files may still be in quarantine"):
        scenario.purge(run)
    assert taken.read_bytes() == content
    assert _outcomes(run.read("rescued")) == {"RESTORED": len(before) - 1, "FAILED": 1}
    assert _outcomes(run.attempts(RESCUED).outcomes)["FAILED"] == 0


@pytest.mark.long
def test_files_that_become_live_while_they_are_deleted_are_reported_as_lost(
    scenario: Scenario,
) -> None:
    scenario.lake.make("db.t", rows=0)
    old = scenario.catalog.references.get("main").hash
    scenario.lake.drop("db.t")
    scenario.age()

    def race(progress: Progress) -> None:
        if progress.stage == "removed" and len(list(scenario.catalog.references.list())) == 1:
            scenario.catalog.references.create_branch("again", f"@{old}")

    with pytest.raises(CannotRun, match=r"live again.*lost"):
        scenario.collect(cutoff="1", dry_run=False, action="delete", progress=race)


@pytest.mark.long
def test_every_attempt_is_recorded_and_handles_the_files_that_earlier_ones_failed_on(
    scenario: Scenario,
) -> None:
    scenario.lake.make("db.t")
    scenario.lake.drop("db.t")
    scenario.age()
    before = scenario.files()
    run = scenario.collect(cutoff="1")
    waiting = path_of(run.plan.quarantined(min(before)))
    waiting.parent.mkdir(parents=True)
    waiting.write_bytes(b"another one")
    scenario.sweep(run)
    assert scenario.files() == {min(before)}
    waiting.unlink()
    scenario.sweep(run)
    assert scenario.files() == set()
    assert _outcomes(run.read("removed")) == {"QUARANTINED": len(before) - 1, "FAILED": 1}
    assert _outcomes(run.read("removed-2")) == {"QUARANTINED": 1}
    assert _outcomes(run.removed) == {"QUARANTINED": len(before)}

    gc.undo(scenario.spark, run.path)
    gc.undo(scenario.spark, run.path)
    assert scenario.files() == before
    assert _outcomes(run.attempts(UNDONE).outcomes) == {"RESTORED": len(before)}
    for job in (gc.purge, gc.sweep):
        with pytest.raises(CannotRun, match="was undone"):
            job(scenario.spark, run.path, scenario.origin)


def test_a_run_refuses_another_catalog_and_a_second_job(scenario: Scenario, tmp_path: Path) -> None:
    scenario.lake.make("db.t")
    scenario.catalog.references.create_tag("old", "main")
    [_, before, *_] = scenario.catalog.history.hashes("main")
    scenario.catalog.references.create_branch("was", f"@{before}")
    scenario.catalog.references.delete("was")
    older = _copied(tmp_path / "catalog.db", tmp_path / "older.db")
    scenario.lake.drop("db.t")
    scenario.age()
    run = scenario.collect(cutoff="1", cutoffs={"old": "1"})
    assert {row.root for row in run.read("refs").collect()} == {"main", "old", f"@{before}"}
    assert {root.root for root in recorded_roots(run)} == {"main", "old"}
    empty = f"sqlite:{tmp_path}/empty.db"
    morag.open(empty).close()
    for store in (empty, older):
        for job in (gc.sweep, gc.purge, gc.resume):
            with pytest.raises(CannotRun, match=f"catalog.db', but this is '{store}', which"):
                job(scenario.spark, run.path, Origin(store=store))

    with locked(run, "purge"):
        with pytest.raises(CannotRun, match=r"works on the run .*: purge, process"):
            scenario.sweep(run)
        with pytest.raises(CannotRun, match="works on the run"):
            gc.undo(scenario.spark, run.path)
        with pytest.raises(CannotRun, match="works on the run"):
            gc.resume(scenario.spark, run.path, scenario.origin)
    Path(f"{run.path}/busy").touch()  # A job was killed while it took the lock.
    with pytest.raises(CannotRun, match="unlock the run"):
        scenario.sweep(run)
    gc.unlock(scenario.spark, run.path)
    with pytest.raises(CannotRun, match="sweep it first"):
        scenario.purge(run)

    Path(f"{run.path}/refs.json").unlink()
    with pytest.raises(CannotRun, match="has not recorded anything that shows"):
        gc.resume(scenario.spark, run.path, Origin(store=empty))


@pytest.mark.long
def test_odd_names_links_to_files_and_another_quarantine_are_handled(
    scenario: Scenario, tmp_path: Path
) -> None:
    scenario.lake.create_table("db.odd", ROWS, location=f"{scenario.lake.warehouse}/db/50% off%20")
    scenario.lake.grow("db.odd")
    scenario.lake.make("db.linked")
    [data] = (scenario.warehouse / "db" / "linked" / "data").iterdir()
    data.symlink_to(data.rename(data.with_name("kept.parquet")))
    scenario.lake.make("db.gone")
    scenario.lake.drop("db.gone")
    scenario.age()
    before = scenario.files()
    with pytest.raises(CannotRun, match=r"files on disk stay on disk .*/warehouse/db/"):
        scenario.collect(cutoff="1", quarantine="s3://away")
    away = tmp_path / "away"
    run = scenario.collect(cutoff="1", dry_run=False, quarantine=str(away))
    gone = {each for each in before if "/db/gone/" in each}
    assert before - scenario.files() == paths(run.removed) == gone
    assert len([each for each in away.rglob("*") if each.is_file()]) == len(gone)
    gc.undo(scenario.spark, run.path)
    assert scenario.files() == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoff": "soon"}, "Cut-off policy 'soon'"),
        ({"snapshots": "some"}, "'all' or 'current'"),
        ({"grace": "3 days"}, "not a duration"),
        ({"grace": "-PT1H"}, "must not be negative"),
    ],
)
def test_a_bad_request_is_refused_before_anything_is_recorded(
    scenario: Scenario, options: dict[str, str], message: str
) -> None:
    with pytest.raises(MoragError, match=message):
        scenario.collect(**options)
    assert gc.runs(scenario.spark, scenario.records) == []


def _outcomes(frame: DataFrame) -> Counter[str]:
    return Counter(row.outcome for row in frame.collect())


def _copied(database: Path, to: Path) -> str:
    with closing(sqlite3.connect(database)) as here, closing(sqlite3.connect(to)) as there:
        here.backup(there)
    return f"sqlite:{to}"
