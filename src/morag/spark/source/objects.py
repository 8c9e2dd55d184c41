"""The table `objects`: all stored objects, also unreferenced ones."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition, IsNotNull

from morag.backend.base import Slice
from morag.format.objects import KINDS
from morag.spark.errors import CannotRun
from morag.spark.opening import opened_backend
from morag.spark.source.pushed_filters import values_of
from morag.spark.source.table_reader import TableReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from morag.backend.base import Row
    from morag.spark.opening import Origin
    from morag.spark.source.arrow_batches import ColumnBuilders
    from morag.spark.source.options import ReadOptions

_NAMES: Final = {letter: kind.__name__.upper() for letter, kind in KINDS.items()}
_LETTERS: Final = {name: letter for letter, name in _NAMES.items()}
_AT_ONCE: Final = 1000
_NEVER_NULL: Final = frozenset({"id", "kind", "size_bytes", "data"})


class ObjectsReader(TableReader):
    """Reads rows of the backend. A kind that Morag does not know is shown as it is stored."""

    _kinds: frozenset[str] = frozenset()

    def __init__(self, origin: Origin, options: ReadOptions, schema: StructType) -> None:
        super().__init__(origin, options, schema)
        if origin.store is None:
            raise CannotRun(
                "Table 'objects' reads the rows of a store, which a server does not expose; "
                "name the store by the option 'store', like rocksdb:/data/catalog"
            )

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        for filter in filters:
            values = values_of(filter, "kind")
            if values:
                self._kinds = frozenset(_LETTERS.get(name, name) for name in values)
            if not (isinstance(filter, IsNotNull) and filter.attribute[0] in _NEVER_NULL):
                yield filter

    def partitions(self) -> list[InputPartition]:
        count = self._options.parts
        return [InputPartition((index, count)) for index in range(count)]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        origin, batches = self._origin, self._batches
        with opened_backend(origin) as backend:
            rows = backend.scan_rows(origin.repository_id, self._kinds, Slice(*partition.value))
            while some := list(islice(rows, _AT_ONCE)):
                yield batches.batch(len(some), _columns(some))


def _columns(rows: Sequence[Row]) -> ColumnBuilders:
    return {
        "id": lambda: [row.id.hex() for row in rows],
        "kind": lambda: [_NAMES.get(row.kind, row.kind) for row in rows],
        "size_bytes": lambda: [len(row.data) for row in rows],
        "referenced": lambda: [row.referenced_micros or None for row in rows],
        "version": lambda: [row.version for row in rows],
        "data": lambda: [row.data for row in rows],
    }
