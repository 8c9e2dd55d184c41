"""Columns in a form that Spark can group by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.
from pyspark.sql.types import ArrayType, MapType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def comparable(column: Column, type: DataType) -> Column:
    """Equal for equal values, and for no others: maps become lists of entries, sorted by key.

    Spark 4.1 does group by maps, but takes a missing value in one for a zero.
    """
    if not _has_map(type):
        return column
    match type:
        case MapType():
            entries = F.transform(
                F.map_entries(column),
                lambda entry: F.struct(entry["key"], comparable(entry["value"], type.valueType)),
            )
            return F.array_sort(entries)
        case ArrayType():
            return F.transform(column, lambda element: comparable(element, type.elementType))
        case StructType():
            inner = (comparable(column[f.name], f.dataType).alias(f.name) for f in type.fields)
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
