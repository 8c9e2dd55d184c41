"""Hands the commits of a whole history to executors: the driver finds them, tasks write files."""

from __future__ import annotations

from functools import partial
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.format.export_messages import HeadsAndForks
from morag.format.ids import NO_ANCESTOR
from morag.logic.bulk_reads import read_stored
from morag.spark.executors import map_items
from morag.spark.progress import watched
from morag.spark.transfer.export_files import CommitFile, WrittenCommits
from morag.spark.transfer.history_order import HistoryOrder, packed, unpacked
from morag.spark.transfer.read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from morag.format.records import ObjId
    from morag.persist.persist import Persist
    from morag.spark.progress import ProgressCallback

_TASKS_PER_CORE: Final = 8
_LOOKED_AT: Final = 200
_FEWEST_PER_FILE: Final = 1_000
_MOST_PER_FILE: Final = 25_000
_FILES_AT_ONCE: Final = 64
"""The ids of so many files are in the memory of the driver."""


class HistoryTasks:
    """Each task writes the files of some commits, by `write`, which runs on an executor."""

    def __init__(
        self,
        spark: SparkSession,
        persist: Persist,
        write: Callable[[Iterable[CommitFile]], Iterator[WrittenCommits]],
        file_commits: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> None:
        self._spark = spark
        self._persist = persist
        self._write = write
        self._file_commits = file_commits
        self._progress = progress

    def run(self, heads: Sequence[ObjId]) -> tuple[list[WrittenCommits], HeadsAndForks]:
        """Write the commits that the heads lead to, and what was merged into them.

        The files are returned in the order in which they must be read: first parents come before
        their children.
        """
        placed: list[tuple[tuple[int, int], WrittenCommits]] = []
        numbers = count(1)
        with HistoryOrder(partial(read_stored, self._persist)) as order:
            most = self._file_commits or self._per_file(heads)
            while heads:
                walk = order.walk(heads, most)
                with ReadAhead(walk, _FILES_AT_ONCE) as pieces:
                    while some := pieces.take(2 * self._spark.sparkContext.defaultParallelism):
                        files = [CommitFile(next(numbers), packed(piece.ids)) for piece in some]
                        written = self._written(files)
                        for piece, file in zip(some, written, strict=True):
                            order.note(unpacked(file.merge_parents), unpacked(file.joints))
                            noted = replace(file, merge_parents=b"", joints=b"")
                            placed.append((piece.position, noted))
                heads = order.unknown_merge_parents()
            order.check_joints()
            placed.sort(key=itemgetter(0))
            return [file for _, file in placed], HeadsAndForks(order.heads(), order.forks())

    def _written(self, files: Sequence[CommitFile]) -> list[WrittenCommits]:
        with watched(self._spark, "commits", self._progress):
            return map_items(self._spark, files, self._write, len(files))

    def _per_file(self, heads: Sequence[ObjId]) -> int:
        """Several files for each core, by the length of the longest of some histories."""
        some = [head for head in heads if head != NO_ANCESTOR][:_LOOKED_AT]
        commits = max((commit.seq for commit in read_stored(self._persist, some)), default=0)
        tasks = self._spark.sparkContext.defaultParallelism * _TASKS_PER_CORE
        return max(_FEWEST_PER_FILE, min(_MOST_PER_FILE, -(-commits // tasks)))
