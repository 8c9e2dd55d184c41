"""Sweep: what nothing leads to goes into quarantine, and from there back or to its end.

Nothing that is live is lost, whatever writers do meanwhile. New files are younger than the grace
period. Old ones may come back to life, for instance by a new branch at an old commit: so just
before files go, references that have moved are marked again, and once more when the files are in
quarantine, which is when what came to life in between is put back. What does so even later waits
there for `undo` or `purge`, which both put it back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec.structs import replace
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.errors import CannotRun
from morag.spark.files import Files, real
from morag.spark.gc.expand import FOUND, expand, live_metadata
from morag.spark.gc.mark import contents_of
from morag.spark.gc.records import Run, check_known
from morag.spark.gc.roots import ROOTS, find_roots
from morag.spark.spread import frame_of, spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.gc.plan import Plan
    from morag.spark.gc.roots import Root
    from morag.spark.opening import Origin
    from morag.spark.progress import Telling
    from morag.spark.spread import Rows

Action: TypeAlias = Literal["quarantine", "delete"]

_DOOMED: Final = "path STRING, size_bytes BIGINT, modified_micros BIGINT, quarantined STRING"
_OUTCOMES: Final = "path STRING, size_bytes BIGINT, outcome STRING, detail STRING"


def find_orphans(run: Run) -> DataFrame:
    """Listed, not live, and old enough: an exact join on the executors, however many there are."""
    old = run.read("listed").where(F.col("modified_micros") < run.plan.newest_micros)
    return without(old, run.live)


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
    reference that is put on an old commit in the very moment may lose files.
    """
    if action not in ("quarantine", "delete"):
        raise CannotRun(f"Orphans can be put in 'quarantine' or 'delete'd, but not '{action}'")
    run = Run(spark, path, progress)
    run.check_ready()
    if run.has("undone"):
        raise CannotRun(f"The run '{path}' was undone; start a new one to remove files again")
    lake = Files(dict(files or {}))
    if not run.has("removed"):
        live = _mark_again(run, origin, lake, "again")
        if not run.has("doomed"):  # Written before anything moves: `undo` goes by it.
            doom = partial(_doom, run.plan, action)
            run.make("doomed", lambda: spread(without(run.orphans, live), doom, _DOOMED))
        work = partial(_remove, lake, action, run.plan.newest_micros)
        left = without(run.read("doomed"), live)
        run.make("removed", partial(spread, left, work, _OUTCOMES))
    if action == "quarantine":
        _rescue(run, origin, lake, "rescued")
    return run


def undo(
    spark: SparkSession,
    path: str,
    *,
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Put back everything that a run has in quarantine. What is in place already stays there."""
    run = Run(spark, path, progress)
    lake = Files(dict(files or {}))
    work = partial(_restore, lake)
    run.make("undone", partial(spread, run.read("doomed"), work, _OUTCOMES))
    return run


def purge(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Delete what a run has in quarantine for good, except for what has come back to life."""
    run = Run(spark, path, progress)
    if not run.has("removed"):
        raise CannotRun(f"The run '{path}' has moved nothing yet; sweep it first")
    lake = Files(dict(files or {}))
    rescued = _rescue(run, origin, lake, "purge-rescued")
    waiting = run.read("doomed").where("quarantined IS NOT NULL")
    doomed = without(waiting, rescued.withColumnRenamed("path", "spelling"))
    run.make("purged", partial(spread, doomed, partial(_purge, lake), _OUTCOMES))
    return run


def without(frame: DataFrame, found: DataFrame) -> DataFrame:
    """The rows whose path is none of the spellings. Sorted, not broadcast: that would be held by
    the driver."""
    kept = found.where("spelling IS NOT NULL").select(F.col("spelling").alias("path"))
    return frame.join(kept.hint("merge"), "path", "left_anti")


def _mark_again(run: Run, origin: Origin, files: Files, prefix: str) -> DataFrame:
    """The files of what is live now and was not when the run started.

    Read as if nothing had moved: an earlier try to sweep may have been stopped half-way.
    """
    with origin.open() as catalog:
        roots = find_roots(catalog, run.plan, dropped=False)
    rows = [root.row() for root in roots]
    run.make(f"{prefix}-refs", lambda: frame_of(run.spark, rows, ROOTS))
    moved = _moved(run, roots)
    if not moved:
        return frame_of(run.spark, [], FOUND)
    made = run.make(
        f"{prefix}-contents", lambda: contents_of(run.spark, origin, moved, whole=False)
    )
    snapshots = run.plan.snapshots
    new = live_metadata(made, snapshots).subtract(live_metadata(run.contents, snapshots))
    found = expand(run, new, _Behind(files.options, run.plan), prefix, anew=True)
    check_known(found, run.plan.ignore_missing, run.path)
    return found


def _moved(run: Run, roots: list[Root]) -> list[Root]:
    """The references that are new or elsewhere; of the latter, what lies above where they were."""
    before = {root.root: root.hash for root in run.roots()}
    return [
        replace(root, until=before.get(root.root))
        for root in roots
        if before.get(root.root) != root.hash
    ]


def _rescue(run: Run, origin: Origin, files: Files, name: str) -> DataFrame:
    """Put back what is live after all."""
    live = _mark_again(run, origin, files, name)
    kept = live.where("spelling IS NOT NULL").select(F.col("spelling").alias("path"))
    back = run.read("doomed").join(kept.hint("merge"), "path", "left_semi")
    return run.make(name, partial(spread, back, partial(_restore, files), _OUTCOMES))


class _Behind(Files, frozen=True):
    """Files as they were before the sweep: what is in quarantine can be read under its old name."""

    plan: Any = None

    def read(self, location: str) -> bytes:
        try:
            return super().read(location)
        except FileNotFoundError:
            return super().read(self.plan.quarantined(real(location)))


def _doom(plan: Plan, action: Action, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        quarantined = None if action == "delete" else plan.quarantined(row["path"])
        yield row["path"], row["size_bytes"], row["modified_micros"], quarantined


def _remove(files: Files, action: Action, newest: int, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield (row["path"], row["size_bytes"], *_removed(files, action, newest, row))


def _removed(files: Files, action: Action, newest: int, row: Mapping[str, Any]) -> tuple[str, str]:
    path, target = row["path"], row["quarantined"]
    try:
        found = files.find(path)
        if found is None:
            # Tasks may run twice, and an earlier try may have been stopped half-way.
            moved = target is not None and files.find(target) is not None
            return ("QUARANTINED", "") if moved else ("GONE", "")
        if found.modified_micros >= newest:
            return "CHANGED", "somebody has written it anew"
        if action == "delete":
            files.delete(path)
            return "DELETED", ""
        if target is None:
            return "FAILED", "the sweep began as one that deletes; go on with that, or collect anew"
        files.move(path, target)
    except (OSError, CannotRun) as error:
        return "FAILED", str(error)
    return "QUARANTINED", ""


def _restore(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield (row["path"], row["size_bytes"], *_restored(files, row["path"], row["quarantined"]))


def _restored(files: Files, path: str, quarantined: str | None) -> tuple[str, str]:
    try:
        if quarantined is None or files.find(quarantined) is None:
            there = files.find(path) is not None
            return ("IN PLACE", "") if there else ("LOST", "it was deleted")
        files.move(quarantined, path)
    except (OSError, CannotRun) as error:
        return "FAILED", str(error)
    return "RESTORED", ""


def _purge(files: Files, rows: Rows) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        outcome, detail = "PURGED", ""
        try:
            files.delete(row["quarantined"])
        except FileNotFoundError:
            outcome = "GONE"
        except (OSError, CannotRun) as error:
            outcome, detail = "FAILED", str(error)
        yield row["path"], row["size_bytes"], outcome, detail
