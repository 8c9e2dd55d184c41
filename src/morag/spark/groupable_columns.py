"""Turns a column into a form that Spark can group by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.
from pyspark.sql.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def groupable(column: Column, type: DataType) -> Column:
    """The column with lists of entries, sorted by key, instead of maps: equal if the values are.

    Spark 4.1 can group by maps, but treats a missing value in a map as zero.
    """
    if not _has_map(type):
        return column
    match type:
        case MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(entry["key"], groupable(entry["value"], type.valueType)),
            )
            return F.array_sort(entries)
        case ArrayType():
            return F.transform(column, lambda element: groupable(element, type.elementType))
        case StructType():
            inner = (groupable(column[f.name], f.dataType).alias(f.name) for f in type.fields)
            return F.when(column.isNotNull(), F.struct(*inner))
        case _:
            raise AssertionError(f"{type} has no map in it")


def _has_map(type: DataType) -> bool:
    match type:
        case MapType():
            return True
        case ArrayType():
            return _has_map(type.elementType)
        case StructType():
            return any(_has_map(field.dataType) for field in type.fields)
        case _:
            return False
