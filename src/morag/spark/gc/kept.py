"""Keep: files that no metadata names stay as well, where what needs them is not understood."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.directories import directories_above
from morag.spark.spread import frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.gc.records import Run


def kept_files(run: Run, found: DataFrame, files: DataFrame) -> DataFrame:
    """Those of `files` that are below a directory of which everything stays, as rows like `found`.

    These directories are where contents are that are not Iceberg's; and, of tables whose metadata
    is not known as a whole, wherever any of it says that they are or were.
    """
    doubtful = found.where("role IN ('KEPT', 'MISSING', 'ELSEWHERE')")
    if doubtful.isEmpty():
        return frame_of(run.spark, [], found.schema.toDDL())
    named = doubtful.where("role = 'KEPT'").select(F.col("spelling").alias("directory"))
    unknown = doubtful.where("role != 'KEPT'").select("content_id").distinct()
    homes = run.read("homes").join(unknown, "content_id", "left_semi")
    directories = named.union(homes.select("location")).distinct()
    above = files.select("path", F.explode(directories_above("path")).alias("directory"))
    inside = above.join(directories.hint("merge"), "directory").groupBy("path")
    return inside.agg(F.min("directory").alias("detail")).select(
        F.lit("FILE").alias("role"),
        F.lit("kept").alias("kind"),
        "path",
        F.col("path").alias("spelling"),
        "detail",
        F.lit(None).cast("string").alias("content_id"),
    )
