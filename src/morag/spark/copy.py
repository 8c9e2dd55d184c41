"""Copies a repository into another store, for example from RocksDB to PostgreSQL.

The executors copy the rows, each a part of them at a time; the driver writes the references last.
A job that was interrupted is started again, and skips the parts that it has copied.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from pyspark.sql import DataFrame

from morag.backend.base import Slice
from morag.backend.urls import StoreUrl
from morag.config import Settings
from morag.errors import StoreBusy
from morag.spark.driver_link import DriverAddress, DriverListener, check_writable
from morag.spark.errors import CannotRun
from morag.spark.executors import map_items, task_count
from morag.spark.fsck import fsck
from morag.spark.opening import Origin, opened_backend
from morag.spark.progress import Pace, watched
from morag.versions.maintenance.copying import (
    CopiedPart,
    CopySource,
    CopyTarget,
    check_different,
    copy_part,
    note_copied,
)
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

    from morag.backend.base import Backend
    from morag.spark.progress import ProgressCallback

PARTS: Final = 128
"""The source is cut into so many parts, each of which is copied as a whole or again."""

_PARTS_PER_TASK: Final = 4
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.2


class Copied(Struct, frozen=True):
    """The result of a copy. `findings` are those of a check of the target; None without a check.

    Rows of parts that an earlier, interrupted job copied are not counted.
    """

    rows: int
    size_bytes: int
    parts: int
    skipped_parts: int
    references: int
    log_lines: int
    findings: DataFrame | None


class _Job(Struct, frozen=True):
    """The parameters of all tasks. Without a `driver`, executors write to the target."""

    source: Origin
    target: Origin
    source_repo: str
    target_repo: str
    parts: int
    state: str
    driver: DriverAddress | None


def copy(
    spark: SparkSession,
    source: Origin,
    target: Origin,
    *,
    parts: int = PARTS,
    check: bool = True,
    progress: ProgressCallback | None = None,
) -> Copied:
    """Copy all rows, references and the ref-log into a store without the repository.

    Servers may go on with the source: the copy has the references of its start. They refuse the
    target until the copy is complete.
    """
    source_url, target_url = _store(source, "source"), _store(target, "target")
    check_different(source_url.text, target_url.text)
    from_settings = source_url.settings(Settings(repository_id=source.repository_id))
    to_settings = target_url.settings(Settings(repository_id=target.repository_id))
    check_writable(spark, target_url)
    world = World()
    with ExitStack() as stack:
        reading = stack.enter_context(opened_backend(source))
        from_repository = CopySource(reading, from_settings, world)
        writing = stack.enter_context(opened_backend(target, write=True))
        to_repository = CopyTarget(writing, to_settings, world, from_repository, parts)
        driver = None
        if target_url.traits.private:
            driver = stack.enter_context(DriverListener(writing)).address
        job = _Job(
            source=source,
            target=target,
            source_repo=from_settings.repository_id,
            target_repo=to_settings.repository_id,
            parts=to_repository.parts,
            state=from_repository.state,
            driver=driver,
        )
        missing = to_repository.missing_parts()
        copied = _copy_parts(spark, job, missing, progress)
        for part in copied:
            to_repository.replace(part.changed)
        lines = from_repository.copy_log(writing, to_settings.repository_id)
        to_repository.finish()
    return Copied(
        rows=sum(part.rows for part in copied),
        size_bytes=sum(part.size_bytes for part in copied),
        parts=job.parts,
        skipped_parts=job.parts - len(missing),
        references=len(from_repository.refs),
        log_lines=lines,
        findings=fsck(spark, target, progress=progress) if check else None,
    )


def _copy_parts(
    spark: SparkSession, job: _Job, parts: list[int], progress: ProgressCallback | None
) -> list[CopiedPart]:
    """In jobs of some parts each, so that progress is seen."""
    tasks = task_count(spark)
    at_once = tasks * _PARTS_PER_TASK
    copied: list[CopiedPart] = []
    pace = Pace("copy")
    with watched(spark, "copy", None):
        for at in range(0, len(parts), at_once):
            some = parts[at : at + at_once]
            found = map_items(spark, some, partial(_copy, job), min(tasks, len(some)))
            copied += [msgspec.msgpack.decode(data, type=CopiedPart) for data in found]
            if progress is not None:
                progress(pace.at(len(copied), len(parts)))
    return copied


def _copy(job: _Job, parts: Iterable[int]) -> Iterator[bytes]:
    with ExitStack() as stack:
        reading = stack.enter_context(opened_backend(job.source))
        writing: Backend
        if job.driver is not None:
            writing = stack.enter_context(closing(job.driver.connect()))
        else:
            writing = stack.enter_context(opened_backend(job.target, write=True))
        for index in parts:
            part = Slice(index, job.parts)
            yield msgspec.msgpack.encode(_copy_part(job, reading, writing, part))


def _copy_part(job: _Job, reading: Backend, writing: Backend, part: Slice) -> CopiedPart:
    """Executors may be in each other's way, for example in SQLite. All of this is repeatable."""
    for left in reversed(range(_ATTEMPTS)):
        try:
            done = copy_part(reading, job.source_repo, writing, job.target_repo, part)
            if not done.changed:  # Otherwise the driver has to replace rows first.
                note_copied(writing, job.target_repo, part, job.state, time.time_ns() // 1000)
            return done
        except StoreBusy:
            if not left:
                raise
            time.sleep(_PAUSE_SECONDS)
    raise AssertionError("the last attempt returns or raises")


def _store(origin: Origin, role: str) -> StoreUrl:
    if origin.store is None:
        raise CannotRun(f"A copy works on rows: the {role} must be a store, not a server")
    return StoreUrl.parse(origin.store)
