"""A catalog's own tables as DataFrames, for jobs that have an origin and not a set of options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import structs
from pyspark.sql.types import StructType

from morag.model.content import Content
from morag.spark.connect import refuse_connect
from morag.spark.errors import CannotRun
from morag.spark.source.options import columns_of
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
    """What `spark.read.format("morag")` gives. If `columns` are named, others are not even read."""
    refuse_connect(spark)
    named = {name: str(value) for name, value in structs.asdict(origin).items() if value}
    options = {"table": table, **(options or {})}
    reader = spark.read.format("morag").options(**named, **options)
    if columns:
        known = {field.name: field for field in schema_of(columns_of(options)).fields}
        for name in columns:
            if name not in known:
                raise CannotRun(
                    f"Table '{table}' has no column '{name}'; it has: {', '.join(known)}"
                )
        reader = reader.schema(StructType([known[name] for name in columns]))
    return reader.load()


def content_of(text: str) -> Content:
    """What a column `content` holds."""
    content: Content = _CONTENT.decode(text)
    return content
