"""Reads the state of a content from its metadata: columns, snapshots, sizes and facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.view.metadata import ViewMetadata

from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.spark.iceberg_metadata import Unreadable, decode_outline, metadata_text, not_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from morag.model.content import Content
    from morag.spark.files import Files

NO_SNAPSHOT: Final = -1
"""The snapshot of a table that never had one."""


class Size(Struct, frozen=True):
    """The size of a snapshot. None for values that its summary lacks."""

    rows: int | None = None
    files: int | None = None
    size_bytes: int | None = None


class SnapshotInfo(Struct, frozen=True):
    """The parent of a snapshot, and the operation that made it."""

    parent: int | None
    operation: str | None


class State(Struct, frozen=True, kw_only=True):
    """`snapshots` are all snapshots in the metadata, `snapshot_id` is the one in the catalog.

    `facts` are for people: values whose changes are worth reporting.
    """

    schema: Schema | None = None
    snapshot_id: int | None = None
    snapshots: dict[int, SnapshotInfo] = {}
    size: Size = Size()
    facts: dict[str, str] = {}


NOTHING: Final = State()


def state_of(content: Content, files: Files) -> State:
    """Reads the metadata file of an Iceberg table or view; other contents are described alone."""
    match content:
        case IcebergTable():
            text = metadata_text(files, content.metadata_location)
            return _table(content, parse_table_metadata(text, content))
        case IcebergView():
            return _view(content, files)
        case Namespace():
            return State(facts=_properties(content.properties))
        case DeltaLakeTable():
            return State(
                facts=_present(
                    {
                        "last checkpoint": content.last_checkpoint,
                        "log files": str(len(content.metadata_location_history)),
                    }
                )
            )
        case UDF():
            return State(facts=_present({"SQL": content.sql_text, "dialect": content.dialect}))


def table_metadata(content: IcebergTable, files: Files) -> TableMetadata:
    """The table as a PyIceberg object, which can read its data."""
    return _parse(metadata_text(files, content.metadata_location), content)


def parse_table_metadata(text: bytes, content: IcebergTable) -> TableMetadata:
    """A PyIceberg object of a metadata file's JSON, for reading metadata only.

    Snapshots of old tables may list their manifests themselves. PyIceberg requires a manifest list,
    so these get one with an empty name.
    """
    snapshots = decode_outline(text, content.metadata_location).snapshots or ()
    if any(each.manifest_list is None for each in snapshots):
        document = msgspec.json.decode(text)
        for snapshot in document["snapshots"]:
            snapshot["manifest-list"] = snapshot.get("manifest-list") or ""
        text = msgspec.json.encode(document)
    return _parse(text, content)


def snapshot_of(content: IcebergTable, metadata: TableMetadata) -> Snapshot | None:
    """The snapshot that the content names: the catalog decides which one is current."""
    if content.snapshot_id == NO_SNAPSHOT:
        return None
    found = metadata.snapshot_by_id(content.snapshot_id)
    if found is None:
        raise Unreadable(
            f"'{content.metadata_location}' has no snapshot {content.snapshot_id}, "
            "which the catalog names"
        )
    return found


def size_of(snapshot: Snapshot | None) -> Size:
    """A table without snapshots is empty. With equality deletes, only the data files show how many
    rows are left."""
    if snapshot is None:
        return Size(0, 0, 0)
    summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    rows = _number(summary, "total-records")
    if rows is not None:
        rows -= _number(summary, "total-position-deletes") or 0
    if _number(summary, "total-equality-deletes"):
        rows = None
    files = _number(summary, "total-data-files")
    if files is not None:
        files += _number(summary, "total-delete-files") or 0
    return Size(rows, files, _number(summary, "total-files-size"))


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
            each.snapshot_id: SnapshotInfo(
                each.parent_snapshot_id,
                None if each.summary is None else each.summary.operation.value,
            )
            for each in metadata.snapshots
        },
        size=size_of(snapshot_of(content, metadata)),
        facts=_present(facts) | _properties(metadata.properties),
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
            f"'{content.metadata_location}' has no version {content.version_id}, "
            "which the catalog names"
        )
    queries = {f"SQL ({each.root.dialect})": each.root.sql for each in version.representations}
    return State(
        schema=next((s for s in metadata.schemas if s.schema_id == version.schema_id), None),
        facts={"location": metadata.location} | queries | _properties(metadata.properties),
    )


def _parse(text: bytes, content: IcebergTable) -> TableMetadata:
    try:
        return TableMetadataUtil.parse_raw(text.decode())
    except Exception as error:
        # PyIceberg has no common error class for metadata that it does not understand.
        raise not_metadata(content.metadata_location, error) from error


def _properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {f"property {name}": value for name, value in properties.items()}


def _present(facts: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in facts.items() if value}


def _number(summary: Mapping[str, str], name: str) -> int | None:
    value = summary.get(name, "")
    return int(value) if value.isdecimal() else None
