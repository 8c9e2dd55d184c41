"""`export_repository`: writes the files of an export on Spark, one data file per task."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from morag.format.carried_rows import EXPORTED_CUSTOM_KINDS, related_of_row
from morag.format.export_messages import RELATED_OBJ, sized
from morag.spark.executors import map_items
from morag.spark.opening import opened_backend
from morag.spark.progress import watched
from morag.spark.transfer.export_files import (
    SHOWN_IDS,
    WORK,
    ContentIdRange,
    remove_work,
    write_claims,
    write_commits,
    write_file,
)
from morag.spark.transfer.history_tasks import HistoryTasks
from morag.spark.transfer.stores import persist_on, settings_of, store_url
from morag.versions.transfer.archive_writing import DirectoryWriter
from morag.versions.transfer.exporting import Exporter, ExportOptions, WrittenHistory
from morag.versions.transfer.file_names import COMMITS, GENERIC, data_file_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

    from morag.backend.base import Backend
    from morag.format.records import ObjId
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback
    from morag.versions.transfer.exporting import ExportReport

_CLAIMS_PER_FILE: Final = 100_000


def export_repository(
    spark: SparkSession,
    origin: Origin,
    path: str,
    *,
    references: Sequence[str] = (),
    file_commits: int | None = None,
    progress: ProgressCallback | None = None,
) -> ExportReport:
    """Write a repository in a store to files of version 3, while servers may go on.

    `path` is a new directory that the driver and all executors can write to. `references` are
    patterns of names; without any, all references are exported. A data file has `file_commits`
    commits.
    """
    store_url(origin)
    directory = Path(path).absolute()
    options = ExportOptions(references=tuple(references))
    with ExitStack() as stack:
        archive = stack.enter_context(DirectoryWriter(directory))
        (directory / WORK).mkdir()
        backend = stack.enter_context(opened_backend(origin))
        persist = persist_on(backend, settings_of(origin))
        write = partial(write_commits, origin, str(directory))
        tasks = HistoryTasks(spark, persist, write, file_commits, progress)
        repository = persist.settings.repository_id
        history = _History(spark, tasks, backend, repository, directory, progress)
        exporter = Exporter(persist, backend, archive, options, version("morag"))
        return exporter.run(history.write)


class _History:
    """The data files of an export with commits and objects."""

    def __init__(
        self,
        spark: SparkSession,
        tasks: HistoryTasks,
        backend: Backend,
        repository: str,
        directory: Path,
        progress: ProgressCallback | None,
    ) -> None:
        self._spark = spark
        self._tasks = tasks
        self._backend = backend
        self._repository = repository
        self._directory = directory
        self._progress = progress

    def write(self, heads: Sequence[ObjId]) -> WrittenHistory:
        files, shape = self._tasks.run(heads)
        claims = self._claim_files(sum(file.content_ids for file in files))
        custom = self._custom_file(len(claims) + 1)
        remove_work(self._directory)
        object_files = len(claims) + bool(custom)
        return WrittenHistory(
            heads=shape,
            commits=sum(file.commits for file in files),
            commit_files=tuple(data_file_name(COMMITS, file.number) for file in files),
            objects=sum(claims) + custom,
            object_files=tuple(data_file_name(GENERIC, n + 1) for n in range(object_files)),
            unproven=sum(file.unproven for file in files),
            unproven_ids=tuple([id for file in files for id in file.unproven_ids][:SHOWN_IDS]),
        )

    def _claim_files(self, content_ids: int) -> list[int]:
        """Write the claims on content ids to files by their ranges; returns their numbers."""
        files = -(-content_ids // _CLAIMS_PER_FILE)
        if not files:
            return []
        bounds = [(number << 32) // files for number in range(1, files)]
        lowers = [b"", *(bound.to_bytes(4, "big") for bound in bounds)]
        ranges = [
            ContentIdRange(number, lower, upper)
            for number, lower, upper in zip(count(1), lowers, [*lowers[1:], None], strict=False)
        ]
        with watched(self._spark, "content ids", self._progress):
            write = partial(write_claims, str(self._directory))
            return map_items(self._spark, ranges, write, files)

    def _custom_file(self, number: int) -> int:
        """Write Nessie's custom objects, of which there are few; returns their number."""
        rows = self._backend.scan_rows(self._repository, EXPORTED_CUSTOM_KINDS)
        first = next(rows, None)
        if first is None:
            return 0
        written = 1

        def messages() -> Iterator[bytes]:
            nonlocal written
            yield sized(RELATED_OBJ.encode(related_of_row(first)))
            for row in rows:
                yield sized(RELATED_OBJ.encode(related_of_row(row)))
                written += 1

        write_file(self._directory, data_file_name(GENERIC, number), messages())
        return written
