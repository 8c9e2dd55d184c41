"""Orphans: files that are there and that nothing leads to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from morag.spark.gc.records import Run


def find_orphans(run: Run) -> DataFrame:
    """Listed, not live, and old enough: an exact join on the executors, however many there are."""
    old = run.read("listed").where(F.col("modified_micros") < run.plan.newest_micros)
    return without(old, run.live)


def without(frame: DataFrame, found: DataFrame) -> DataFrame:
    """The rows whose path is none of the spellings. Sorted, not broadcast: that would be held by
    the driver."""
    kept = found.where("spelling IS NOT NULL").select(F.col("spelling").alias("path"))
    return frame.join(kept.hint("merge"), "path", "left_anti")
