"""What the metadata of a content tells about it: columns, snapshots, sizes and plain facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.view.metadata import ViewMetadata

from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.spark.lake import Unreadable, metadata_text, not_metadata, outlined

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from morag.model.content import Content
    from morag.spark.files import Files

NO_SNAPSHOT: Final = -1
"""The snapshot of a table that never had one."""


class Size(Struct, frozen=True):
    """What a snapshot holds. None is for what its summary does not tell."""

    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None


class Made(Struct, frozen=True):
    """How a snapshot came to be."""

    parent: int | None
    operation: str | None


class State(Struct, frozen=True, kw_only=True):
    """`snapshots` are all that the metadata knows, `snapshot_id` is the one that counts here.

    `facts` are for people: anything that is worth a word when it changes.
    """

    schema: Schema | None = None
    snapshot_id: int | None = None
    snapshots: dict[int, Made] = {}
    size: Size = Size()
    facts: dict[str, str] = {}


NOTHING: Final = State()


def state_of(content: Content, files: Files) -> State:
    """Reads the metadata file that the content names, if it is Iceberg's."""
    match content:
        case IcebergTable():
            text = metadata_text(files, content.metadata_location)
            return _table(content, described(text, content))
        case IcebergView():
            return _view(content, files)
        case Namespace():
            return State(facts=_properties(content.properties))
        case DeltaLakeTable():
            return State(
                facts=_told(
                    {
                        "last checkpoint": content.last_checkpoint,
                        "log files": str(len(content.metadata_location_history)),
                    }
                )
            )
        case UDF():
            return State(facts=_told({"SQL": content.sql_text, "dialect": content.dialect}))


def table_metadata(content: IcebergTable, files: Files) -> TableMetadata:
    """As PyIceberg sees it, which can then read the table's data."""
    return _parsed(metadata_text(files, content.metadata_location), content)


def described(text: bytes, content: IcebergTable) -> TableMetadata:
    """The same for looking at it.

    Old tables may have snapshots that name their manifests themselves. PyIceberg asks for a list of
    them nevertheless, so these have an empty name for it.
    """
    snapshots = outlined(text, content.metadata_location).snapshots or ()
    if any(each.manifest_list is None for each in snapshots):
        said = msgspec.json.decode(text)
        for snapshot in said["snapshots"]:
            snapshot["manifest-list"] = snapshot.get("manifest-list") or ""
        text = msgspec.json.encode(said)
    return _parsed(text, content)


def snapshot_of(content: IcebergTable, metadata: TableMetadata) -> Snapshot | None:
    """The one that the content names: which one is current is up to the catalog."""
    if content.snapshot_id == NO_SNAPSHOT:
        return None
    found = metadata.snapshot_by_id(content.snapshot_id)
    if found is None:
        raise Unreadable(
            f"'{content.metadata_location}' does not know snapshot {content.snapshot_id}, "
            "which the catalog names"
        )
    return found


def size_of(snapshot: Snapshot | None) -> Size:
    """A table without snapshots is known to be empty. How many rows equality deletes leave, only
    the data files could tell."""
    if snapshot is None:
        return Size(0, 0, 0)
    told = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    rows = _number(told, "total-records")
    if rows is not None:
        rows -= _number(told, "total-position-deletes") or 0
    if _number(told, "total-equality-deletes"):
        rows = None
    files = _number(told, "total-data-files")
    if files is not None:
        files += _number(told, "total-delete-files") or 0
    return Size(rows, files, _number(told, "total-files-size"))


def _table(content: IcebergTable, metadata: TableMetadata) -> State:
    schema = metadata.schema_by_id(content.schema_id) or metadata.schema()
    spec = metadata.specs().get(content.spec_id)
    order = metadata.sort_order_by_id(content.sort_order_id)

    def column(id: int) -> str:
        return schema.find_column_name(id) or f"#{id}"

    partitioning = [] if spec is None else spec.fields
    sorting = [] if order is None else order.fields
    facts = {
        "location": metadata.location,
        "format version": str(metadata.format_version),
        "partitioning": ", ".join(f"{f.transform}({column(f.source_id)})" for f in partitioning),
        "sort order": ", ".join(
            f"{f.transform}({column(f.source_id)}) {f.direction.value}" for f in sorting
        ),
    }
    return State(
        schema=schema,
        snapshot_id=content.snapshot_id,
        snapshots={
            each.snapshot_id: Made(
                each.parent_snapshot_id,
                None if each.summary is None else each.summary.operation.value,
            )
            for each in metadata.snapshots
        },
        size=size_of(snapshot_of(content, metadata)),
        facts=_told(facts) | _properties(metadata.properties),
    )


def _view(content: IcebergView, files: Files) -> State:
    text = metadata_text(files, content.metadata_location)
    try:
        metadata = ViewMetadata.model_validate_json(text)
    except ValueError as error:
        raise not_metadata(content.metadata_location, error) from error
    version = next((v for v in metadata.versions if v.version_id == content.version_id), None)
    if version is None:
        raise Unreadable(
            f"'{content.metadata_location}' does not know version {content.version_id}, "
            "which the catalog names"
        )
    queries = {f"SQL ({each.root.dialect})": each.root.sql for each in version.representations}
    return State(
        schema=next((s for s in metadata.schemas if s.schema_id == version.schema_id), None),
        facts={"location": metadata.location} | queries | _properties(metadata.properties),
    )


def _parsed(text: bytes, content: IcebergTable) -> TableMetadata:
    try:
        return TableMetadataUtil.parse_raw(text.decode())
    except Exception as error:  # PyIceberg has no common word for what it does not understand.
        raise not_metadata(content.metadata_location, error) from error


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"property {name}": value for name, value in properties.items()}


def _told(facts: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}


def _number(told: Mapping[str, str], name: str) -> int | None:
    value = told.get(name, "")
    return int(value) if value.isdecimal() else None
