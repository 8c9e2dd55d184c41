"""A run from its start: mark, expand, list, and find what nothing leads to."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from morag.client import Client
from morag.model.configs import GarbageCollectorConfig
from morag.model.durations import parse_duration
from morag.model.times import instant_text
from morag.spark.errors import CannotRun
from morag.spark.files import Files
from morag.spark.gc.busy import alone
from morag.spark.gc.expand import expand, live_metadata
from morag.spark.gc.homes import find_homes
from morag.spark.gc.kept import kept_files
from morag.spark.gc.known import check_quarantine
from morag.spark.gc.listing import find_locations, listed
from morag.spark.gc.mark import contents_of
from morag.spark.gc.orphans import find_orphans
from morag.spark.gc.own import check_own
from morag.spark.gc.plan import Plan
from morag.spark.gc.policies import Policies
from morag.spark.gc.records import Run
from morag.spark.gc.roots import ROOTS, find_roots
from morag.spark.gc.sweep import sweep
from morag.spark.places import Place, listed_as
from morag.spark.spread import frame_of
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.gc.plan import Snapshots
    from morag.spark.gc.quarantine import Action
    from morag.spark.opening import Origin
    from morag.spark.progress import Telling
    from morag.versions.repository import Repository

_GRACE: Final = "P3D"


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
    progress: Telling | None = None,
    world: World | None = None,
) -> Run:
    """Find the files that nothing live leads to, and record them in a run below `directory`.

    `cutoff` says how far back commits are live: NONE, a number of commits, a duration or a moment;
    `cutoffs` says it per pattern of reference names. `grace` is how old a file must be to go. What
    is not given is as the repository's configuration says, and else NONE and three days; a `cutoff`
    that is given sets all configured ones aside.

    `snapshots` are those of the live metadata that keep their files: all, or the current one alone,
    as the original has it. `dropped` looks also where tables were that are not live any more;
    `locations` are further directories that hold nothing but files of this catalog. Nothing is
    removed while metadata of live contents is missing; with `ignore_missing`, nothing of the tables
    that it belongs to.

    Nothing is removed on a dry run: `sweep` the run later, as it is. Else the files are moved into
    the `quarantine`, by default on their own disk or in their own bucket. One that is a directory
    is for files on disk, and one on S3 for files on S3.
    `files` are options of PyIceberg for reaching files, such as `s3.endpoint`.
    """
    world = world or World()
    now = world.clock_nanos()
    with origin.open() as catalog:
        config = _config(catalog)
    policies = Policies.of(config, cutoff, cutoffs or {})
    policies.check(now)
    configured = None if config is None else config.new_files_grace_period
    grace_nanos = parse_duration(grace or configured or _GRACE)
    if grace_nanos < 0:
        raise CannotRun("The grace period of new files must not be negative: they are being used")
    plan = Plan(
        id=_id(now, world),
        origin=str(origin),
        now_nanos=now,
        policies=policies,
        grace_nanos=grace_nanos,
        snapshots=_checked(snapshots),
        dropped=dropped,
        locations=tuple(_checked_location(each) for each in locations),
        ignore_missing=ignore_missing,
        quarantine=None if quarantine is None else listed_as(quarantine),
        records=_records(directory),
    )
    run = Run.start(spark, directory, plan, progress, world)
    return _go_on(run, origin, dry_run, action, files, progress)


def resume(
    spark: SparkSession,
    path: str,
    origin: Origin,
    *,
    dry_run: bool = True,
    action: Action = "quarantine",
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> Run:
    """Go on with a run that was stopped. Steps that were made stay as they are."""
    return _go_on(Run(spark, path, progress), origin, dry_run, action, files, progress)


def _go_on(
    run: Run,
    origin: Origin,
    dry_run: bool,
    action: Action,
    files: Mapping[str, str] | None,
    progress: Telling | None,
) -> Run:
    lake = Files(dict(files or {}))
    whole = run.plan.dropped
    with alone(run, "collect"):
        check_own(run, origin)
        run.once("refs", partial(_roots, run, origin))
        run.once("contents", lambda: contents_of(origin, run.read("refs"), whole=whole))
        needed = expand(run, live_metadata(run.contents, run.plan.snapshots), lake, "live")
        run.once("homes", partial(find_homes, run, lake))
        run.once("locations", partial(find_locations, run))
        check_quarantine(run)
        run.once("listed", partial(listed, run, lake))
        run.once("live-kept", partial(kept_files, run, needed, run.read("listed")))
        run.once("orphans", partial(find_orphans, run))
    if dry_run:
        return run
    return sweep(run.spark, run.path, origin, action=action, files=files, progress=progress)


def _roots(run: Run, origin: Origin) -> DataFrame:
    with origin.open() as catalog:
        roots = find_roots(catalog, run.plan, dropped=run.plan.dropped)
    return frame_of(run.spark, [root.row() for root in roots], ROOTS)


def _config(catalog: Client | Repository) -> GarbageCollectorConfig | None:
    if isinstance(catalog, Client):
        return catalog.repository_config()
    found = catalog.configs.get([GarbageCollectorConfig])
    return found[0] if found else None


def _records(directory: str) -> str:
    try:
        return listed_as(directory)
    except CannotRun:
        return directory  # Spark may know more places than we do.


def _checked(snapshots: Snapshots) -> Snapshots:
    if snapshots not in ("all", "current"):
        raise CannotRun(f"Snapshots that stay can be 'all' or 'current', but not '{snapshots}'")
    return snapshots


def _checked_location(location: str) -> str:
    if not Place.of(location).path.strip("/"):
        raise CannotRun(
            f"'{location}' is a whole disk or bucket: name the directories in it that hold nothing "
            "but files of this catalog"
        )
    return location


def _id(now: int, world: World) -> str:
    """Sorts by time, and is a name on every file system."""
    time = instant_text(now // 1_000_000_000 * 1_000_000_000).replace(":", "").replace("-", "")
    return f"{time}-{world.new_uuid().hex()[:8]}"
