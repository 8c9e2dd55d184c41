"""The lock of a run: two jobs at once would move the same files and overwrite the records."""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from morag.spark.errors import CannotRun
from morag.spark.gc.record_files import HadoopFiles
from morag.spark.gc.records import LOCK, Records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from morag.spark.gc.record_files import RecordFiles
    from morag.spark.gc.run import Run


class _Holder(Struct, frozen=True):
    name: str
    host: str
    process: int
    started: str

    def __str__(self) -> str:
        return f"{self.name}, process {self.process} on '{self.host}', since {self.started}"


@contextmanager
def locked(run: Run, name: str) -> Iterator[None]:
    """Hold the run's lock during the `with` block, or raise CannotRun if another job has it."""
    path = f"{run.path}/{LOCK}"
    holder = msgspec.json.encode(_Holder(name, platform.node(), os.getpid(), run.now()))
    if not run.files.create(path, holder):
        raise CannotRun(
            f"Another job works on the run '{run.path}': {_holder(run.files, path)}. If it was "
            "killed, unlock the run (morag spark gc unlock)"
        )
    try:
        yield
    finally:
        with suppress(Py4JError):  # If Java is gone, the user unlocks the run.
            # If the run was unlocked during this job, the lock may be that of another job.
            if run.files.read(path) == holder:
                run.files.remove(path)


def unlock(spark: SparkSession, path: str) -> None:
    """Remove the lock that a killed job left. The caller knows that no job is running."""
    Records(HadoopFiles(spark), path).unlock()


def _holder(files: RecordFiles, path: str) -> str:
    try:
        return str(msgspec.json.decode(files.read(path) or b"", type=_Holder))
    except msgspec.DecodeError:
        return "it has just started or ended"
