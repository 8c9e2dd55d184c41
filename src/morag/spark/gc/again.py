"""Mark again: what has come to life since a run started."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.spark.gc.expand import FOUND, expand, live_metadata
from morag.spark.gc.kept import kept_files
from morag.spark.gc.mark import contents_of
from morag.spark.gc.quarantine import Behind
from morag.spark.gc.records import union
from morag.spark.gc.roots import ROOTS, find_roots
from morag.spark.spread import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.files import Files
    from morag.spark.gc.records import Run
    from morag.spark.gc.roots import Root
    from morag.spark.opening import Origin


def mark_again(run: Run, origin: Origin, files: Files, prefix: str) -> DataFrame:
    """The files of what is live now and was not when the run started, and what could not be read.

    Read as if nothing had moved: an earlier try to sweep may have been stopped half-way.
    """
    with origin.open() as catalog:
        roots = find_roots(catalog, run.plan, dropped=False)
    rows = [root.row() for root in roots]
    run.make(f"{prefix}-refs", lambda: frame_of(run.spark, rows, ROOTS))
    moved = _moved(run, roots)
    if not moved:
        return frame_of(run.spark, [], FOUND)
    starts = frame_of(run.spark, [root.row() for root in moved], ROOTS)
    made = run.make(f"{prefix}-contents", lambda: contents_of(origin, starts, whole=False))
    snapshots = run.plan.snapshots
    new = live_metadata(made, snapshots).subtract(live_metadata(run.contents, snapshots))
    found = expand(run, new, Behind(files.options, plan=run.plan), prefix, anew=True)
    kept = run.make(f"{prefix}-kept", partial(kept_files, run, found, run.orphans))
    return union([found, kept])


def _moved(run: Run, roots: list[Root]) -> list[Root]:
    """The references that are new or elsewhere; of the latter, what lies above where they were."""
    before = {root.root: root.hash for root in run.roots()}
    return [
        replace(root, until=before.get(root.root))
        for root in roots
        if before.get(root.root) != root.hash
    ]
