"""What commands need around a job: a session for it, sums of what it found, and a place for it."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.

from morag.spark.errors import CannotRun
from morag.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row


@contextmanager
def running(
    master: str | None, jars: Sequence[str], conf: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session that ends with the job, unless it was there before."""
    if SparkSession.getActiveSession() is not None:
        yield session(master=master, jars=jars, conf=conf)
        return
    _hush()
    spark = session(master=master, jars=jars, conf={"spark.log.level": "ERROR", **conf})
    try:
        yield spark
    finally:
        with suppress(Py4JError):  # Java ends with this process, whether it answers or not.
            spark.stop()


def _hush() -> None:
    """Py4J and PySpark log, with traces, what they raise as well."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    shown = logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    shown.addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    logging.getLogger().addHandler(shown)


def summed(files: DataFrame, *by: str) -> list[Row]:
    """How many `files` there are and how many `bytes` they have, for each value of some columns."""
    size_bytes = F.coalesce(F.sum("size_bytes"), F.lit(0))
    sums = files.groupBy(*by).agg(F.count(F.lit(1)).alias("files"), size_bytes.alias("bytes"))
    return (sums.orderBy(*by) if by else sums).collect()


def written(frame: DataFrame, path: str) -> None:
    """The rows as Parquet, at a new place only: whatever is at another may be somebody's."""
    try:
        frame.write.mode("errorifexists").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise CannotRun(f"'{path}' exists already; name another path") from error
