"""Checks that all of Spark's jobs report progress."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_UNWATCHED: Final = "unwatched"


@contextmanager
def all_watched(spark: SparkSession) -> Iterator[None]:
    """Fail if a job of Spark runs in the block outside of `watched`."""
    context = spark.sparkContext
    context.setJobGroup(_UNWATCHED, "not watched")
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # Removes it.
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert list(context.statusTracker().getJobIdsForGroup(_UNWATCHED)) == []
