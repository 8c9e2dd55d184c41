"""Whether all that a job has Spark do is done under somebody's eyes."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_UNWATCHED: Final = "unwatched"


@contextmanager
def all_watched(spark: SparkSession) -> Iterator[None]:
    """Fail if Spark does anything in the block that `watched` is not around of."""
    context = spark.sparkContext
    context.setJobGroup(_UNWATCHED, "what nobody watches")
    try:
        yield
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # Removes it.
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert list(context.statusTracker().getJobIdsForGroup(_UNWATCHED)) == []
