"""Python functions that run over the rows of a DataFrame on the executors."""

from __future__ import annotations

import sys
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from zipimport import zipimporter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

Rows: TypeAlias = "Iterator[Mapping[str, Any]]"
Work: TypeAlias = "Callable[[Rows], Iterator[tuple[Any, ...]]]"

_TASKS_PER_CORE: Final = 4  # Some rows are a hundred times the work of others.


def map_rows(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """The rows that `work` makes of the rows of `frame`, distributed over `task_count` tasks.

    The number of tasks is fixed because Spark would put rows as small as these into one task.
    """
    return map_partitions(frame.repartition(task_count(frame.sparkSession)), work, schema)


def task_count(spark: SparkSession) -> int:
    """The number of tasks that `map_rows` distributes rows over."""
    most = int(spark.conf.get("spark.sql.shuffle.partitions") or _TASKS_PER_CORE)
    return min(most, spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)


def map_partitions(frame: DataFrame, work: Work, schema: str) -> DataFrame:
    """Like `map_rows`, but the rows stay in the partitions they are in.

    This goes through an RDD because `mapInArrow` needs Pandas, which nothing else here needs.
    """
    rows = frame.rdd.mapPartitions(partial(_work_on_partition, work))
    return frame.sparkSession.createDataFrame(rows, schema, verifySchema=False)


def map_items(
    spark: SparkSession, items: Sequence[Any], work: Callable[[Any], Iterator[Any]], tasks: int
) -> list[Any]:
    """The results of `work` on a few items, collected. Each task gets consecutive items."""
    given = spark.sparkContext.parallelize(items, tasks)
    return given.mapPartitions(partial(_work_on_partition, work)).collect()


def frame_of_items(
    spark: SparkSession,
    items: Sequence[Any],
    work: Callable[[Any], Iterator[tuple[Any, ...]]],
    tasks: int,
    schema: str,
) -> DataFrame:
    """Like `map_items`, as a DataFrame."""
    given = spark.sparkContext.parallelize(items, tasks)
    rows = given.mapPartitions(partial(_work_on_partition, work))
    return spark.createDataFrame(rows, schema, verifySchema=False)


def frame_of(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """A DataFrame of a few rows that the driver holds."""
    return spark.createDataFrame(rows, schema, verifySchema=False)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _work_on_partition(work: Callable[[Any], Iterator[Any]], rows: Any) -> Iterator[Any]:
    try:
        yield from work(rows)
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """Let the worker's next task start at once.

    A task begins by dropping the caches of imports. For that, Python 3.11 reads the zip file that
    Spark ships PySpark in, once for each of its packages: 0.2 seconds, ten times a small task.
    """
    finders = sys.path_importer_cache
    for path in [path for path, finder in finders.items() if isinstance(finder, zipimporter)]:
        del finders[path]
