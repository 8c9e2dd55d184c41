"""How a lake is doing: what is lost, what nobody needs, and how much there is of everything."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView
from morag.spark import lake
from morag.spark.directories import directories_above
from morag.spark.errors import CannotRun
from morag.spark.files import Files
from morag.spark.places import listed_as
from morag.spark.progress import computed
from morag.spark.spread import spread
from morag.spark.states import Size, described, size_of, snapshot_of, state_of
from morag.spark.tables import content_of, read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from morag.model.content import Content
    from morag.spark.gc import Run
    from morag.spark.opening import Origin
    from morag.spark.progress import Telling
    from morag.spark.spread import Rows

OK: Final = "OK"
MISSING: Final = "MISSING"
UNREADABLE: Final = "UNREADABLE"
BROKEN: Final = "BROKEN"

_LOOKED_AT: Final = (
    "key ARRAY<STRING>, content_type STRING, content_id STRING, metadata_location STRING, "
    "status STRING, problem STRING, location STRING, manifest_list STRING, "
    "manifests ARRAY<STRING>, snapshots BIGINT, rows BIGINT, files BIGINT, bytes BIGINT"
)
# `lost`: Which file is not there, or makes no sense; `unread`: which one cannot be reached.
_WITH_MANIFESTS: Final = (
    f"{_LOOKED_AT}, manifest STRING, missing BIGINT, lost STRING, unread STRING"
)


def report(
    spark: SparkSession,
    origin: Origin,
    ref: str | None = None,
    *,
    deep: bool = False,
    orphans: Run | None = None,
    files: Mapping[str, str] | None = None,
    progress: Telling | None = None,
) -> DataFrame:
    """One row per content of a reference, by default of the default branch.

    `status` is OK; MISSING or UNREADABLE, for its metadata; or BROKEN, if files are lost that its
    current snapshot needs, which only a `deep` look tells: it reads all manifests and looks for
    every data file. What that look cannot reach is UNREADABLE, too. `problem` says more. `orphans`
    is a run of the garbage collector that has found them; then each table is told how many are in
    its location. `rows`, `files` and `bytes` are the current snapshot's, as its summary has them.
    With `progress` the report is computed and kept before this returns; else its last step is made
    when the report is asked for: to read metadata, or, if `deep`, to look for data files.
    """

    def build() -> DataFrame:
        lake_files = Files(dict(files or {}))
        entries = read_table(spark, origin, "entries", {} if ref is None else {"ref": ref})
        wanted = entries.select("key", "content_type", "content_id", "content")
        found = spread(wanted, partial(_look, lake_files), _LOOKED_AT)
        checked = _with_missing(found, lake_files, deep).drop("manifest_list", "manifests")
        # Who keeps the report would else keep it in hundreds of parts, most of them empty.
        return _with_orphans(checked, orphans).coalesce(found.rdd.getNumPartitions())

    return computed(spark, build, "report", progress)


def totals(report: DataFrame) -> DataFrame:
    """The report in a few lines: how many of what, in which state."""
    sums = ("rows", "files", "bytes", "missing_files", "orphan_files", "orphan_bytes")
    return (
        report.groupBy("content_type", "status")
        .agg(F.count(F.lit(1)).alias("contents"), *(F.sum(name).alias(name) for name in sums))
        .orderBy("content_type", "status")
    )


class _Look(Struct, frozen=True):
    """What one look at a content's metadata tells; `manifests` are those that no list names."""

    location: str | None = None
    manifest_list: str | None = None
    manifests: tuple[str, ...] = ()
    snapshots: int | None = None
    size: Size = Size()


def _look(files: Files, entries: Rows) -> Iterator[tuple[Any, ...]]:
    for entry in entries:
        content = content_of(entry["content"])
        status, problem, found = OK, None, _Look()
        try:
            found = _looked(content, files)
        except FileNotFoundError as error:
            status, problem = MISSING, str(error)
        except (CannotRun, OSError) as error:
            status, problem = UNREADABLE, str(error)
        yield (
            entry["key"],
            entry["content_type"],
            entry["content_id"],
            getattr(content, "metadata_location", None),
            status,
            problem,
            found.location,
            found.manifest_list,
            list(found.manifests),
            found.snapshots,
            found.size.rows,
            found.size.files,
            found.size.size_bytes,
        )


def _looked(content: Content, files: Files) -> _Look:
    match content:
        case IcebergTable():
            return _looked_at_table(content, files)
        case IcebergView():
            return _Look(listed_as(state_of(content, files).facts["location"]))
        case DeltaLakeTable():
            named = (*content.metadata_location_history, *content.checkpoint_location_history)
            return _there(files, *named, content.last_checkpoint)
        case UDF():
            return _there(files, content.metadata_location)
        case _:
            return _Look()


def _looked_at_table(content: IcebergTable, files: Files) -> _Look:
    text = lake.metadata_text(files, content.metadata_location)
    metadata = described(text, content)
    size = size_of(snapshot_of(content, metadata))
    named = lake.outlined(text, content.metadata_location).snapshots or ()
    none = lake.Snapshot(content.snapshot_id)
    current = next((each for each in named if each.snapshot_id == content.snapshot_id), none)
    return _Look(
        listed_as(metadata.location),
        current.manifest_list,
        current.manifests,
        len(metadata.snapshots),
        size,
    )


def _there(files: Files, *locations: str | None) -> _Look:
    for location in locations:
        if location and not files.is_there(location):
            raise FileNotFoundError(location)
    return _Look()


def _with_missing(found: DataFrame, files: Files, deep: bool) -> DataFrame:
    """Each step hands on what is known already, so that none is made twice."""
    if not deep:
        return found.withColumn("missing_files", F.lit(None).cast("bigint"))
    manifests = spread(found, partial(_manifests, files), _WITH_MANIFESTS)
    checked = spread(manifests, partial(_missing, files), _WITH_MANIFESTS)
    counted = checked.groupBy(*found.columns).agg(
        F.sum("missing").alias("missing_files"),
        *(F.first(name, ignorenulls=True).alias(name) for name in ("lost", "unread")),
    )
    status = F.when(F.col("lost").isNotNull(), BROKEN).when(F.col("unread").isNotNull(), UNREADABLE)
    return counted.select(
        *(name for name in found.columns if name not in ("status", "problem")),
        status.otherwise(F.col("status")).alias("status"),
        F.coalesce("problem", "lost", "unread").alias("problem"),
        "missing_files",
    ).select(*found.columns, "missing_files")


def _manifests(files: Files, tables: Rows) -> Iterator[tuple[Any, ...]]:
    for table in tables:
        known, named, found = tuple(table), table["manifest_list"], table["manifests"]
        if named is None and not found:
            yield (*known, None, None, None, None)
            continue
        try:
            if named is not None:
                found = list(lake.manifests(files, named))
        except (FileNotFoundError, lake.Unreadable) as error:
            yield (*known, None, 1, str(error), None)
            continue
        except (CannotRun, OSError) as error:
            yield (*known, None, 0, None, str(error))
            continue
        yield (*known, None, 0, None, None)  # For a snapshot without manifests.
        for manifest in found:
            yield (*known, manifest, 0, None, None)


def _missing(files: Files, manifests: Rows) -> Iterator[tuple[Any, ...]]:
    for row in manifests:
        if row["manifest"] is None:
            yield tuple(row)
        else:
            yield (*tuple(row)[:-3], *_looked_for(files, row["manifest"]))


def _looked_for(files: Files, manifest: str) -> tuple[int, str | None, str | None]:
    """Of the files of a manifest: how many are missing, one of these, and one out of reach."""
    missing, lost, unread = 0, None, None
    try:
        for _, path in lake.data_files(files, manifest):
            try:
                if not files.is_there(path):
                    missing, lost = missing + 1, f"'{path}' is missing"
            except (CannotRun, OSError) as error:
                unread = str(error)
    except (FileNotFoundError, lake.Unreadable) as error:
        missing, lost = missing + 1, str(error)
    except (CannotRun, OSError) as error:
        unread = str(error)
    return missing, lost, unread


def _with_orphans(found: DataFrame, run: Run | None) -> DataFrame:
    if run is None:
        nothing = F.lit(None).cast("bigint")
        return found.withColumn("orphan_files", nothing).withColumn("orphan_bytes", nothing)
    above = run.orphans.select(F.explode(directories_above("path")).alias("location"), "size_bytes")
    counted = above.groupBy("location").agg(
        F.count(F.lit(1)).alias("orphan_files"), F.sum("size_bytes").alias("orphan_bytes")
    )
    joined = found.join(counted.hint("merge"), "location", "left")
    is_table = F.col("location").isNotNull()
    return joined.select(
        *found.columns,
        *(
            F.when(is_table, F.coalesce(name, F.lit(0))).alias(name)
            for name in ("orphan_files", "orphan_bytes")
        ),
    )
