"""Purges a store on Spark: executors scan, follow pointers and delete; the driver keeps the marks.

Everything that decides is in `versions/maintenance`, and the same without Spark. The driver's
memory stays flat: commits and ids are in temporary files.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from morag.backend.base import Slice
from morag.backend.urls import StoreUrl
from morag.config import Settings
from morag.format.records import ObjId
from morag.logic.row_facts import RowFacts
from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of, frame_of_items, map_items, task_count
from morag.spark.opening import opened_backend
from morag.spark.progress import Pace, watched
from morag.versions.maintenance import purge as without_spark
from morag.versions.maintenance.journal import write_part
from morag.versions.maintenance.purge_report import PurgeRequest
from morag.versions.maintenance.purge_work import (
    Expansion,
    Removal,
    expand,
    remove,
    scan_facts,
)
from morag.versions.maintenance.rewriting import open_unused
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from morag.backend.base import Backend
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback
    from morag.versions.maintenance.purge import PurgeProgress
    from morag.versions.maintenance.purge_report import PurgeReport
    from morag.versions.maintenance.purge_work import LocalWork

COLUMNS: Final = "outcome string, reason string, kind string, objects long, size_bytes long"

DRY_RUN: Final = PurgeRequest()

_BATCHES_PER_TASK: Final = 8
_ROWS_PER_TASK: Final = 2000


def purge(
    spark: SparkSession,
    origin: Origin,
    request: PurgeRequest = DRY_RUN,
    *,
    journal: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> DataFrame:
    """Remove the objects that no reference leads to, or only report them, which is the default.

    The result has a row per kind and reason: objects that are removed, or would be, and objects
    that stay. A real run needs a `journal`: a directory that the driver and all executors reach.
    """
    report = run(spark, origin, request, journal=journal, progress=progress)
    return report_frame(spark, report)


def report_frame(spark: SparkSession, report: PurgeReport) -> DataFrame:
    done = "would be removed" if report.dry_run else "removed"
    rows: list[tuple[Any, ...]] = [
        (done, None, each.kind, each.rows, each.size_bytes) for each in report.removed
    ]
    rows += [("stays", each.reason, each.kind, each.rows, each.size_bytes) for each in report.stays]
    return frame_of(spark, rows, COLUMNS)


def run(
    spark: SparkSession,
    origin: Origin,
    request: PurgeRequest,
    *,
    journal: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> PurgeReport:
    """Like `purge`, with the report as a struct."""
    if origin.store is None:
        raise CannotRun("A purge works on the rows of a store, which a server does not expose")
    request.check()
    if journal is None and not request.dry_run:
        raise CannotRun("A purge that removes objects needs a directory for its 'journal'")
    url = StoreUrl.parse(origin.store)
    settings = url.settings(Settings(repository_id=origin.repository_id))
    directory = None if journal is None else Path(journal).absolute()
    paces: dict[str, Pace] = {}

    def show(step: PurgeProgress) -> None:
        if progress is not None:
            progress(paces.setdefault(step.stage, Pace(step.stage)).at(step.rows, None))

    def make_work(local: LocalWork) -> SparkWork:
        return SparkWork(spark, origin, settings.repository_id, local, directory)

    tasks = spark.sparkContext.defaultParallelism
    request = replace(request, rows_at_once=max(request.rows_at_once, tasks * _ROWS_PER_TASK))
    with (
        watched(spark, "purge", None),
        opened_backend(origin) if request.dry_run else _opened_to_write(url, settings) as backend,
    ):
        return without_spark.purge(backend, settings, World(), request, directory, show, make_work)


def _opened_to_write(url: StoreUrl, settings: Settings) -> AbstractContextManager[Backend]:
    return closing(open_unused(url.text, settings))


class SparkWork:
    """Reads and deletes rows on the executors. They cannot write to a private store."""

    def __init__(
        self,
        spark: SparkSession,
        origin: Origin,
        repo: str,
        local: LocalWork,
        journal: Path | None,
    ) -> None:
        assert origin.store is not None, "the caller has checked it"
        self._spark, self._origin, self._repo = spark, origin, repo
        self._local, self._journal = local, journal
        self._is_private = StoreUrl.parse(origin.store).traits.private
        self._tasks = task_count(spark)

    def facts(self) -> Iterator[Sequence[RowFacts]]:
        count = self._tasks
        parts = [(index, count) for index in range(count)]
        work = partial(_scan, self._origin, self._repo)
        # Computed by all executors first: an iterator alone would compute a part at a time.
        packed = frame_of_items(self._spark, parts, work, count, "data binary").persist()
        try:
            packed.count()
            for (data,) in packed.toLocalIterator(prefetchPartitions=True):
                yield msgspec.msgpack.decode(bytes(data), type=list[RowFacts])
        finally:
            packed.unpersist()

    def expand(self, batches: Iterable[Sequence[ObjId]]) -> Iterator[Expansion]:
        batches = iter(batches)
        work = partial(_expand, self._origin, self._repo)
        while first := list(islice(batches, 1)):
            rest = islice(batches, self._tasks * _BATCHES_PER_TASK - 1)
            some = [b"".join(map(_sized, ids)) for ids in chain(first, rest)]
            if len(some) == 1:  # Not worth a job.
                yield from self._local.expand([_split(some[0])])
                continue
            for data in map_items(self._spark, some, work, min(self._tasks, len(some))):
                yield msgspec.msgpack.decode(data, type=Expansion)

    def remove(self, doomed: Sequence[RowFacts]) -> Removal:
        if self._is_private:
            return self._local.remove(doomed)
        assert self._journal is not None, "a dry run removes nothing"
        size = max(1, -(-len(doomed) // self._tasks))
        parts = [
            msgspec.msgpack.encode(doomed[at : at + size]) for at in range(0, len(doomed), size)
        ]
        work = partial(_remove, self._origin, self._repo, str(self._journal))
        found = [
            msgspec.msgpack.decode(data, type=Removal)
            for data in map_items(self._spark, parts, work, len(parts) or 1)
        ]
        return Removal(
            tuple(chain.from_iterable(each.deleted for each in found)),
            tuple(chain.from_iterable(each.written_again for each in found)),
        )


def _scan(origin: Origin, repo: str, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[bytes]]:
    with opened_backend(origin) as backend:
        for part in parts:
            for rows in scan_facts(backend, repo, Slice(*part)):
                yield (msgspec.msgpack.encode(rows),)


def _expand(origin: Origin, repo: str, batches: Iterable[bytes]) -> Iterator[bytes]:
    with opened_backend(origin) as backend:
        for packed in batches:
            yield msgspec.msgpack.encode(expand(backend, repo, _split(packed)))


def _remove(origin: Origin, repo: str, journal: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Spark may run a task twice. Then the rows are gone, or are journaled and deleted again."""
    with opened_backend(origin, write=True) as backend:
        for packed in parts:
            doomed = msgspec.msgpack.decode(packed, type=list[RowFacts])
            done = remove(backend, repo, doomed, partial(write_part, Path(journal), uuid4().hex))
            yield msgspec.msgpack.encode(done)


def _sized(id: ObjId) -> bytes:
    return bytes([len(id)]) + id


def _split(packed: bytes) -> list[ObjId]:
    ids, at = [], 0
    while at < len(packed):
        end = at + 1 + packed[at]
        ids.append(ObjId(packed[at + 1 : end]))
        at = end
    return ids
