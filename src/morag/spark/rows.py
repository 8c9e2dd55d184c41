"""The rows that differ between two states of a table, found by Spark."""

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
from pyspark.sql import functions as F  # noqa: N812 - As everybody calls it.
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType
from pyspark.sql.window import Window

from morag.model.content import IcebergTable
from morag.spark.comparable import comparable
from morag.spark.connect import refuse_connect
from morag.spark.errors import CannotRun
from morag.spark.files import Files
from morag.spark.lake import file_io
from morag.spark.spread import frame_of, mapped, spread
from morag.spark.states import snapshot_of, table_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyiceberg.table import FileScanTask
    from pyspark.sql import Column, DataFrame, SparkSession

    from morag.spark.spread import Rows

CHANGE: Final = "_change"
"""The column that says what became of a row: ADDED, REMOVED, or changed from BEFORE to AFTER."""

_WEIGHT: Final = "_weight"
_OLD: Final = -1
_NEW: Final = 1
_PLAN: Final = "side INT, path STRING, deletes ARRAY<STRING>, task BINARY"


class Side(Struct, frozen=True):
    """All that an executor must know to read one state of a table, as rows of `columns`."""

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
    """Rows that one of the two states has more often than the other, with CHANGE before them.

    Only those data files are read that are not part of both states alike. Columns are told apart by
    their ids and named as the new state names them; what it has dropped is not compared. `on` are
    the columns that a row is known by, by default the table's identifier fields. `files` are
    options of PyIceberg for reaching files, such as `s3.endpoint`.
    """
    refuse_connect(spark)
    lake = Files(dict(files or {}))
    tables = {side: table for side, table in ((_OLD, old), (_NEW, new)) if table is not None}
    if not tables:
        raise CannotRun("There is no table to compare rows of")
    metadata = {side: table_metadata(table, lake) for side, table in tables.items()}
    schemas = {
        side: metadata[side].schema_by_id(table.schema_id) or metadata[side].schema()
        for side, table in tables.items()
    }
    known_by = list(on) or sorted(schemas[max(schemas)].identifier_field_names())
    if len({each.table_uuid for each in metadata.values()}) == 1:
        shared = _widened(schemas[max(schemas)], schemas[min(schemas)])
        sides = {side: Side(table, shared, lake) for side, table in tables.items()}
        weighed = _read(spark, sides)
    else:  # Another table of the same name: its columns have only names in common with the old one.
        frames = [
            _read(spark, {side: Side(table, _widened(schemas[side], schemas[side]), lake)})
            for side, table in tables.items()
        ]
        weighed = frames[0].unionByName(frames[1], allowMissingColumns=True)
    return _paired(_unequal(weighed), known_by)


def _widened(schema: Schema, other: Schema) -> Schema:
    """Its columns, each of a type that the values of both fit into.

    None is required: old files need not have what the table requires by now.
    """
    there = {field.field_id: field.field_type for field in other.fields}
    fields = []
    for field in schema.fields:
        type = field.field_type
        with suppress(ResolveError):  # Then it is the other one that fits into this one.
            type = promote(type, there.get(field.field_id, type))
        fields.append(field.model_copy(update={"field_type": type, "required": False}))
    return Schema(*fields, schema_id=schema.schema_id)


def _read(spark: SparkSession, sides: Mapping[int, Side]) -> DataFrame:
    """The rows of all files that the sides do not share, and what each counts."""
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
    planned = mapped(numbers.repartition(len(sides), "side"), partial(_planned, sides), _PLAN)
    weight = F.sum("side").cast("int").alias(_WEIGHT)
    found = planned.groupBy("path", "deletes").agg(weight, *map(_first, ("side", "task")))
    return spread(found.where(f"{_WEIGHT} != 0"), partial(_rows, sides), schema.toDDL())


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
    keys = {f.name: comparable(_column(f.name), f.dataType) for f in fields}
    counted = weighed.groupBy(*(key.alias(f"key {name}") for name, key in keys.items())).agg(
        F.sum(_WEIGHT).alias(_WEIGHT), *(_first(name) for name in keys)
    )
    times = F.array_repeat(F.lit(True), F.abs(_WEIGHT).cast("int"))
    told = counted.where(f"{_WEIGHT} != 0").select(
        F.when(F.col(_WEIGHT) > 0, "ADDED").otherwise("REMOVED").alias(CHANGE),
        *map(_column, keys),
        F.explode(times).alias(_WEIGHT),
    )
    return told.drop(_WEIGHT)


def _paired(changes: DataFrame, known_by: Sequence[str]) -> DataFrame:
    """Of a row that went and came, the two versions: BEFORE and AFTER."""
    if not known_by:
        return changes
    missing = set(known_by) - set(changes.columns)
    if missing:
        raise CannotRun(f"Rows cannot be known by {sorted(missing)}: the table has no such column")
    same = Window.partitionBy(*map(_column, known_by))
    both = F.min(CHANGE).over(same) != F.max(CHANGE).over(same)
    changed = F.when(F.col(CHANGE) == "ADDED", "AFTER").otherwise("BEFORE")
    return changes.withColumn(CHANGE, F.when(both, changed).otherwise(F.col(CHANGE)))


def _first(name: str) -> Column:
    return F.first(_column(name)).alias(name)


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")
