"""One job at a time: two at work on a run would move the same files, and overwrite its records."""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from morag.spark.errors import CannotRun
from morag.spark.gc import facts
from morag.spark.gc.records import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_BUSY: Final = "busy"


class _Job(Struct, frozen=True):
    name: str
    host: str
    process: int
    started: str

    def __str__(self) -> str:
        return f"{self.name}, process {self.process} on '{self.host}', since {self.started}"


@contextmanager
def alone(run: Run, name: str) -> Iterator[None]:
    """Keep other jobs off the run in the `with` block, or refuse to enter it."""
    path = f"{run.path}/{_BUSY}"
    job = _Job(name, platform.node(), os.getpid(), run.now())
    if not facts.create(run.spark, path, msgspec.json.encode(job)):
        raise CannotRun(
            f"A job is at work on the run '{run.path}': {_told(run.spark, path)}. If it was "
            "killed, unlock the run (morag spark gc unlock)"
        )
    try:
        yield
    finally:
        with suppress(Py4JError):  # Without Java nobody is kept off for long: it is unlocked.
            facts.remove(run.spark, path)


def unlock(spark: SparkSession, path: str) -> Run:
    """Let jobs in again after one was killed. Whoever calls this knows that none is at work."""
    run = Run(spark, path)
    facts.remove(spark, f"{run.path}/{_BUSY}")
    return run


def _told(spark: SparkSession, path: str) -> str:
    try:
        return str(msgspec.json.decode(facts.read(spark, path) or b"", type=_Job))
    except msgspec.DecodeError:
        return "it has just begun or ended"
