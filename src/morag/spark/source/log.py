"""The table `log`: commits, or one row for each of their operations."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from morag.model.entry_columns import path_of_key
from morag.model.operations import Put
from morag.spark.opening import opened
from morag.spark.source.arrow_batches import (
    ROWS,
    Batches,
    content_columns,
    key_columns,
    micros,
)
from morag.spark.source.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from morag.model.meta import CommitMeta
    from morag.model.operations import Delete
    from morag.model.results import LogEntry
    from morag.spark.source.arrow_batches import ColumnBuilders

_COMMITS_PER_TASK: Final = 250
"""The number of commits per task, if the number of tasks is not given."""
_COMMITS_AT_ONCE: Final = 1000


class LogPart(InputPartition):
    """Consecutive commits, starting at a fixed one; None means no end."""

    def __init__(self, start: str, commits: int | None) -> None:
        self.start = start
        self.commits = commits


class LogReader(TableReader):
    def partitions(self) -> list[InputPartition]:
        with opened(self._origin) as catalog:
            extent = catalog.history.extent(self._options.ref or catalog.default_branch)
        start, total = f"@{extent.hash}", extent.commits
        if total is None:
            return [LogPart(start, None)]
        parts = self._options.partitions or min(self._options.parts, -(-total // _COMMITS_PER_TASK))
        size = max(1, -(-total // max(1, parts)))
        # The commits in between need not be known: the reader of a part steps to its start.
        return [
            LogPart(f"{start}~{skipped}" if skipped else start, min(size, total - skipped))
            for skipped in range(0, total, size)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:  # There are no commits.
            return
        assert isinstance(partition, LogPart), "Spark passes on what `partitions` returned"
        with opened(self._origin) as catalog:
            log = catalog.history.log(partition.start, with_operations=self._options.operations)
            yield from log_batches(islice(log, partition.commits), self._schema)


def log_batches(entries: Iterable[LogEntry], schema: StructType) -> Iterator[RecordBatch]:
    """A row for each commit; with operations, one for each operation."""
    batches, entries = Batches(schema), iter(entries)
    while some := list(islice(entries, _COMMITS_AT_ONCE)):
        commits = [entry.meta for entry in some if entry.operations is None]
        if commits:
            yield batches.batch(len(commits), commit_columns(commits))
        done = ((entry.meta, op) for entry in some for op in entry.operations or ())
        while rows := list(islice(done, ROWS)):
            columns = {
                **commit_columns([meta for meta, _ in rows]),
                **_operation_columns([op for _, op in rows]),
            }
            yield batches.batch(len(rows), columns)


def commit_columns(metas: Sequence[CommitMeta]) -> ColumnBuilders:
    return {
        "hash": lambda: [meta.hash for meta in metas],
        "parents": lambda: [meta.parents for meta in metas],
        "message": lambda: [meta.message for meta in metas],
        "authors": lambda: [meta.authors for meta in metas],
        "committer": lambda: [meta.committer for meta in metas],
        "author_time": lambda: [micros(meta.author_time) for meta in metas],
        "commit_time": lambda: [micros(meta.commit_time) for meta in metas],
        "signed_off_by": lambda: [meta.signed_off_by for meta in metas],
        "properties": lambda: [list(meta.properties.items()) for meta in metas],
    }


def _operation_columns(operations: Sequence[Put | Delete]) -> ColumnBuilders:
    contents = [op.content if isinstance(op, Put) else None for op in operations]
    return {
        "operation": lambda: ["PUT" if isinstance(op, Put) else "DELETE" for op in operations],
        **key_columns([path_of_key(op.key) for op in operations]),
        **content_columns(contents),
    }
