"""Collect and resume: all steps of a run in order, under one lock."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from morag.spark.files import Files
from morag.spark.gc.expand import expand, live_metadata
from morag.spark.gc.lake_files import find_homes, find_locations, list_files
from morag.spark.gc.lock import locked
from morag.spark.gc.mark import find_contents, find_roots, roots_frame
from morag.spark.gc.orphans import count_kept_files, find_orphans, protected_files
from morag.spark.gc.plan import make_plan
from morag.spark.gc.preconditions import check_quarantine, check_same_catalog
from morag.spark.gc.removal import check_action, remove_orphans
from morag.spark.gc.run import Run
from morag.spark.gc.steps import FIRST_MARK, HOMES, KEPT_FILES, LISTED, LOCATIONS, ORPHANS
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.gc.plan import Snapshots
    from morag.spark.gc.quarantine import Action
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback


def collect(
    spark: SparkSession,
    origin: Origin,
    directory: str,
    *,
    cutoff: str | None = None,
    cutoffs: Mapping[str, str] | None = None,
    grace: str | None = None,
    snapshots: Snapshots = "all",
    dropped: bool = True,
    locations: Sequence[str] = (),
    ignore_missing: bool = False,
    quarantine: str | None = None,
    dry_run: bool = True,
    action: Action = "quarantine",
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
    world: World | None = None,
) -> Run:
    """Find the files that nothing live needs, and record them in a run below `directory`.

    `cutoff` limits how far back commits are live: NONE, a number of commits, a duration or a time;
    `cutoffs` does so by patterns of reference names. `grace` is the age that a file must have to be
    removed. The defaults are those of the repository's configuration, or else NONE and three days.
    A `cutoff` replaces all configured policies.

    `snapshots` are those of the live metadata whose files are kept: all, or only the current one,
    as Nessie does it. `dropped` also lists the directories of tables that are not live any more;
    `locations` are further directories, which must hold nothing but files of this catalog. While
    metadata of live contents is missing, nothing is removed; with `ignore_missing`, only the files
    of the tables that it belongs to are kept.

    A dry run removes nothing; `sweep` can remove its orphans later. Otherwise the files are moved
    into the `quarantine`, by default on their own disk or in their own bucket. A quarantine on
    disk is for files on disk, and one on S3 for files on S3.
    `files` are options of PyIceberg for access to files, such as `s3.endpoint`.
    """
    world = world or World()
    with origin.open() as catalog:
        config = catalog.repository_config()
    plan = make_plan(
        origin,
        config,
        directory,
        world,
        cutoff=cutoff,
        cutoffs=cutoffs or {},
        grace=grace,
        snapshots=snapshots,
        dropped=dropped,
        locations=locations,
        ignore_missing=ignore_missing,
        quarantine=quarantine,
    )
    check_action(action)
    run = Run.start(spark, directory, plan, progress, world)
    with locked(run, "collect"):
        _make_steps(run, origin, Files(dict(files or {})), None if dry_run else action)
    return run


def resume(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    dry_run: bool = True,
    action: Action = "quarantine",
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> Run:
    """Continue a run that was stopped. Completed steps are not repeated."""
    check_action(action)
    run = Run(spark, path, progress)
    with locked(run, "resume"):
        _make_steps(run, origin, Files(dict(files or {})), None if dry_run else action)
    return run


def _make_steps(run: Run, origin: Origin, files: Files, action: Action | None) -> None:
    """The pipeline. Without an action, it ends with the orphans."""
    mark = FIRST_MARK
    check_same_catalog(run, origin)
    refs = run.once(mark.refs, partial(_find_refs, run, origin))
    contents = run.once(mark.contents, lambda: find_contents(origin, refs, whole=run.plan.dropped))
    live = expand(run, live_metadata(contents, run.plan.snapshots), files, mark)
    run.once(HOMES, partial(find_homes, run, files))
    run.once(LOCATIONS, partial(find_locations, run))
    check_quarantine(run)
    listed = run.once(LISTED, partial(list_files, run, files))
    run.once(mark.protected, partial(protected_files, run, live, listed))
    run.once(ORPHANS, partial(find_orphans, run))
    run.once(KEPT_FILES, partial(count_kept_files, run))
    if action is not None:
        remove_orphans(run, origin, files, action)


def _find_refs(run: Run, origin: Origin) -> DataFrame:
    with origin.open() as catalog:
        roots = find_roots(catalog, run.plan, dropped=run.plan.dropped)
    return roots_frame(run.spark, roots)
