"""The table `log`: commits, or one row for each of their operations."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from morag.client import Client
from morag.model.operations import Put
from morag.model.refspecs import parse_ref_spec
from morag.spark.opening import opened
from morag.spark.source.batches import (
    ROWS,
    SEPARATOR,
    Batches,
    content_columns,
    key_columns,
    micros,
)
from morag.spark.source.reading import TableReader, pinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from morag.model.listed import LogEntry
    from morag.model.meta import CommitMeta
    from morag.model.operations import Delete
    from morag.spark.source.batches import Made
    from morag.versions.repository import Repository

_FEWEST: Final = 250
"""Commits that are worth a task, where nobody says how many tasks there should be."""
_COMMITS_AT_ONCE: Final = 1000


class LogPart(InputPartition):
    """Commits that follow each other, from one that does not move on; None has no end."""

    def __init__(self, start: str, commits: int | None) -> None:
        self.start = start
        self.commits = commits


class LogReader(TableReader):
    def partitions(self) -> list[InputPartition]:
        with opened(self._origin) as catalog:
            place, total = _end(catalog, self._options.ref)
        if total is None:
            return [LogPart(place, None)]
        parts = self._options.partitions or min(self._options.parts, -(-total // _FEWEST))
        size = max(1, -(-total // max(1, parts)))
        # Nobody needs to know the commits in between: whoever reads a part steps to its start.
        return [
            LogPart(f"{place}~{skipped}" if skipped else place, min(size, total - skipped))
            for skipped in range(0, total, size)
        ]

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:  # There are no commits.
            return
        assert isinstance(partition, LogPart), "they are ours"
        with opened(self._origin) as catalog:
            log = catalog.history.log(partition.start, with_operations=self._options.operations)
            yield from log_batches(islice(log, partition.commits), self._schema)


def log_batches(entries: Iterable[LogEntry], schema: StructType) -> Iterator[RecordBatch]:
    """A row for each commit; for those that come with operations, one for each of these."""
    batches, entries = Batches(schema), iter(entries)
    while some := list(islice(entries, _COMMITS_AT_ONCE)):
        commits = [entry.meta for entry in some if entry.operations is None]
        if commits:
            yield batches.batch(len(commits), _commit_columns(commits))
        done = ((entry.meta, op) for entry in some for op in entry.operations or ())
        while rows := list(islice(done, ROWS)):
            columns = {
                **_commit_columns([meta for meta, _ in rows]),
                **_operation_columns([op for _, op in rows]),
            }
            yield batches.batch(len(rows), columns)


def _end(catalog: Repository | Client, ref: str | None) -> tuple[str, int | None]:
    """Where the log begins, and how many commits it has, if that can be known."""
    name = ref or catalog.default_branch
    if not isinstance(catalog, Client):
        place = catalog.resolve(name)
        return f"@{place.hash}", 0 if place.commit is None else place.commit.seq
    spec = parse_ref_spec(name)
    if spec.name is not None and spec.hash is None and not spec.relatives:
        metadata = catalog.references.metadata(spec.name)
        if metadata is None:
            return pinned(catalog, name), 0
        if metadata.head.hash is not None:
            return f"@{metadata.head.hash}", metadata.total_commits
    return pinned(catalog, name), None


def _commit_columns(metas: Sequence[CommitMeta]) -> Made:
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


def _operation_columns(operations: Sequence[Put | Delete]) -> Made:
    contents = [op.content if isinstance(op, Put) else None for op in operations]
    return {
        "operation": lambda: ["PUT" if isinstance(op, Put) else "DELETE" for op in operations],
        **key_columns([SEPARATOR.join(op.key.elements) for op in operations]),
        **content_columns(contents),
    }
