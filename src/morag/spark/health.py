"""Reports on the contents of a reference: lost files, orphans, counts and sizes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView
from morag.spark import iceberg_metadata
from morag.spark.catalog_tables import content_of, read_table
from morag.spark.content_state import Size, parse_table_metadata, size_of, snapshot_of, state_of
from morag.spark.errors import CannotRun
from morag.spark.executors import map_rows
from morag.spark.files import Files
from morag.spark.locations import directories_above, listing_prefix
from morag.spark.progress import computed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from morag.model.content import Content
    from morag.spark.executors import Rows
    from morag.spark.gc import Run
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback

OK: Final = "OK"
MISSING: Final = "MISSING"
UNREADABLE: Final = "UNREADABLE"
BROKEN: Final = "BROKEN"

_CHECKED: Final = (
    "key ARRAY<STRING>, content_type STRING, content_id STRING, metadata_location STRING, "
    "status STRING, problem STRING, location STRING, manifest_list STRING, "
    "manifests ARRAY<STRING>, snapshots BIGINT, rows BIGINT, files BIGINT, bytes BIGINT"
)
# `lost`: a file that is missing or damaged; `unread`: a file that cannot be reached.
_WITH_MANIFESTS: Final = f"{_CHECKED}, manifest STRING, missing BIGINT, lost STRING, unread STRING"


def report(
    spark: SparkSession,
    origin: Origin,
    ref: str | None = None,
    *,
    deep: bool = False,
    orphans: Run | None = None,
    files: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> DataFrame:
    """One row per content of a reference, by default of the default branch.

    `status` is OK; MISSING or UNREADABLE, for its metadata; or BROKEN, if its current snapshot
    needs files that are lost. Only a `deep` check finds these: it reads all manifests and checks
    that every data file exists. Files that it cannot reach make the content UNREADABLE, too.
    `problem` has the details. `orphans` is a run of the garbage collector that found orphans; then
    each table gets the number of them in its location. `rows`, `files` and `bytes` are from the
    summary of the current snapshot. With `progress` the report is computed and kept before this
    returns; otherwise its last step runs when the report is used: to read metadata, or, if `deep`,
    to look for data files.
    """

    def build() -> DataFrame:
        lake_files = Files(dict(files or {}))
        entries = read_table(spark, origin, "entries", {} if ref is None else {"ref": ref})
        wanted = entries.select("key", "content_type", "content_id", "content")
        found = map_rows(wanted, partial(_check_metadata, lake_files), _CHECKED)
        checked = _with_missing_files(found, lake_files, deep).drop("manifest_list", "manifests")
        # Otherwise the report would be stored in hundreds of parts, most of them empty.
        return _with_orphans(checked, orphans).coalesce(found.rdd.getNumPartitions())

    return computed(spark, build, "report", progress)


def totals(report: DataFrame) -> DataFrame:
    """The report in a few lines: counts by type and status."""
    sums = ("rows", "files", "bytes", "missing_files", "orphan_files", "orphan_bytes")
    return (
        report.groupBy("content_type", "status")
        .agg(F.count(F.lit(1)).alias("contents"), *(F.sum(name).alias(name) for name in sums))
        .orderBy("content_type", "status")
    )


class _Facts(Struct, frozen=True):
    """The facts from a content's metadata; `manifests` are those without a manifest list."""

    location: str | None = None
    manifest_list: str | None = None
    manifests: tuple[str, ...] = ()
    snapshots: int | None = None
    size: Size = Size()


def _check_metadata(files: Files, entries: Rows) -> Iterator[tuple[Any, ...]]:
    for entry in entries:
        content = content_of(entry["content"])
        status, problem, found = OK, None, _Facts()
        try:
            found = _facts(content, files)
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


def _facts(content: Content, files: Files) -> _Facts:
    match content:
        case IcebergTable():
            return _table_facts(content, files)
        case IcebergView():
            return _Facts(listing_prefix(state_of(content, files).facts["location"]))
        case DeltaLakeTable():
            named = (*content.metadata_location_history, *content.checkpoint_location_history)
            return _check_existing(files, *named, content.last_checkpoint)
        case UDF():
            return _check_existing(files, content.metadata_location)
        case _:
            return _Facts()


def _table_facts(content: IcebergTable, files: Files) -> _Facts:
    text = iceberg_metadata.metadata_text(files, content.metadata_location)
    metadata = parse_table_metadata(text, content)
    size = size_of(snapshot_of(content, metadata))
    named = iceberg_metadata.decode_outline(text, content.metadata_location).snapshots or ()
    none = iceberg_metadata.Snapshot(content.snapshot_id)
    current = next((each for each in named if each.snapshot_id == content.snapshot_id), none)
    return _Facts(
        listing_prefix(metadata.location),
        current.manifest_list,
        current.manifests,
        len(metadata.snapshots),
        size,
    )


def _check_existing(files: Files, *locations: str | None) -> _Facts:
    for location in locations:
        if location and not files.exists(location):
            raise FileNotFoundError(location)
    return _Facts()


def _with_missing_files(found: DataFrame, files: Files, deep: bool) -> DataFrame:
    """Each step passes on the results so far, so that no step is repeated."""
    if not deep:
        return found.withColumn("missing_files", F.lit(None).cast("bigint"))
    manifests = map_rows(found, partial(_find_manifests, files), _WITH_MANIFESTS)
    checked = map_rows(manifests, partial(_check_manifests, files), _WITH_MANIFESTS)
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


def _find_manifests(files: Files, tables: Rows) -> Iterator[tuple[Any, ...]]:
    for table in tables:
        known, named, found = tuple(table), table["manifest_list"], table["manifests"]
        if named is None and not found:
            yield (*known, None, None, None, None)
            continue
        try:
            if named is not None:
                found = list(iceberg_metadata.read_manifest_list(files, named))
        except (FileNotFoundError, iceberg_metadata.Unreadable) as error:
            yield (*known, None, 1, str(error), None)
            continue
        except (CannotRun, OSError) as error:
            yield (*known, None, 0, None, str(error))
            continue
        yield (*known, None, 0, None, None)  # For a snapshot without manifests.
        for manifest in found:
            yield (*known, manifest, 0, None, None)


def _check_manifests(files: Files, manifests: Rows) -> Iterator[tuple[Any, ...]]:
    for row in manifests:
        if row["manifest"] is None:
            yield tuple(row)
        else:
            yield (*tuple(row)[:-3], *_check_data_files(files, row["manifest"]))


def _check_data_files(files: Files, manifest: str) -> tuple[int, str | None, str | None]:
    """For the files of a manifest: how many are missing, one of them, and one out of reach."""
    missing, lost, unread = 0, None, None
    try:
        for _, path in iceberg_metadata.read_manifest(files, manifest):
            try:
                if not files.exists(path):
                    missing, lost = missing + 1, f"'{path}' is missing"
            except (CannotRun, OSError) as error:
                unread = str(error)
    except (FileNotFoundError, iceberg_metadata.Unreadable) as error:
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
