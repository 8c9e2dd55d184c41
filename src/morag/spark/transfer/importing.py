"""`import_repository`: fills an empty repository from export files, on Spark."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from morag.errors import ArchiveInvalid
from morag.logic.commit_graph import CommitGraph
from morag.spark.driver_link import DriverListener, check_writable
from morag.spark.executors import map_items
from morag.spark.opening import opened_backend
from morag.spark.progress import watched
from morag.spark.transfer.import_tasks import (
    ImportJob,
    prepare_checkpoints,
    store_checkpoints,
    store_groups,
    store_objects,
)
from morag.spark.transfer.line_groups import Group, LineGroups
from morag.spark.transfer.message_places import DataFiles, FilePart, graph_commits
from morag.spark.transfer.stores import settings_of, store_url
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.file_names import file_problems
from morag.versions.transfer.importing import Importer, ImportOptions, StoredHistory
from morag.versions.transfer.sources import ArchiveSource
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from morag.config import Settings
    from morag.spark.opening import Origin
    from morag.spark.progress import ProgressCallback
    from morag.versions.transfer.importing import ImportReport

_GROUPS: Final = 16
_FEWEST_PER_GROUP: Final = 1_000
_MOST_PER_GROUP: Final = 10_000
_GROUP_BYTES: Final = 128 << 20
_COPY_BYTES: Final = 1 << 20
_GROUPS_AT_ONCE: Final = 64
"""The places of so many groups are in the driver's memory."""
_FILES_AT_ONCE: Final = 64
"""The heads of a part of so many files are in the driver's memory."""


def import_repository(
    spark: SparkSession,
    origin: Origin,
    path: str,
    *,
    resume: bool = False,
    erase: bool = False,
    strict: bool = False,
    settings: Settings | None = None,
    group_commits: int | None = None,
    progress: ProgressCallback | None = None,
) -> ImportReport:
    """Fill an empty repository in a store from the files of an export.

    `path` is a directory that the driver and all executors can read, or a ZIP file in such a
    directory: it is unpacked beside it, and the unpacked files are removed in the end. About
    `group_commits` commits are the work of one task.
    """
    url = store_url(origin)
    check_writable(spark, url)
    settings = settings or settings_of(origin)
    with ExitStack() as stack:
        archive = stack.enter_context(ArchiveReader(Path(path)))
        backend = stack.enter_context(opened_backend(origin, write=True))
        driver = None
        if url.traits.private:
            driver = stack.enter_context(DriverListener(backend)).address
        meta = archive.meta
        directory = stack.enter_context(_data_directory(archive))
        files = DataFiles.of(directory, meta.commit_files, meta.version)
        job = ImportJob(origin, settings, files, driver, resume, strict)
        # Before anything is written, or erased.
        graph = stack.enter_context(CommitGraph())
        _plan(spark, job, graph, meta.commit_count, progress)
        most = group_commits or _per_group(len(graph), files.size_bytes)
        groups = stack.enter_context(LineGroups(graph, most))

        def store_history() -> StoredHistory:
            parts = [
                *_store_objects(spark, job, meta.generic_files, progress),
                *_store_commits(spark, job, groups, progress),
            ]
            stored = reduce(_sum, parts, StoredHistory())
            if stored.objects != (meta.generic_count or 0):
                raise _incomplete("objects", stored.objects, meta.generic_count or 0)
            return stored

        options = ImportOptions(resume=resume, erase=erase, strict=strict)
        importer = Importer(backend, settings, World(), options)
        return importer.run(ArchiveSource(archive), store_history)


@contextmanager
def _data_directory(archive: ArchiveReader) -> Iterator[Path]:
    """The directory with the data files that executors read."""
    path = archive.path.absolute()
    if path.is_dir():
        yield path
        return
    with ExitStack() as stack:
        with file_problems(path):  # Not around the `yield`: the caller has problems of its own.
            unpacked = TemporaryDirectory(prefix=f"{path.stem}-", dir=path.parent)
            made = Path(stack.enter_context(unpacked))
            for name in (*archive.meta.commit_files, *archive.meta.generic_files):
                with archive.open(name) as packed, (made / name).open("wb") as file:
                    shutil.copyfileobj(packed, file, _COPY_BYTES)
        yield made


def _store_objects(
    spark: SparkSession, job: ImportJob, names: Sequence[str], progress: ProgressCallback | None
) -> Iterator[StoredHistory]:
    if names:
        with watched(spark, "objects", progress):
            yield from map_items(spark, names, partial(store_objects, job), len(names))


def _plan(
    spark: SparkSession,
    job: ImportJob,
    graph: CommitGraph,
    expected: int,
    progress: ProgressCallback | None,
) -> None:
    """Note all commits of the files, by the heads of their messages, which executors read.

    An export may be one large file, so that a task reads only a part of a file.
    """
    left: list[FilePart] = [(number, 0) for number in range(len(job.files.names))]
    with watched(spark, "plan", progress):
        while left:
            some, left = left[:_FILES_AT_ONCE], left[_FILES_AT_ONCE:]
            for joined, rest in map_items(spark, some, job.files.heads, len(some)):
                graph.add(graph_commits(joined))
                if rest is not None:
                    left.append(rest)
    if len(graph) != expected:
        raise _incomplete("commits", len(graph), expected)
    missing = next(graph.missing_parents(), None)
    if missing is not None:
        raise ArchiveInvalid(f"Commit {missing.hex()}, the parent of another, is not in the export")


def _per_group(commits: int, size_bytes: int) -> int:
    """Fewer if commits are large: a task has those of its group in memory."""
    fitting = max(1, _GROUP_BYTES * commits // max(1, size_bytes))
    return min(fitting, max(_FEWEST_PER_GROUP, min(_MOST_PER_GROUP, -(-commits // _GROUPS))))


def _store_commits(
    spark: SparkSession,
    job: ImportJob,
    groups: Iterable[Group],
    progress: ProgressCallback | None,
) -> Iterator[StoredHistory]:
    """Store all commits, each complete and once."""
    groups = iter(groups)
    while some := list(islice(groups, _GROUPS_AT_ONCE)):
        yield from _store_groups(spark, job, some, progress)


def _store_groups(
    spark: SparkSession, job: ImportJob, groups: Sequence[Group], progress: ProgressCallback | None
) -> Iterator[StoredHistory]:
    if any(group.has_checkpoints for group in groups):
        trees = {tree: at for at, tree in enumerate(dict.fromkeys(g.tree for g in groups))}
        with watched(spark, "checkpoints", progress):
            yield from (
                spark.sparkContext.parallelize(groups, len(groups))
                .mapPartitions(partial(prepare_checkpoints, job))
                .repartitionAndSortWithinPartitions(  # type: ignore[type-var]  # Numbers sort.
                    len(trees), lambda place: trees[place[0]], keyfunc=lambda place: place[1]
                )
                .mapPartitions(partial(store_checkpoints, job))
                .collect()
            )
    with watched(spark, "commits", progress):
        yield from map_items(spark, groups, partial(store_groups, job), len(groups))


def _incomplete(what: str, found: int, expected: int) -> ArchiveInvalid:
    return ArchiveInvalid(
        f"The export has {found} {what}, and its metadata says {expected}: a part of it is missing"
    )


def _sum(one: StoredHistory, other: StoredHistory) -> StoredHistory:
    return StoredHistory(
        one.objects + other.objects,
        one.commits + other.commits,
        one.found + other.found,
        one.unfit + other.unfit,
        one.unfit_ids + other.unfit_ids,
        max(one.newest_micros, other.newest_micros),
    )
