"""Finds the rows that differ between two states of a table."""

from __future__ import annotations

import pickle
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from pyiceberg.exceptions import ResolveError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.schema import Schema, promote
from pyiceberg.table import ManifestGroupPlanner
from pyspark.errors import PySparkTypeError
from pyspark.sql import functions as F  # noqa: N812 - PySpark's documentation calls it F.
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType
from pyspark.sql.window import Window

from morag.model.content import IcebergTable
from morag.spark.content_state import snapshot_of, table_metadata
from morag.spark.errors import CannotRun
from morag.spark.executors import frame_of, map_partitions, map_rows
from morag.spark.files import Files
from morag.spark.groupable_columns import groupable
from morag.spark.iceberg_metadata import file_io
from morag.spark.session import refuse_spark_connect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table import FileScanTask
    from pyspark.sql import Column, DataFrame, SparkSession

    from morag.spark.executors import Rows

CHANGE: Final = "_change"
"""The column with the kind of change: ADDED, REMOVED, or changed from BEFORE to AFTER."""

_WEIGHT: Final = "_weight"
_OLD: Final = -1
_NEW: Final = 1
_PLAN: Final = "side INT, path STRING, deletes ARRAY<STRING>, task BINARY"


class Side(Struct, frozen=True):
    """Everything that an executor needs to read one state of a table, as rows of `columns`."""

    table: IcebergTable
    columns: Schema
    files: Files


def rows_between(
    spark: SparkSession,
    old: IcebergTable | None,
    new: IcebergTable | None,
    *,
    on: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
) -> DataFrame:
    """Rows that one of the two states has more often than the other, after a column CHANGE.

    Only data files that are not in both states are read. Columns are identified by their ids and
    have the names of the new state; columns that it dropped are not compared. `on` are the columns
    that identify a row, by default the table's identifier fields. `files` are options of PyIceberg
    for access to files, such as `s3.endpoint`.
    """
    refuse_spark_connect(spark)
    lake = Files(dict(files or {}))
    tables = {side: table for side, table in ((_OLD, old), (_NEW, new)) if table is not None}
    if not tables:
        raise CannotRun("Neither state has a table whose rows could be compared")
    metadata = {side: table_metadata(table, lake) for side, table in tables.items()}
    schemas = {
        side: metadata[side].schema_by_id(table.schema_id) or metadata[side].schema()
        for side, table in tables.items()
    }
    identifier = list(on) or sorted(schemas[max(schemas)].identifier_field_names())
    if len({each.table_uuid for each in metadata.values()}) == 1:
        shared = _widened(schemas[max(schemas)], schemas[min(schemas)])
        sides = {side: Side(table, shared, lake) for side, table in tables.items()}
        weighed = _read(spark, sides)
    else:  # Another table of the same name: its columns share only names with the old one.
        frames = [
            _read(spark, {side: Side(table, _widened(schemas[side], schemas[side]), lake)})
            for side, table in tables.items()
        ]
        weighed = frames[0].unionByName(frames[1], allowMissingColumns=True)
    return _paired(_unequal(weighed), identifier)


def _widened(schema: Schema, other: Schema) -> Schema:
    """The columns, each of a type that can hold the values of both states.

    None is required: old files may lack columns that the table requires now.
    """
    other_types = {field.field_id: field.field_type for field in other.fields}
    fields = []
    for field in schema.fields:
        type = field.field_type
        with suppress(ResolveError):  # Then the other type fits into this one.
            type = promote(type, other_types.get(field.field_id, type))
        fields.append(field.model_copy(update={"field_type": type, "required": False}))
    return Schema(*fields, schema_id=schema.schema_id)


def _read(spark: SparkSession, sides: Mapping[int, Side]) -> DataFrame:
    """The rows of all files that the sides do not share, each with its weight."""
    columns = next(iter(sides.values())).columns
    arrow = schema_to_pyarrow(columns, include_field_ids=False)
    names = [field.name for field in columns.fields]
    if CHANGE in names or _WEIGHT in names:
        raise CannotRun(f"Rows of a table with a column {CHANGE} or {_WEIGHT} cannot be compared")
    try:
        as_spark = from_arrow_schema(arrow, prefer_timestamp_ntz=True)
    except PySparkTypeError as error:
        raise CannotRun(f"Spark has no type for one of the columns: {error}") from error
    schema = StructType([*as_spark.fields, StructField(_WEIGHT, IntegerType())])
    numbers = frame_of(spark, [(side,) for side in sides], "side INT")
    planned = map_partitions(
        numbers.repartition(len(sides), "side"), partial(_planned, sides), _PLAN
    )
    weight = F.sum("side").cast("int").alias(_WEIGHT)
    found = planned.groupBy("path", "deletes").agg(weight, *map(_first, ("side", "task")))
    return map_rows(found.where(f"{_WEIGHT} != 0"), partial(_rows, sides), schema.toDDL())


def _planned(sides: Mapping[int, Side], numbers: Rows) -> Iterator[tuple[Any, ...]]:
    """The data files of a state, each with the delete files that apply to it."""
    for row in numbers:
        for task in _tasks(sides[row["side"]]):
            deletes = sorted(each.file_path for each in task.delete_files)
            yield row["side"], task.file.file_path, deletes, pickle.dumps(task)


def _tasks(side: Side) -> list[FileScanTask]:
    metadata = table_metadata(side.table, side.files)
    snapshot = snapshot_of(side.table, metadata)
    if snapshot is None:
        return []
    io = file_io(side.table.metadata_location, side.files.options)
    try:
        return list(ManifestGroupPlanner(metadata, io).plan_files(snapshot.manifests(io)))
    except ValueError as error:
        raise CannotRun(
            f"The rows of '{side.table.metadata_location}' cannot be read without Iceberg's jar: "
            f"{error}"
        ) from error


def _rows(sides: Mapping[int, Side], planned: Rows) -> Iterator[tuple[Any, ...]]:
    scans: dict[int, ArrowScan] = {}
    for row in planned:
        number, weight = row["side"], row[_WEIGHT]
        if number not in scans:
            scans[number] = _scan(sides[number])
        for batch in scans[number].to_record_batches([pickle.loads(bytes(row["task"]))]):
            columns = [each.to_pylist(maps_as_pydicts="strict") for each in batch.columns]
            for values in zip(*columns, strict=True):
                yield (*values, weight)


def _scan(side: Side) -> ArrowScan:
    metadata = table_metadata(side.table, side.files)
    io = file_io(side.table.metadata_location, side.files.options)
    return ArrowScan(metadata, io, side.columns, AlwaysTrue())


def _unequal(weighed: DataFrame) -> DataFrame:
    """Equal rows cancel each other out."""
    fields = [field for field in weighed.schema.fields if field.name != _WEIGHT]
    keys = {f.name: groupable(_column(f.name), f.dataType) for f in fields}
    counted = weighed.groupBy(*(key.alias(f"key {name}") for name, key in keys.items())).agg(
        F.sum(_WEIGHT).alias(_WEIGHT), *(_first(name) for name in keys)
    )
    times = F.array_repeat(F.lit(True), F.abs(_WEIGHT).cast("int"))
    changes = counted.where(f"{_WEIGHT} != 0").select(
        F.when(F.col(_WEIGHT) > 0, "ADDED").otherwise("REMOVED").alias(CHANGE),
        *map(_column, keys),
        F.explode(times).alias(_WEIGHT),
    )
    return changes.drop(_WEIGHT)


def _paired(changes: DataFrame, identifier: Sequence[str]) -> DataFrame:
    """Turn a removed and an added row with the same key into BEFORE and AFTER."""
    if not identifier:
        return changes
    missing = set(identifier) - set(changes.columns)
    if missing:
        raise CannotRun(
            f"Rows cannot be identified by {sorted(missing)}: the table has no such column"
        )
    same = Window.partitionBy(*map(_column, identifier))
    both = F.min(CHANGE).over(same) != F.max(CHANGE).over(same)
    changed = F.when(F.col(CHANGE) == "ADDED", "AFTER").otherwise("BEFORE")
    return changes.withColumn(CHANGE, F.when(both, changed).otherwise(F.col(CHANGE)))


def _first(name: str) -> Column:
    return F.first(_column(name)).alias(name)


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
