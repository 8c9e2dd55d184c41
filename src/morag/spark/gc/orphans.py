"""Orphans: listed files that nothing live needs, and that no directory protects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.spark.executors import frame_of
from morag.spark.gc.steps import FIRST_MARK, HOMES, LISTED, PROTECTED_KIND, Reason, Role
from morag.spark.locations import directories_above

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.gc.run import Run


def find_orphans(run: Run) -> DataFrame:
    """Files that are listed, not live, and older than the grace period.

    The join is exact and runs on the executors, however many files there are.
    """
    old = run.read(LISTED).where(F.col("modified_micros") < run.plan.newest_micros)
    return without(old, run.live)


def protected_files(run: Run, found: DataFrame, files: DataFrame) -> DataFrame:
    """The `files` in directories whose files are all protected, as rows like `found`.

    Protected are the directories of contents that are not Iceberg's; and, if a metadata file of a
    table is missing or on an unknown store, all directories that the table has or had according to
    the rest of its metadata.
    """
    role = F.col("role")
    doubtful = found.where(role.isin(Role.KEPT, Role.MISSING, Role.ELSEWHERE))
    if doubtful.isEmpty():
        return frame_of(run.spark, [], FIRST_MARK.protected.schema)
    named = doubtful.where(role == Role.KEPT).select(F.col("spelling").alias("directory"))
    incomplete = doubtful.where(role != Role.KEPT).select("content_id").distinct()
    homes = run.read(HOMES).join(incomplete, "content_id", "left_semi")
    directories = named.union(homes.select("location")).distinct()
    above = files.select("path", F.explode(directories_above("path")).alias("directory"))
    inside = above.join(directories.hint("merge"), "directory").groupBy("path")
    return inside.agg(F.min("directory").alias("detail")).select(
        F.lit(Role.FILE.value).alias("role"),
        F.lit(PROTECTED_KIND).alias("kind"),
        "path",
        F.col("path").alias("spelling"),
        "detail",
        F.lit(None).cast("string").alias("content_id"),
    )


def count_kept_files(run: Run) -> DataFrame:
    """How many of the listed files are not orphans, for each `Reason`."""
    protected = F.col("kind") == PROTECTED_KIND
    live = (
        run.live.where("spelling IS NOT NULL")
        .groupBy(F.col("spelling").alias("path"))
        .agg(
            F.max(~protected).alias("needed"),
            F.min(F.when(protected, F.col("detail"))).alias("directory"),
        )
    )
    doubtful = _doubtful_directories(run).withColumn("doubtful", F.lit(True))
    modified, newest = F.col("modified_micros"), run.plan.newest_micros
    reason = (
        F.when(F.col("needed"), Reason.LIVE)
        .when(F.col("doubtful"), Reason.NOT_UNDERSTOOD)
        .when(F.col("directory").isNotNull(), Reason.PROTECTED)
        .when(modified.isNull(), Reason.UNDATED)
        .when(modified >= newest, Reason.YOUNG)
    )
    listed = run.read(LISTED).join(live.hint("merge"), "path", "left")
    with_reason = listed.join(doubtful, "directory", "left").withColumn("reason", reason)
    return (
        with_reason.where("reason IS NOT NULL")
        .groupBy("reason")
        .agg(
            F.count(F.lit(1)).alias("files"),
            F.sum("size_bytes").alias("size_bytes"),
            F.max("modified_micros").alias("newest_micros"),
        )
    )


def _doubtful_directories(run: Run) -> DataFrame:
    """The protected directories of tables whose metadata is missing or cannot be read."""
    bad = run.problems.select("content_id").distinct()
    homes = run.read(HOMES).join(bad, "content_id", "left_semi").select("location")
    around = run.kept_directories.where("detail IS NOT NULL").select("spelling")
    return homes.union(around).toDF("directory").distinct()


# The joins below are sort-merge joins: a broadcast join would hold the paths in the driver.


def without(files: DataFrame, found: DataFrame) -> DataFrame:
    """The files whose path is none of the spellings in `found`."""
    live = found.where("spelling IS NOT NULL").select(F.col("spelling").alias("path"))
    return files.join(live.hint("merge"), "path", "left_anti")


def among(files: DataFrame, others: DataFrame) -> DataFrame:
    """The files whose path is also one of `others`."""
    return files.join(others.select("path").hint("merge"), "path", "left_semi")
