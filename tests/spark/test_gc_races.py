"""No live file is lost, whatever a writer does while the sweep removes files."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from morag.spark.gc.steps import RESCUED
from tests.sampling import seeds
from tests.spark.gc_scenario import Scenario, Writer, paths

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("gc race seeds"))
def test_a_racing_writer_loses_no_live_file(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    _race(spark, tmp_path, seed)


def _race(spark: SparkSession, directory: Path, seed: int) -> None:
    """Write a random history, collect garbage while more is written, and compare the files.

    The thread that reports progress calls the writer while Spark works on a step. Random changes
    may bring no removed file back to life, so a tag is created on the head of a deleted branch.
    """
    random, changes = Random(seed), Random(seed).randrange(5, 120)
    scenario = Scenario(spark, directory)
    references = scenario.catalog.references
    writer, racing, turn = Writer(scenario.lake, random), random.random(), Lock()
    kept = random.choice([1, 1, 2, 5])
    for _ in range(changes):
        writer.step()
    references.create_branch("lost", "main")
    scenario.lake.on("lost").make("db.lost")
    lost = references.get("lost")
    scenario.age()
    scenario.live(lambda name: 10**9)  # Remember all metadata now: later some is in quarantine.
    references.delete("lost")  # Now the writer cannot find it either.
    ever = scenario.live(lambda name: kept)
    dead = scenario.files() - ever
    back = {path for path in dead if "/db/lost/" in path}
    assert back
    done: list[str] = []

    def write(progress: Progress) -> None:
        if progress.stage.startswith("rescued"):
            return  # A file that becomes live now is put back by the purge.
        with turn:
            before = len(done)
            if random.random() < racing and before < 40:
                done.append(f"{progress.stage}: {writer.step()}")
            if progress.stage == "removed":  # Each time, because the writer may delete the tag.
                references.create_tag(f"back/{before}", f"@{lost.hash}")
                done.append("removed: back")
            if len(done) > before:
                ever.update(scenario.live(lambda name: kept))

    run = scenario.collect(cutoff=str(kept), dry_run=False, progress=write)
    assert scenario.live(lambda name: kept) <= scenario.files(), done
    removed = paths(run.removed.where("outcome = 'QUARANTINED'"))
    # All files that were dead from start to end are removed: the sweep must not do nothing.
    assert dead - ever <= removed, done
    rescued = paths(run.attempts(RESCUED).outcomes)
    assert scenario.files() & removed == rescued, done
    assert back <= rescued, done

    for _ in range(5):
        writer.step()
    scenario.purge(run)
    assert scenario.live(lambda name: kept) <= scenario.files(), done
    scenario.close()
