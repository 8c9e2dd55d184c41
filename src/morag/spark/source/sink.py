"""Writes rows as commits, one for each batch, each exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from morag.masking import masked
from morag.model.meta import CommitMeta
from morag.model.names import check_hash, check_reference_name
from morag.spark.errors import CannotRun
from morag.spark.opening import opened
from morag.spark.source.exactly_once import Batch, commit_once
from morag.spark.source.operations import (
    SequencedOperation,
    check_columns,
    operations_of,
    sequenced_operation,
)
from morag.spark.source.options import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from morag.spark.opening import Origin

_QUERY_ID: Final = "sql.streaming.queryId"
"""The property with the id of a task's query, which stays the same across restarts."""

_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "path"})
_OPTIONS: Final = _SPARK_OPTIONS | {"ref", "message", "author", "query", "batch", "expected"}
_OPERATIONS: Final = msgspec.json.Decoder(list[SequencedOperation])


class Written(WriterCommitMessage):
    """The operations of one task. Nothing is committed before all tasks are done."""

    def __init__(self, query: str | None, operations: bytes) -> None:
        self.query = query
        self.operations = operations


class _Target:
    """The base of both writers: the target branch and the commit message."""

    def __init__(
        self, origin: Origin, options: Mapping[str, str], schema: StructType, overwrite: bool
    ) -> None:
        if overwrite:
            raise CannotRun(
                "The format 'morag' adds a commit and never overwrites: write with "
                "mode('append'), and outputMode('append') for streams"
            )
        refuse_unknown("A write", options, _OPTIONS)
        _refuse_shown_password(options)
        check_columns(schema)
        self._origin = origin
        self._branch = options.get("ref")
        if self._branch is not None:
            check_reference_name(self._branch)
        self._message = options.get("message")
        self._authors = (options["author"],) if "author" in options else ()

    def write(self, iterator: Iterator[Row]) -> Written:
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(_QUERY_ID)
        operations = [sequenced_operation(row.asDict()) for row in iterator]
        return Written(query, msgspec.json.encode(operations))

    def _commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batch: Batch | None,
        expected: str | None = None,
    ) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        operations = operations_of(
            each for message in written for each in _OPERATIONS.decode(message.operations)
        )
        if not operations:
            return
        count = len(operations)
        message = self._message or f"Spark: {count} change{'' if count == 1 else 's'}"
        meta = CommitMeta(message=message, authors=self._authors)
        with opened(self._origin, write=True) as catalog:
            branch = self._branch or catalog.default_branch
            commit_once(catalog, branch, operations, meta, batch, expected)


class StreamCommitWriter(_Target, DataSourceStreamWriter):
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        queries = {message.query for message in messages if isinstance(message, Written)}
        if not queries:
            return
        (query,) = queries
        assert query is not None, "Spark sets the query id for the tasks of a stream"
        self._commit(messages, Batch(query, batchId))


class CommitWriter(_Target, DataSourceWriter):
    """A repeated write adds nothing if it has the options `query` and `batch`.

    With `expected`, a hash, it fails if its keys have changed since that commit.
    """

    def __init__(
        self, origin: Origin, options: Mapping[str, str], schema: StructType, overwrite: bool
    ) -> None:
        super().__init__(origin, options, schema, overwrite)
        self._batch = _batch(options)
        self._expected = check_hash(options["expected"]) if "expected" in options else None

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._commit(messages, self._batch, self._expected)


def _refuse_shown_password(options: Mapping[str, str]) -> None:
    """Options of a write are part of its plan. Spark hides a `token` there, but not a `store`."""
    store = options.get("store", "")
    if masked(store) != store:
        raise CannotRun(
            "Option 'store' holds a password, which Spark would show in plans and logs: write the "
            "URL into a file that the driver can read, and name that by 'store_file'"
        )


def _batch(options: Mapping[str, str]) -> Batch | None:
    query, number = options.get("query"), options.get("batch")
    if query is None and number is None:
        return None
    if query is None or number is None or not number.isdecimal():
        raise CannotRun(
            "Options 'query' and 'batch' need each other: a name, and an ascending number"
        )
    return Batch(query, int(number))
