"""Sweep, undo and purge: move orphans into quarantine, move them back, or delete them.

Orphans may become live again, for instance by a new branch on an old commit. So references that
have moved are marked a second time just before files are removed, and once more afterwards; files
that became live in between are put back. Files that become live even later are put back by `undo`
or `purge`. docs/decisions/0010-gc-safety.md has the whole argument.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of, map_rows, union
from morag.spark.files import Files
from morag.spark.gc import quarantine
from morag.spark.gc.expand import expand, live_metadata
from morag.spark.gc.lock import locked
from morag.spark.gc.mark import find_contents, find_roots, recorded_roots, roots_frame
from morag.spark.gc.orphans import among, protected_files, without
from morag.spark.gc.preconditions import check_complete, check_purge, check_sweep
from morag.spark.gc.quarantine import FilesBeforeSweep
from morag.spark.gc.run import UNSUCCESSFUL, Run
from morag.spark.gc.steps import DOOMED, PURGED, REMOVED, RESCUED, UNDONE, Outcome, second_mark

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.executors import Work
    from morag.spark.gc.mark import Root
    from morag.spark.gc.quarantine import Action
    from morag.spark.gc.steps import MarkSteps, Step
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback


def sweep(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    dry_run: bool = True,
    action: Action = "quarantine",
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Run:
    """Remove the orphans of a recorded run, at any time after they were found.

    A dry run removes nothing: it checks that the run can be swept, and `orphans` of the result are
    the files that would be removed, except for those that have become live since.

    Otherwise the files are moved into quarantine, from where `undo` moves them back, or deleted at
    once. After a deletion, a reference that is created on an old commit at the same time may lack
    files; this is reported.

    If the run is swept again, files for which this failed are retried.
    """
    check_action(action)
    run = Run(spark, path, progress)
    if dry_run:
        check_sweep(run, origin)
        return run
    with locked(run, "sweep"):
        remove_orphans(run, origin, Files(dict(files or {})), action)
    return run


def check_action(action: Action) -> None:
    if action not in ("quarantine", "delete"):
        raise CannotRun(f"The action must be 'quarantine' or 'delete', not '{action}'")


def remove_orphans(run: Run, origin: Origin, files: Files, action: Action) -> None:
    """The sweep of a run whose lock the caller holds."""
    check_sweep(run, origin)
    plan = run.plan
    # The rescue comes first because an earlier attempt may have been stopped.
    live = _rescue(run, origin, files, REMOVED)
    # Recorded before any file is moved: `undo` and later attempts rely on it.
    doomed = run.once(
        DOOMED,
        lambda: map_rows(
            without(run.orphans, live), partial(quarantine.assign_quarantine, plan), DOOMED.schema
        ),
    )
    work = partial(quarantine.remove, files, action, plan.newest_micros)
    _attempt(run, REMOVED, without(doomed, live), work)
    _rescue(run, origin, files, RESCUED)


def undo(
    spark: SparkSession,
    path: str,
    *,
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Run:
    """Move all files of a run back from quarantine. Files that are in place stay as they are."""
    run = Run(spark, path, progress)
    with locked(run, "undo"):
        if not run.has(DOOMED):
            raise CannotRun(f"The run '{path}' has moved nothing: there is nothing to undo")
        run.begin(UNDONE)
        restore = partial(quarantine.restore, Files(dict(files or {})))
        _attempt(run, UNDONE, run.read(DOOMED), restore)
    return run


def purge(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    dry_run: bool = True,
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Run:
    """Delete the files of a run that are in quarantine, except for those that are live again.

    A dry run deletes nothing: it checks that the run can be purged, and `quarantined` of the result
    are the files that would be deleted, except for those that have become live since. Otherwise,
    files that become live while files are being deleted are lost.
    """
    lake = Files(dict(files or {}))
    run = Run(spark, path, progress)
    if dry_run:
        check_purge(run, origin)
        return run
    with locked(run, "purge"):
        check_purge(run, origin)
        live = _rescue(run, origin, lake, PURGED)
        quarantined = run.removed.where(F.col("outcome") == Outcome.QUARANTINED)
        moved = among(run.read(DOOMED), quarantined)
        _attempt(run, PURGED, without(moved, live), partial(quarantine.purge, lake))
    return run


def _attempt(run: Run, step: Step, files: DataFrame, work: Work) -> DataFrame:
    """Do `work` on the files that earlier attempts at the step have not dealt with."""
    attempts = run.attempts(step)
    next = attempts.next
    return run.make(next, partial(map_rows, attempts.remaining(files), work, next.schema))


def _rescue(run: Run, origin: Origin, files: Files, before: Step) -> DataFrame:
    """Put back removed files that are live now, before the next attempt at a step. Return all
    files that became live since the run started, so that the attempt spares them.

    Every known file is put back before a problem is raised.
    """
    live = _mark_again(run, origin, files, second_mark(run.attempts(before).next))
    if not run.has(DOOMED):
        check_complete(run, live, "Nothing is removed")
        return live
    not_purged = run.attempts(PURGED).remaining(run.read(DOOMED))
    back = among(not_purged, live.select(F.col("spelling").alias("path")))
    step = run.attempts(RESCUED).next
    restore = partial(quarantine.restore, files)
    _check_rescued(run, step, run.make(step, partial(map_rows, back, restore, step.schema)))
    check_complete(run, live, "Live files may still be in quarantine; undo moves them back")
    return live


def _mark_again(run: Run, origin: Origin, files: Files, mark: MarkSteps) -> DataFrame:
    """The second mark: files that are needed now by contents that were not live when the run
    started, and problems with their metadata.

    Files in quarantine are read as if they were in place, because an earlier attempt to sweep may
    have been stopped half-way.
    """
    with origin.open() as catalog:
        roots = find_roots(catalog, run.plan, dropped=False)
    run.make(mark.refs, lambda: roots_frame(run.spark, roots))
    moved = _moved(run, roots)
    if not moved:
        return frame_of(run.spark, [], mark.metadata.schema)
    starts = roots_frame(run.spark, moved)
    contents = run.make(mark.contents, lambda: find_contents(origin, starts, whole=False))
    snapshots = run.plan.snapshots
    new = live_metadata(contents, snapshots).subtract(live_metadata(run.contents, snapshots))
    found = expand(run, new, FilesBeforeSweep(files.options, plan=run.plan), mark, fresh=True)
    protected = run.make(mark.protected, partial(protected_files, run, found, run.orphans))
    return union([found, protected])


def _moved(run: Run, roots: list[Root]) -> list[Root]:
    """The references that are new or have moved; of the latter, the commits above the old head."""
    before = {root.root: root.hash for root in recorded_roots(run)}
    return [
        replace(root, until=before.get(root.root))
        for root in roots
        if before.get(root.root) != root.hash
    ]


def _check_rescued(run: Run, step: Step, outcomes: DataFrame) -> None:
    bad = outcomes.where(F.col("outcome").isin(*UNSUCCESSFUL))
    first = bad.limit(3).collect()
    if first:
        shown = "; ".join(f"{row.path} ({row.outcome.lower()}: {row.detail})" for row in first)
        raise CannotRun(
            f"{bad.count()} files that the run '{run.path}' has removed are live again and could "
            f"not be put back, such as {shown}. All are recorded as its step '{step.name}'. "
            "Correct what can be corrected, and sweep or undo the run again"
        )
