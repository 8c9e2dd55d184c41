"""The lock of a run belongs to one job."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from morag.spark import CannotRun, gc
from morag.spark.gc.lock import locked
from morag.spark.gc.plan import Plan, Policies
from morag.spark.gc.run import Run
from morag.versions.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.


def test_a_job_that_was_unlocked_does_not_remove_the_lock_of_the_next_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = _run(spark, tmp_path)
    with ExitStack() as next_job:
        with locked(run, "sweep"):
            gc.unlock(spark, run.path)
            next_job.enter_context(locked(run, "purge"))
        with pytest.raises(CannotRun, match=": purge, process"), locked(run, "undo"):
            pass
    with locked(run, "undo"):
        pass


def test_a_job_that_was_unlocked_ends_as_usual(spark: SparkSession, tmp_path: Path) -> None:
    run = _run(spark, tmp_path)
    with locked(run, "sweep"):
        gc.unlock(spark, run.path)
    with locked(run, "sweep"):
        pass


def _run(spark: SparkSession, directory: Path) -> Run:
    plan = Plan(
        id="a-run",
        origin="",
        now_nanos=0,
        policies=Policies(),
        grace_nanos=0,
        snapshots="all",
        dropped=False,
        locations=(),
        ignore_missing=False,
        quarantine=None,
        records=str(directory),
    )
    return Run.start(spark, str(directory), plan, None, World())
