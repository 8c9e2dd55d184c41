"""The table `entries`: the keys of a commit with their contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.spark.opening import opened
from morag.spark.source.arrow_batches import content_columns, key_columns
from morag.spark.source.schemas import KEY, STATE, pruned
from morag.spark.source.table_reader import KeyPart, KeyTableReader, key_parts, pinned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import InputPartition

    from morag.model.entry_columns import Columns
    from morag.spark.source.arrow_batches import ColumnBuilders


class EntriesReader(KeyTableReader):
    _never_null = frozenset({*KEY, "content_type", "content_id"})

    def partitions(self) -> list[InputPartition]:
        with opened(self._origin) as catalog:
            commit = pinned(catalog, self._options.ref)
            parts = 1 if self._pushed.selected.key else self._options.parts
            return key_parts(catalog, (commit,), parts, self._pushed.below)

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:  # There was nothing to split.
            return
        assert isinstance(partition, KeyPart), "Spark passes on what `partitions` returned"
        batches = self._batches
        with opened(self._origin) as catalog:
            found = catalog.contents.columns(
                partition.commits[0],
                span=partition.span,
                selected=self._pushed.selected,
                with_content=not pruned(self._schema, STATE),
            )
            for some in found:
                if some.paths:
                    yield batches.batch(len(some.paths), _columns(some))


def _columns(some: Columns) -> ColumnBuilders:
    return {
        **content_columns(some.contents or ()),
        **key_columns(some.paths),
        "content_type": lambda: some.types,
        "content_id": lambda: some.content_ids,
    }
