"""Reads the format `morag` as Spark does, but in this process, without a JVM."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.types import StructType

from morag.spark.source.source import MoragDataSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.datasource import Filter

    from morag.spark.source.table_reader import TableReader


class Read:
    """A planned read of a table. The reader and its parts are pickled, as for executors."""

    def __init__(
        self,
        options: Mapping[str, str],
        columns: Iterable[str] | None = None,
        filters: Iterable[Filter] = (),
    ) -> None:
        source = MoragDataSource(dict(options))
        schema = source.schema()
        if columns is not None:
            schema = StructType([schema[name] for name in columns])
        reader = source.reader(schema)
        self.left = list(reader.pushFilters(list(filters)))
        self.parts: list[Any] = [*reader.partitions()] or [None]
        self.reader: TableReader = _pickled(reader)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in self.parts:
            yield from self.rows(part)

    def rows(self, part: Any) -> list[dict[str, Any]]:
        found = self.reader.read(_pickled(part))
        return [row for batch in found for row in _rows(batch)]


def _pickled(value: Any) -> Any:
    return pickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def _rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.to_pylist()
    return rows
