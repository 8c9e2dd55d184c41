"""The table `references`: branches and tags with their heads."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition, IsNotNull

from morag.spark.opening import opened
from morag.spark.source.arrow_batches import micros
from morag.spark.source.pushed_filters import values_of
from morag.spark.source.schemas import METADATA, pruned
from morag.spark.source.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter

    from morag.model.names import ReferenceKind
    from morag.model.references import Reference, ReferenceMetadata
    from morag.spark.source.arrow_batches import ColumnBuilders

    Described = tuple[Reference, ReferenceMetadata | None]
    from morag.catalog import Catalog

_AT_ONCE: Final = 1000
_NEVER_NULL: Final = frozenset({"name", "type", "hash"})


class ReferencesReader(TableReader):
    _kind: ReferenceKind | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        for filter in filters:
            values = values_of(filter, "type")
            if values is not None and len(values) == 1 and values <= {"BRANCH", "TAG"}:
                self._kind = "BRANCH" if "BRANCH" in values else "TAG"
            if not (isinstance(filter, IsNotNull) and filter.attribute[0] in _NEVER_NULL):
                yield filter

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        batches = self._batches
        with opened(self._origin) as catalog:
            found = iter(self._described(catalog))
            while some := list(islice(found, _AT_ONCE)):
                yield batches.batch(len(some), _columns(some))

    def _described(self, catalog: Catalog) -> Iterable[Described]:
        references = catalog.references
        if pruned(self._schema, METADATA):
            return ((reference, None) for reference in references.list(self._kind))
        return references.list_with_metadata(self._kind)


def _columns(described: Sequence[Described]) -> ColumnBuilders:
    heads = [None if metadata is None else metadata.head for _, metadata in described]
    metadatas = [metadata for _, metadata in described]
    return {
        "name": lambda: [reference.name for reference, _ in described],
        "type": lambda: [reference.type for reference, _ in described],
        "hash": lambda: [reference.hash for reference, _ in described],
        "message": lambda: [head and head.message for head in heads],
        "authors": lambda: [head and head.authors for head in heads],
        "commit_time": lambda: [head and micros(head.commit_time) for head in heads],
        "total_commits": lambda: [m.total_commits if m else 0 for m in metadatas],
        "ahead": lambda: [m and m.ahead for m in metadatas],
        "behind": lambda: [m and m.behind for m in metadatas],
        "common_ancestor": lambda: [m and m.common_ancestor for m in metadatas],
    }
