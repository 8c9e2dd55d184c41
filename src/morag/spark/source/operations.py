"""Rows that say what a commit shall change."""

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
"""The columns that content can be given by, where a row has no JSON for it."""

_KNOWN: Final = {"sequence", *TABLES["operations"]}
"""What the log tells of operations, too, so that they can be written elsewhere as they are."""

_TABLE: Final = "ICEBERG_TABLE"
_UNPARTITIONED: Final = {"schemaId": 0, "specId": 0, "sortOrderId": 0}


class Wish(Struct, frozen=True):
    """An operation, and its place among others on the same key: the highest one counts."""

    sequence: int | None
    operation: Put | Delete


def check_columns(schema: StructType) -> None:
    """Refuse rows that could not say which key they mean, and columns that would mean nothing."""
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    key = columns.get("key")
    if not (isinstance(key, ArrayType) and isinstance(key.elementType, StringType)):
        raise CannotRun(
            "Rows to commit need a column 'key' of type array<string>, such as array('sales', "
            "'orders'); they say what it shall hold by 'content' (JSON) or by "
            f"{', '.join(_FIELDS)}; and 'operation' is PUT or DELETE"
        )
    unknown = sorted(columns.keys() - _KNOWN)
    if unknown:
        raise CannotRun(
            f"Column '{unknown[0]}' of the rows to commit means nothing: they have 'key', "
            f"'operation' (PUT or DELETE), 'sequence', and 'content' (JSON) or {', '.join(_FIELDS)}"
        )
    if "sequence" in columns and not isinstance(columns["sequence"], IntegralType):
        raise CannotRun("Column 'sequence' must be of whole numbers: the highest one counts")


def wish_of(row: Mapping[str, Any]) -> Wish:
    row = {name.lower(): value for name, value in row.items()}
    key = ContentKey(tuple(row["key"] or ()))
    check_key(key)
    return Wish(row.get("sequence"), _operation(key, row))


def operations_of(wishes: Iterable[Wish]) -> list[Put | Delete]:
    """One operation for each key, in key order."""
    chosen: dict[ContentKey, Wish] = {}
    for wish in wishes:
        key = wish.operation.key
        known = chosen.setdefault(key, wish)
        if known is wish:
            continue
        if wish.sequence is None or known.sequence is None or wish.sequence == known.sequence:
            raise CannotRun(
                f"Key '{key}' is in the batch more than once, and nothing says which row counts; "
                "leave one for each key, or add a column 'sequence', whose highest number counts"
            )
        if wish.sequence > known.sequence:
            chosen[key] = wish
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
        raise CannotRun(f"Key '{key}': this is no content: {error}") from None
    check_content(content)
    return content
