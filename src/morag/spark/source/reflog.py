"""The table `reflog`: how references moved, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from morag.client import NotOffered
from morag.spark.errors import CannotRun
from morag.spark.opening import opened
from morag.spark.source.arrow_batches import micros
from morag.spark.source.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch

    from morag.model.references import RefLogEntry
    from morag.spark.source.arrow_batches import ColumnBuilders

_AT_ONCE: Final = 1000


class RefLogReader(TableReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        batches, token = self._batches, None
        with opened(self._origin) as catalog:
            while True:
                try:
                    page = catalog.references.moves(_AT_ONCE, token)
                except NotOffered as error:
                    raise CannotRun(
                        f"{self._origin} keeps no ref-log; only Morag's own servers and stores do"
                    ) from error
                if page.items:
                    yield batches.batch(len(page.items), _columns(page.items))
                token = page.token
                if token is None:
                    return


def _columns(moves: Sequence[RefLogEntry]) -> ColumnBuilders:
    return {
        "name": lambda: [move.reference.name for move in moves],
        "type": lambda: [move.reference.type for move in moves],
        "operation": lambda: [move.operation for move in moves],
        "hash_before": lambda: [move.hash_before for move in moves],
        "hash_after": lambda: [move.hash_after for move in moves],
        "who": lambda: [move.who for move in moves],
        "time": lambda: [micros(move.time) for move in moves],
        "commits": lambda: [move.commits for move in moves],
    }
