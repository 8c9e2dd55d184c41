"""The format `morag`, for Spark's Python Data Source API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource

from morag.spark.errors import CannotRun
from morag.spark.opening import Origin
from morag.spark.source.diff import DiffReader
from morag.spark.source.entries import EntriesReader
from morag.spark.source.log import LogReader
from morag.spark.source.objects import ObjectsReader
from morag.spark.source.options import ReadOptions, columns_of, table_of
from morag.spark.source.references import ReferencesReader
from morag.spark.source.reflog import RefLogReader
from morag.spark.source.schemas import check_schema, schema_of
from morag.spark.source.sink import CommitWriter, StreamCommitWriter
from morag.spark.source.stream import CommitStream

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from morag.spark.source.table_reader import TableReader

_READERS: Final[dict[str, type[TableReader]]] = {
    "references": ReferencesReader,
    "entries": EntriesReader,
    "log": LogReader,
    "diff": DiffReader,
    "reflog": RefLogReader,
    "objects": ObjectsReader,
}


class MoragDataSource(DataSource):
    """Reads the tables of a catalog, follows a branch, and writes rows as commits.

    To read fewer columns, a query sets a schema with only these: Spark does not pass the columns of
    a `select` to a Python data source.
    """

    @classmethod
    def name(cls) -> str:
        return "morag"

    def schema(self) -> StructType:
        return schema_of(columns_of(self.options))

    def reader(self, schema: StructType) -> TableReader:
        origin, options = Origin.of(self.options), ReadOptions.of(self.options)
        check_schema(columns_of(self.options), schema)
        return _READERS[options.table](origin, options, schema)

    def streamReader(self, schema: StructType) -> CommitStream:  # noqa: N802 - Spark's name.
        if table_of(self.options) != "log":
            raise CannotRun(
                "A stream follows the commits of a branch: set the option 'table' to 'log'"
            )
        check_schema(columns_of(self.options), schema)
        return CommitStream(Origin.of(self.options), self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return CommitWriter(Origin.of(self.options), self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return StreamCommitWriter(Origin.of(self.options), self.options, schema, overwrite)
