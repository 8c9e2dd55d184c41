"""Iceberg tables that PyIceberg writes and that are committed to a Morag catalog."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import read_manifest_list
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from morag import (
    ContentKey,
    ContentNotFound,
    Delete,
    IcebergTable,
    IcebergView,
    Namespace,
    Put,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from morag.catalog import Catalog
    from morag.model.operations import Operation

ROWS: Final = pa.schema([pa.field("id", pa.int64()), pa.field("word", pa.string())])


class Lake(MetastoreCatalog, NoopCatalog):
    """A branch as a catalog of PyIceberg: every change of a table is a commit to the branch."""

    def __init__(
        self,
        catalog: Catalog,
        warehouse: str,
        branch: str = "main",
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("lake", warehouse=warehouse, **(options or {}))
        self.catalog = catalog
        self.warehouse = warehouse
        self.branch = branch
        self._number = 0

    def on(self, branch: str) -> Lake:
        """The same lake on another branch."""
        own = {k: v for k, v in self.properties.items() if k != "warehouse"}
        return Lake(self.catalog, self.warehouse, branch, own)

    def make(self, name: str, rows: int = 1, properties: Mapping[str, str] | None = None) -> Table:
        """A new table, with one data file unless `rows` is 0."""
        table = self.create_table(name, ROWS, properties=dict(properties or {}))
        if rows:
            self.grow(name, rows)
        return table

    def grow(self, name: str, rows: int = 1) -> None:
        """Append one more data file."""
        self._number += 1
        ids = list(range(self._number * 1000, self._number * 1000 + rows))
        data = pa.table({"id": ids, "word": [f"word {id}" for id in ids]}, schema=ROWS)
        self.load_table(name).append(data)

    def expire(self, name: str) -> None:
        """Expire all snapshots but the current one. No file is removed."""
        table = self.load_table(name)
        current = table.metadata.current_snapshot_id
        old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != current]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def rewrite(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        """A new version of a table, with metadata that PyIceberg would not write."""
        table = self.load_table(name)
        metadata = json.loads(table.io.new_input(table.metadata_location).open().read())
        logged = {
            "timestamp-ms": metadata["last-updated-ms"],
            "metadata-file": table.metadata_location,
        }
        metadata["metadata-log"] = [*metadata.get("metadata-log", ()), logged]
        change(metadata)
        where = table.metadata_location.rpartition("/")[0]
        location = f"{where}/{len(metadata['metadata-log']):05}-{uuid4()}.metadata.json"
        with table.io.new_output(location).create() as file:
            file.write(json.dumps(metadata).encode())
        self._put(name, table.metadata, location, f"rewrite {name}")

    def name_manifests(self, name: str) -> None:
        """Make snapshots list their manifests, as old tables do.

        PyIceberg cannot load such a table.
        """
        table = self.load_table(name)

        def change(metadata: dict[str, Any]) -> None:
            metadata |= {
                "format-version": 1,
                "schema": metadata["schemas"][0],
                "partition-spec": [],
            }
            for snapshot in metadata["snapshots"]:
                listed = table.io.new_input(snapshot.pop("manifest-list"))
                snapshot["manifests"] = [each.manifest_path for each in read_manifest_list(listed)]

        self.rewrite(name, change)

    def add_statistics(self, name: str) -> None:
        """Add a statistics file of the table and one of its partitions, which are never read."""
        table = self.load_table(name)
        snapshot = table.metadata.current_snapshot_id
        common: dict[str, Any] = {"snapshot-id": snapshot, "file-size-in-bytes": 4}
        paths = [f"{table.location()}/metadata/{snapshot}{end}" for end in (".stats", "-p.parquet")]
        for path in paths:
            with table.io.new_output(path).create(overwrite=True) as file:
                file.write(b"statistics")

        def change(metadata: dict[str, Any]) -> None:
            of_table, of_partitions = ({**common, "statistics-path": path} for path in paths)
            of_table |= {"file-footer-size-in-bytes": 0, "blob-metadata": []}
            metadata |= {"statistics": [of_table], "partition-statistics": [of_partitions]}

        self.rewrite(name, change)

    def make_view(self, name: str) -> None:
        """A new view, or a new version of one."""
        self._number += 1
        where = f"{self.warehouse}/{name.replace('.', '/')}"
        location = f"{where}/metadata/{self._number:05}-{uuid4()}.metadata.json"
        with self._load_file_io(self.properties, location).new_output(location).create() as file:
            file.write(json.dumps(_view(where)).encode())
        stored = self.catalog.contents.get_all(self.branch, [_key(name)])
        view = IcebergView(
            id=stored[_key(name)].id if stored else None,
            metadata_location=location,
            version_id=1,
            schema_id=0,
        )
        operations = [*self._missing_namespaces(name), Put(_key(name), view)]
        self.catalog.commit(self.branch, operations, f"change {name}")

    def drop(self, name: str) -> None:
        self.catalog.commit(self.branch, [Delete(_key(name))], f"drop {name}")

    def rename(self, name: str, to: str) -> None:
        content = self._content(name)
        operations: list[Operation] = [Delete(_key(name)), Put(_key(to), content)]
        operations += self._missing_namespaces(to)
        self.catalog.commit(self.branch, operations, f"rename {name} to {to}")

    def metadata_location(self, name: str) -> str:
        return self._content(name).metadata_location

    # PyIceberg calls the methods below.

    def create_table(  # type: ignore[override]
        self,
        identifier: str,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Any = {},  # noqa: B006
    ) -> Table:
        # As in engines, the directory may still have files of a dropped table.
        where = location or f"{self.warehouse}/{identifier.replace('.', '/')}"
        staged = self._create_staged_table(
            identifier, schema, where, partition_spec, sort_order, properties
        )
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(identifier, staged.metadata, staged.metadata_location, f"create {identifier}")
        return self.load_table(identifier)

    def load_table(self, identifier: Any) -> Table:
        name = ".".join(self.identifier_to_tuple(identifier))
        try:
            location = self._content(name).metadata_location
        except ContentNotFound:
            raise NoSuchTableError(name) from None
        io = self._load_file_io(self.properties, location)
        metadata = FromInputFile.table_metadata(io.new_input(location))
        return Table(self.identifier_to_tuple(name), metadata, location, io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        name = ".".join(table.name())
        current = self.load_table(name)
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._put(name, staged.metadata, staged.metadata_location, f"change {name}")
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": staged.metadata_location}
        )

    def _content(self, name: str) -> IcebergTable:
        content = self.catalog.contents.get(self.branch, _key(name))
        assert isinstance(content, IcebergTable)
        return content

    def _put(self, name: str, metadata: Any, location: str, message: str) -> None:
        try:
            id = self._content(name).id
        except ContentNotFound:
            id = None
        snapshot = metadata.current_snapshot_id
        content = IcebergTable(
            id=id,
            metadata_location=location,
            snapshot_id=-1 if snapshot is None else snapshot,
            schema_id=metadata.current_schema_id,
            spec_id=metadata.default_spec_id,
            sort_order_id=metadata.default_sort_order_id,
        )
        operations = [*self._missing_namespaces(name), Put(_key(name), content)]
        self.catalog.commit(self.branch, operations, message)

    def _missing_namespaces(self, name: str) -> list[Put]:
        elements = name.split(".")
        needed = [ContentKey.of(*elements[:depth]) for depth in range(1, len(elements))]
        existing = self.catalog.contents.get_all(self.branch, needed)
        return [Put(key, Namespace.of(*key.elements)) for key in needed if key not in existing]


def _view(location: str) -> dict[str, Any]:
    version = {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "default-namespace": [],
        "representations": [{"type": "sql", "sql": "SELECT 1 AS one", "dialect": "spark"}],
    }
    one = {"id": 1, "name": "one", "type": "int", "required": False}
    return {
        "view-uuid": str(uuid4()),
        "format-version": 1,
        "location": location,
        "current-version-id": 1,
        "versions": [version],
        "version-log": [{"version-id": 1, "timestamp-ms": 1}],
        "schemas": [{"schema-id": 0, "type": "struct", "fields": [one]}],
    }


def _key(name: str) -> ContentKey:
    return ContentKey.of(*name.split("."))
