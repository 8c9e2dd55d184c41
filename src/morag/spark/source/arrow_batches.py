"""Builds the Arrow batches that Spark takes from columns of Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from morag.model.content import DeltaLakeTable, IcebergTable, IcebergView, type_name
from morag.model.entry_columns import SEPARATOR
from morag.model.keys import ContentKey
from morag.model.times import parse_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.types import StructType

    from morag.model.content import Content

ColumnBuilders: TypeAlias = "Mapping[str, Callable[[], Sequence[Any] | pa.Array]]"
"""The function that builds each column of a table, called if the column is requested."""

ROWS: Final = 10_000
"""The maximum number of rows of a batch: the same as Spark's own."""


class Batches:
    """Builds batches with exactly the columns of a schema."""

    def __init__(self, schema: StructType) -> None:
        self.schema: pa.Schema = to_arrow_schema(schema)

    def batch(self, rows: int, columns: ColumnBuilders) -> pa.RecordBatch:
        if not self.schema.names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
        arrays = [_array(columns[field.name](), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def key_columns(paths: Sequence[str]) -> dict[str, Callable[[], pa.Array]]:
    """The columns of keys whose elements have `SEPARATOR` between them."""
    texts = pa.array(paths, pa.string())

    def namespaces() -> pa.Array:
        above = pc.replace_substring_regex(texts, f"{SEPARATOR}?[^{SEPARATOR}]*$", "")
        if pc.any(pc.match_substring(above, ".")).as_py():  # Some need escapes.
            return pa.array([namespace_text(path) for path in above.to_pylist()], pa.string())
        return pc.replace_substring(above, SEPARATOR, ".")

    return {
        "key": lambda: pc.split_pattern(texts, SEPARATOR),
        "namespace": namespaces,
        "name": lambda: pc.replace_substring_regex(texts, f"^.*{SEPARATOR}", ""),
    }


def namespace_text(path: str) -> str:
    return ContentKey(tuple(path.split(SEPARATOR))).escaped


def content_columns(
    contents: Sequence[Content | None], prefix: str = ""
) -> dict[str, Callable[[], list[Any]]]:
    """The columns of content; None for a row without content."""

    def of(attribute: str, *kinds: type) -> Callable[[], list[Any]]:
        return lambda: [getattr(c, attribute) if isinstance(c, kinds) else None for c in contents]

    return {
        f"{prefix}content_type": lambda: [None if c is None else type_name(c) for c in contents],
        f"{prefix}content_id": lambda: [None if c is None else c.id for c in contents],
        f"{prefix}metadata_location": lambda: [
            None if c is None or isinstance(c, DeltaLakeTable)
            else getattr(c, "metadata_location", None)
            for c in contents
        ],
        f"{prefix}snapshot_id": of("snapshot_id", IcebergTable),
        f"{prefix}schema_id": of("schema_id", IcebergTable, IcebergView),
        f"{prefix}spec_id": of("spec_id", IcebergTable),
        f"{prefix}sort_order_id": of("sort_order_id", IcebergTable),
        f"{prefix}version_id": of("version_id", IcebergView),
        f"{prefix}content": lambda: [
            None if c is None else _json(c).decode() for c in contents
        ],
    }  # fmt: skip


def micros(instant: str | None) -> int | None:
    """A time as Spark stores it, in microseconds."""
    return None if instant is None else parse_instant(instant) // 1000


def _array(values: Sequence[Any] | pa.Array, type: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values if values.type == type else values.cast(type)
    return pa.array(values, type)


_json: Final = msgspec.json.Encoder().encode
