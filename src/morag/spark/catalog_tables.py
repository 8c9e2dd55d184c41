"""The tables of the format `morag` as DataFrames, for jobs that have an Origin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs
from pyspark.sql.types import StructType

from morag.model.content import Content
from morag.spark.errors import CannotRun
from morag.spark.session import refuse_spark_connect
from morag.spark.source.options import columns_of, table_of
from morag.spark.source.schemas import schema_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from morag.spark.opening import Origin


_CONTENT: Final = msgspec.json.Decoder(Content)


def read_table(
    spark: SparkSession,
    origin: Origin,
    table: str,
    options: Mapping[str, str] | None = None,
    columns: Sequence[str] = (),
) -> DataFrame:
    """A table of the format `morag`. If `columns` are given, others are not read."""
    refuse_spark_connect(spark)
    named = {name: str(value) for name, value in structs.asdict(origin).items() if value}
    options = {"table": table, **(options or {})}
    reader = spark.read.format("morag").options(**named, **options)
    if columns:
        reader = reader.schema(selected_schema(options, columns))
    return reader.load()


def selected_schema(options: Mapping[str, str], columns: Sequence[str]) -> StructType:
    """The schema of these columns of a table. Raises CannotRun if it lacks one of them."""
    known = {field.name: field for field in schema_of(columns_of(options)).fields}
    for name in columns:
        if name not in known:
            raise CannotRun(
                f"Table '{table_of(options)}' has no column '{name}'; it has: {', '.join(known)}"
            )
    return StructType([known[name] for name in columns])


def content_of(text: str) -> Content:
    """Decode a value of the column `content`."""
    content: Content = _CONTENT.decode(text)
    return content
