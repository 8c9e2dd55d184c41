"""Real Iceberg tables, written by PyIceberg and committed to a catalog through our client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from morag import ContentKey, ContentNotFound, Delete, IcebergTable, Namespace, Put

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag import Repository
    from morag.client import Client
    from morag.model.operations import Operation

ROWS: Final = pa.schema([pa.field("id", pa.int64()), pa.field("word", pa.string())])


class Lake(MetastoreCatalog, NoopCatalog):
    """A branch of a catalog as PyIceberg sees one: every change of a table is a commit there."""

    def __init__(
        self,
        catalog: Client | Repository,
        warehouse: str,
        branch: str = "main",
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("lake", warehouse=warehouse, **(options or {}))
        self.catalog = catalog
        self.warehouse = warehouse
        self.branch = branch
        self._made = 0

    def on(self, branch: str) -> Lake:
        """The same lake, seen on another branch."""
        own = {k: v for k, v in self.properties.items() if k != "warehouse"}
        return Lake(self.catalog, self.warehouse, branch, own)

    def make(self, name: str, rows: int = 1, properties: Mapping[str, str] | None = None) -> Table:
        """A new table, with one data file unless it is to have no rows."""
        table = self.create_table(name, ROWS, properties=dict(properties or {}))
        if rows:
            self.grow(name, rows)
        return table

    def grow(self, name: str, rows: int = 1) -> None:
        """Append one more data file."""
        self._made += 1
        ids = list(range(self._made * 1000, self._made * 1000 + rows))
        data = pa.table({"id": ids, "word": [f"word {id}" for id in ids]}, schema=ROWS)
        self.load_table(name).append(data)

    def expire(self, name: str) -> None:
        """Forget all snapshots but the current one. No file is touched."""
        table = self.load_table(name)
        current = table.metadata.current_snapshot_id
        old = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != current]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()

    def drop(self, name: str) -> None:
        self.catalog.commit(self.branch, [Delete(_key(name))], f"drop {name}")

    def rename(self, name: str, to: str) -> None:
        content = self._content(name)
        operations: list[Operation] = [Delete(_key(name)), Put(_key(to), content)]
        operations += self._missing_namespaces(to)
        self.catalog.commit(self.branch, operations, f"rename {name} to {to}")

    def metadata_location(self, name: str) -> str:
        return self._content(name).metadata_location

    # What PyIceberg calls.

    def create_table(  # type: ignore[override]
        self,
        identifier: str,
        schema: Any,
        location: str | None = None,
        partition_spec: Any = UNPARTITIONED_PARTITION_SPEC,
        sort_order: Any = UNSORTED_SORT_ORDER,
        properties: Any = {},  # noqa: B006
    ) -> Table:
        # As engines do it: a table that was dropped may still have files where the new one goes.
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
        there = self.catalog.contents.get_all(self.branch, needed)
        return [Put(key, Namespace.of(*key.elements)) for key in needed if key not in there]


def _key(name: str) -> ContentKey:
    return ContentKey.of(*name.split("."))
