"""The parts of commands that need PySpark: a session, sums, Parquet output, readable errors."""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.

from morag.errors import ArchiveInvalid, MoragError, RepositoryCorrupt
from morag.spark.errors import CannotRun
from morag.spark.java import silent_child_processes
from morag.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, Row

# The last line of a Python traceback, which may stand in the middle of a Java one.
_MORAG_ERROR: Final = re.compile(r"^\s*morag\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
_PYTHON_ERROR: Final = re.compile(r"^\s*([\w.]*(?:Error|Exception|Interrupt)): (.+)$", re.MULTILINE)

_DAMAGE: Final[dict[str, type[MoragError]]] = {
    "ArchiveInvalid": ArchiveInvalid,
    "FileMissing": ArchiveInvalid,
    "ObjectMissing": RepositoryCorrupt,
    "RepositoryCorrupt": RepositoryCorrupt,
}
"""Errors with an exit code of their own, by the name that a report of an executor has."""


@contextmanager
def command_session(
    master: str | None, jars: Sequence[str], conf: Mapping[str, str], quiet: bool = False
) -> Iterator[SparkSession]:
    """A session that ends with the command, unless it existed before.

    If it is `quiet`, Java prints nothing, unless it cannot run at all.
    """
    if SparkSession.getActiveSession() is not None:
        yield session(master=master, jars=jars, conf=conf)
        return
    _silence_logs()
    with silent_child_processes() if quiet else nullcontext():
        spark = session(master=master, jars=jars, conf={"spark.log.level": "ERROR", **conf})
    try:
        yield spark
    finally:
        with suppress(Py4JError):  # Java ends with this process, whether it answers or not.
            spark.stop()


def count_files(files: DataFrame, *by: str) -> list[Row]:
    """The number of `files` and the sum of their `bytes`, grouped by columns."""
    size_bytes = F.coalesce(F.sum("size_bytes"), F.lit(0))
    sums = files.groupBy(*by).agg(F.count(F.lit(1)).alias("files"), size_bytes.alias("bytes"))
    return (sums.orderBy(*by) if by else sums).collect()


def write_parquet(frame: DataFrame, path: str) -> None:
    """Write the rows to a new path. An existing path is refused: its files may be needed."""
    try:
        frame.write.mode("errorifexists").parquet(path)
    except AnalysisException as error:
        if error.getCondition() != "PATH_ALREADY_EXISTS":
            raise
        raise CannotRun(f"'{path}' exists already; name another path") from error


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turn an error of Spark into one of ours with the message that caused it.

    An error of our own code on an executor is shown by its message alone: the Java and Python
    traces around it do not help. Damage that an executor found stays damage, all else is CannotRun.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if _was_interrupted(error):
            raise KeyboardInterrupt from error
        report = str(error)
        raise _kind(report)(root_message(report)) from error


def root_message(report: str) -> str:
    """The message of the error that caused a report of Spark."""
    own = _MORAG_ERROR.search(report)
    if own is not None:
        return own[2]
    python = _PYTHON_ERROR.findall(report)
    if python:
        name, message = python[-1]
        return f"Spark failed: {name}: {message}"
    return f"Spark failed: {report.strip().partition(chr(10))[0]}"


def _kind(report: str) -> type[MoragError]:
    own = _MORAG_ERROR.search(report)
    return CannotRun if own is None else _DAMAGE.get(own[1], CannotRun)


def _was_interrupted(error: BaseException) -> bool:
    """Whether Spark failed only because the user pressed Ctrl-C."""
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, KeyboardInterrupt):
            return True
        at = at.__cause__ or at.__context__
    return False


def _silence_logs() -> None:
    """Py4J and PySpark log, with traces, the errors that they also raise."""
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    shown = logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    shown.addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    logging.getLogger().addHandler(shown)
