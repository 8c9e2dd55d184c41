"""Sweep: what nothing leads to goes into quarantine, and from there back or to its end.

New files are younger than the grace period. Old ones may come back to life, for instance by a new
branch at an old commit: so just before files go, references that have moved are marked again, and
once more when the files are gone, which is when what came to life in between is put back. What does
so even later waits in quarantine for `undo` or `purge`, which both put it back.

So nothing that is live is lost, whatever writers do, until files are deleted. Nobody can keep
writers from bringing files to life in the moment between the last look and the deletion. They do
that by references on old commits, and nothing but references makes a commit live: not that somebody
knows its hash, nor that it was merged.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from morag.spark.errors import CannotRun
from morag.spark.files import Files
from morag.spark.gc import quarantine
from morag.spark.gc.busy import alone
from morag.spark.gc.known import check_ready
from morag.spark.gc.orphans import without
from morag.spark.gc.own import check_own
from morag.spark.gc.quarantine import DOOMED, OUTCOMES
from morag.spark.gc.records import Run
from morag.spark.gc.rescue import among, rescue
from morag.spark.spread import spread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.gc.quarantine import Action
    from morag.spark.opening import Origin
    from morag.spark.progress import Telling
    from morag.spark.spread import Work


def sweep(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    action: Action = "quarantine",
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Remove the orphans of a recorded run, now or long after they were found.

    They are moved to where `undo` finds them, or deleted at once. The latter cannot be mended: a
    reference that is put on an old commit in the very moment may lose files. That is told.

    What failed is tried again if the run is swept once more.
    """
    if action not in ("quarantine", "delete"):
        raise CannotRun(f"Orphans can be put in 'quarantine' or 'delete'd, but not '{action}'")
    lake = Files(dict(files or {}))
    run = Run(spark, path, progress)
    with alone(run, "sweep"):
        check_sweep(run, origin)
        plan = run.plan
        live = rescue(run, origin, lake, "removed")  # An earlier try may have been stopped.
        # Written before anything moves: `undo` goes by it.
        doomed = run.once(
            "doomed",
            lambda: spread(without(run.orphans, live), partial(quarantine.doom, plan), DOOMED),
        )
        work = partial(quarantine.remove, lake, action, plan.newest_micros)
        _try(run, "removed", without(doomed, live), work)
        rescue(run, origin, lake, "rescued")
    return run


def undo(
    spark: SparkSession,
    path: str,
    *,
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Put back everything that a run has in quarantine. What is in place already stays there."""
    lake = Files(dict(files or {}))
    run = Run(spark, path, progress)
    with alone(run, "undo"):
        if not run.has("doomed"):
            raise CannotRun(f"The run '{path}' has moved nothing: there is nothing to undo")
        run.begin("undone")
        _try(run, "undone", run.read("doomed"), partial(quarantine.restore, lake))
    return run


def purge(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Delete what a run has in quarantine for good, except for what has come back to life.

    What does so while files are being deleted is lost.
    """
    lake = Files(dict(files or {}))
    run = Run(spark, path, progress)
    with alone(run, "purge"):
        check_purge(run, origin)
        live = rescue(run, origin, lake, "purged")
        moved = among(run.read("doomed"), run.removed.where("outcome = 'QUARANTINED'"))
        _try(run, "purged", without(moved, live), partial(quarantine.purge, lake))
    return run


def check_sweep(run: Run, origin: Origin) -> None:
    """Refuse what `sweep` would refuse. Nothing is changed."""
    check_own(run, origin)
    check_ready(run)
    _refuse_undone(run)


def check_purge(run: Run, origin: Origin) -> None:
    """Refuse what `purge` would refuse. Nothing is changed."""
    check_own(run, origin)
    if not run.has("removed"):
        raise CannotRun(f"The run '{run.path}' has moved nothing yet; sweep it first")
    _refuse_undone(run)


def _refuse_undone(run: Run) -> None:
    if run.was_begun("undone"):
        raise CannotRun(f"The run '{run.path}' was undone; start a new one to remove files again")


def _try(run: Run, name: str, files: DataFrame, work: Work) -> DataFrame:
    tries = run.tries(name)
    return run.make(tries.next, partial(spread, tries.left(files), work, OUTCOMES))
