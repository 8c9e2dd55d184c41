"""Whatever a writer does while files go, nothing is lost that a live reference leads to."""

from __future__ import annotations

from random import Random
from threading import Lock
from typing import TYPE_CHECKING

import pytest

from morag.spark import gc
from tests.spark.scene import Scene, Writer, paths

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag.spark.progress import Progress

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_racing_writer_loses_nothing(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    _race(spark, tmp_path, seed)


def _race(spark: SparkSession, directory: Path, seed: int) -> None:
    """A random history; a collection while more of it is written; and what is there in the end.

    The writer is called by the thread that tells progress, while Spark works on the step.
    Chance may leave files that go alone, so a deleted branch comes back as a tag while they do.
    """
    random, changes = Random(seed), Random(seed).randrange(5, 120)
    scene = Scene(spark, directory)
    references = scene.catalog.references
    writer, racing, turn = Writer(scene.lake, random), random.random(), Lock()
    kept = random.choice([1, 1, 2, 5])
    for _ in range(changes):
        writer.step()
    references.create_branch("lost", "main")
    scene.lake.on("lost").make("db.lost")
    lost = references.get("lost")
    scene.age()
    scene.live(lambda name: 10**9)  # So that it need not read what is in quarantine later.
    references.delete("lost")  # Which hides it from the writer, too.
    ever = scene.live(lambda name: kept)
    dead = scene.files() - ever
    back = {path for path in dead if "/db/lost/" in path}
    assert back
    done: list[str] = []

    def write(progress: Progress) -> None:
        if progress.stage.startswith("rescued"):
            return  # What comes to life now is put back when the quarantine is purged.
        with turn:
            before = len(done)
            if random.random() < racing and before < 40:
                done.append(f"{progress.stage}: {writer.step()}")
            if progress.stage == "removed":  # Each time: the writer may delete it again.
                references.create_tag(f"back/{before}", f"@{lost.hash}")
                done.append("removed: back")
            if len(done) > before:
                ever.update(scene.live(lambda name: kept))

    run = scene.collect(cutoff=str(kept), dry_run=False, progress=write)
    assert scene.live(lambda name: kept) <= scene.files(), done
    removed = paths(run.removed.where("outcome = 'QUARANTINED'"))
    # Whatever was dead from start to end is gone: caution must not mean doing nothing.
    assert dead - ever <= removed, done
    rescued = paths(run.tries("rescued").outcomes)
    assert scene.files() & removed == rescued, done
    assert back <= rescued, done

    for _ in range(5):
        writer.step()
    gc.purge(spark, run.path, scene.origin)
    assert scene.live(lambda name: kept) <= scene.files(), done
    scene.close()
