"""Turns rows into the operations of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from pyspark.sql.types import ArrayType, IntegralType, StringType

from morag.model.content import Content, check_content
from morag.model.keys import ContentKey, check_key
from morag.model.operations import Delete, Put
from morag.spark.errors import CannotRun
from morag.spark.source.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql.types import StructType

_FIELDS: Final = {
    "content_type": "type",
    "content_id": "id",
    "metadata_location": "metadataLocation",
    "snapshot_id": "snapshotId",
    "schema_id": "schemaId",
    "spec_id": "specId",
    "sort_order_id": "sortOrderId",
    "version_id": "versionId",
}
"""The columns that define content in rows without JSON."""

_KNOWN: Final = {"sequence", *TABLES["operations"]}
"""Further columns of the log, accepted so that its operations can be written elsewhere."""

_TABLE: Final = "ICEBERG_TABLE"
_UNPARTITIONED: Final = {"schemaId": 0, "specId": 0, "sortOrderId": 0}


class SequencedOperation(Struct, frozen=True):
    """An operation and its sequence number: for each key, the highest number counts."""

    sequence: int | None
    operation: Put | Delete


def check_columns(schema: StructType) -> None:
    """Refuse rows without a key, and columns that would be ignored."""
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    key = columns.get("key")
    if not (isinstance(key, ArrayType) and isinstance(key.elementType, StringType)):
        raise CannotRun(
            "Rows to commit need a column 'key' of type array<string>, such as array('sales', "
            "'orders'); the content comes from the column 'content' (JSON) or from "
            f"{', '.join(_FIELDS)}; 'operation' is PUT or DELETE"
        )
    unknown = sorted(columns.keys() - _KNOWN)
    if unknown:
        raise CannotRun(
            f"Column '{unknown[0]}' of the rows to commit is unknown; known are 'key', "
            f"'operation' (PUT or DELETE), 'sequence', and 'content' (JSON) or {', '.join(_FIELDS)}"
        )
    if "sequence" in columns and not isinstance(columns["sequence"], IntegralType):
        raise CannotRun("Column 'sequence' must have an integer type: the highest number counts")


def sequenced_operation(row: Mapping[str, Any]) -> SequencedOperation:
    row = {name.lower(): value for name, value in row.items()}
    key = ContentKey(tuple(row["key"] or ()))
    check_key(key)
    return SequencedOperation(row.get("sequence"), _operation(key, row))


def operations_of(sequenced: Iterable[SequencedOperation]) -> list[Put | Delete]:
    """One operation for each key, in key order."""
    chosen: dict[ContentKey, SequencedOperation] = {}
    for each in sequenced:
        key = each.operation.key
        known = chosen.setdefault(key, each)
        if known is each:
            continue
        if each.sequence is None or known.sequence is None or each.sequence == known.sequence:
            raise CannotRun(
                f"Key '{key}' is in the batch more than once, and it is unclear which row counts; "
                "keep one row for each key, or add a column 'sequence', whose highest number counts"
            )
        if each.sequence > known.sequence:
            chosen[key] = each
    return [chosen[key].operation for key in sorted(chosen)]


def _operation(key: ContentKey, row: Mapping[str, Any]) -> Put | Delete:
    match (row.get("operation") or "PUT").upper():
        case "DELETE":
            return Delete(key)
        case "PUT":
            return Put(key, _content(key, row))
        case other:
            raise CannotRun(f"Key '{key}': operation must be PUT or DELETE, not {other!r}")


def _content(key: ContentKey, row: Mapping[str, Any]) -> Content:
    try:
        if row.get("content") is not None:
            content: Content = msgspec.json.decode(row["content"], type=Content)
        else:
            given = {name: row[column] for column, name in _FIELDS.items() if column in row}
            given = {name: value for name, value in given.items() if value is not None}
            if given.setdefault("type", _TABLE) == _TABLE:
                given = _UNPARTITIONED | {"snapshotId": -1} | given
            content = msgspec.convert(given, Content)
    except msgspec.MsgspecError as error:
        raise CannotRun(f"Key '{key}' has invalid content: {error}") from None
    check_content(content)
    return content
