"""The tables of a catalog and their columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import DataType

_TEXT: Final = StringType()
_INT: Final = IntegerType()
_LONG: Final = LongType()
_TIME: Final = TimestampType()
_TEXTS: Final = ArrayType(_TEXT)

KEY: Final[dict[str, DataType]] = {"key": _TEXTS, "namespace": _TEXT, "name": _TEXT}
"""The elements of a key; the namespace is all but the last, with dots between them."""

STATE: Final[dict[str, DataType]] = {
    "metadata_location": _TEXT,
    "snapshot_id": _LONG,
    "schema_id": _INT,
    "spec_id": _INT,
    "sort_order_id": _INT,
    "version_id": _LONG,
    "content": _TEXT,
}
"""Columns that need the content itself; `content` is all of it, as the JSON of the API."""

CONTENT: Final[dict[str, DataType]] = {"content_type": _TEXT, "content_id": _TEXT, **STATE}

COMMIT: Final[dict[str, DataType]] = {
    "hash": _TEXT,
    "parents": _TEXTS,
    "message": _TEXT,
    "authors": _TEXTS,
    "committer": _TEXT,
    "author_time": _TIME,
    "commit_time": _TIME,
    "signed_off_by": _TEXTS,
    "properties": MapType(_TEXT, _TEXTS),
}

METADATA: Final[dict[str, DataType]] = {
    "message": _TEXT,
    "authors": _TEXTS,
    "commit_time": _TIME,
    "total_commits": _LONG,
    "ahead": _LONG,
    "behind": _LONG,
    "common_ancestor": _TEXT,
}
"""Columns that need the history of a reference."""

TABLES: Final[dict[str, dict[str, DataType]]] = {
    "references": {"name": _TEXT, "type": _TEXT, "hash": _TEXT, **METADATA},
    "entries": {**KEY, **CONTENT},
    "log": COMMIT,
    "operations": {**COMMIT, "operation": _TEXT, **KEY, **CONTENT},
    "diff": {
        **KEY,
        "change": _TEXT,
        **{f"{side}_{name}": type for side in ("from", "to") for name, type in CONTENT.items()},
    },
    "reflog": {
        "name": _TEXT,
        "type": _TEXT,
        "operation": _TEXT,
        "hash_before": _TEXT,
        "hash_after": _TEXT,
        "who": _TEXT,
        "time": _TIME,
        "commits": _LONG,
    },
    "objects": {
        "id": _TEXT,
        "kind": _TEXT,
        "size_bytes": _LONG,
        "referenced": _TIME,
        "version": _TEXT,
        "data": BinaryType(),
    },
}
"""`operations` is the schema of the log with the option `operations`."""


def schema_of(table: str) -> StructType:
    return StructType([StructField(name, type) for name, type in TABLES[table].items()])


def check_schema(table: str, requested: StructType) -> None:
    """Refuse columns that the table lacks. Fewer columns, in any order, are accepted."""
    known = TABLES[table]
    for field in requested.fields:
        type = known.get(field.name)
        if type is None:
            raise CannotRun(
                f"Table '{table}' has no column '{field.name}'; it has: {', '.join(known)}"
            )
        if type != field.dataType:
            raise CannotRun(
                f"Column '{field.name}' of table '{table}' is of type {type.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )


def pruned(schema: StructType, columns: Mapping[str, DataType]) -> bool:
    """Whether none of the columns is requested."""
    return not any(name in schema.names for name in columns)
