"""The table `diff`: keys that two commits disagree on."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.spark.opening import opened
from morag.spark.source.batches import ROWS, SEPARATOR, content_columns, key_columns
from morag.spark.source.narrowing import Wanted, narrowed
from morag.spark.source.reading import KeyPart, TableReader, key_parts, pinned, within
from morag.spark.source.schemas import KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter, InputPartition

    from morag.model.keys import ContentKey
    from morag.model.listed import Diff
    from morag.spark.source.batches import Made

_NEVER_NULL: Final = frozenset({*KEY, "change"})


class DiffReader(TableReader):
    _wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        self._wanted, left = narrowed(filters, _NEVER_NULL)
        return left

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with opened(self._origin) as catalog:
            places = pinned(catalog, options.from_ref), pinned(catalog, options.to_ref)
            return key_parts(catalog, places, options.parts, self._wanted.below)

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:
            return
        assert isinstance(partition, KeyPart), "they are ours"
        before, after = partition.places
        batches, wanted = self._batches, self._wanted
        keys = () if wanted.key is None else (wanted.key,)
        with opened(self._origin) as catalog:

            def listed(start: ContentKey | None) -> Iterable[Diff]:
                return catalog.contents.diff(
                    before, after, min_key=start, max_key=partition.before, keys=keys
                )

            found = within(partition, wanted.below, listed)
            kept = (d for d in found if wanted.names is None or d.key.name in wanted.names)
            while some := list(islice(kept, ROWS)):
                yield batches.batch(len(some), _made(some))


def _made(diffs: Sequence[Diff]) -> Made:
    return {
        **key_columns([SEPARATOR.join(diff.key.elements) for diff in diffs]),
        "change": lambda: [_change(diff) for diff in diffs],
        **content_columns([diff.before for diff in diffs], "from_"),
        **content_columns([diff.after for diff in diffs], "to_"),
    }


def _change(diff: Diff) -> str:
    if diff.before is None:
        return "ADDED"
    return "REMOVED" if diff.after is None else "CHANGED"
