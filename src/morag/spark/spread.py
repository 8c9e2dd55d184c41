"""Python functions over the rows of a DataFrame, on the executors."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zipimport import zipimporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

Rows: TypeAlias = "Iterator[Mapping[str, Any]]"
Work: TypeAlias = "Callable[[Rows], Iterator[tuple[Any, ...]]]"

_TASKS_PER_CORE: Final = 4  # Some rows are a hundred times the work of others.


def spread(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """What `work` makes of the rows, which it gets in parts, one per task.

    The number of parts is fixed: Spark would put rows as small as these into one.
    """
    return mapped(frame.repartition(tasks(frame.sparkSession)), work, schema)


def tasks(spark: SparkSession) -> int:
    """In how many parts rows are worked on."""
    most = int(spark.conf.get("spark.sql.shuffle.partitions") or _TASKS_PER_CORE)
    return min(most, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)


def mapped(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """The same without moving rows around before.

    Through an RDD, since `mapInArrow` does not run without Pandas, for which nothing else asks.
    """
    rows = frame.rdd.mapPartitions(partial(_worked, work))
    return frame.sparkSession.createDataFrame(rows, schema, verifySchema=False)


def frame_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """A few rows of the driver's."""
    return spark.createDataFrame(rows, schema, verifySchema=False)


def _worked(work: Work, rows: Any) -> Iterator[tuple[Any, ...]]:
    try:
        yield from work(rows)
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Let the worker's next task start at once.

    A task begins by dropping the caches of imports, for which Python 3.11 reads the zip file that
    Spark ships PySpark in, again for each of its packages: 0.2 seconds, ten times a small task.
    """
    finders = sys.path_importer_cache
    for path in [path for path, finder in finders.items() if isinstance(finder, zipimporter)]:
        del finders[path]
