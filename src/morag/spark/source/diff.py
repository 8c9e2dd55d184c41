"""The table `diff`: keys that differ between two commits."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from morag.model.entry_columns import path_of_key
from morag.spark.opening import opened
from morag.spark.source.arrow_batches import ROWS, content_columns, key_columns
from morag.spark.source.schemas import KEY
from morag.spark.source.table_reader import KeyPart, KeyTableReader, key_parts, pinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import InputPartition

    from morag.model.results import Diff
    from morag.spark.source.arrow_batches import ColumnBuilders


class DiffReader(KeyTableReader):
    _never_null = frozenset({*KEY, "change"})

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with opened(self._origin) as catalog:
            commits = pinned(catalog, options.from_ref), pinned(catalog, options.to_ref)
            return key_parts(catalog, commits, options.parts, self._pushed.below)

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:
            return
        assert isinstance(partition, KeyPart), "Spark passes on what `partitions` returned"
        before, after = partition.commits
        batches, span, selected = self._batches, partition.span, self._pushed.selected
        keys = () if selected.key is None else (selected.key,)
        with opened(self._origin) as catalog:
            listed = catalog.contents.diff(
                before, after, min_key=span.start, max_key=span.before, keys=keys
            )
            names = selected.names
            kept = (diff for diff in span.cut(listed) if names is None or diff.key.name in names)
            while some := list(islice(kept, ROWS)):
                yield batches.batch(len(some), _columns(some))


def _columns(diffs: Sequence[Diff]) -> ColumnBuilders:
    return {
        **key_columns([path_of_key(diff.key) for diff in diffs]),
        "change": lambda: [_change(diff) for diff in diffs],
        **content_columns([diff.before for diff in diffs], "from_"),
        **content_columns([diff.after for diff in diffs], "to_"),
    }


def _change(diff: Diff) -> str:
    if diff.before is None:
        return "ADDED"
    return "REMOVED" if diff.after is None else "CHANGED"
