"""The files that Iceberg's metadata names, for tables that PyIceberg wrote."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

import morag
from morag.spark import iceberg_metadata
from morag.spark.files import Files
from tests.spark.iceberg_lake import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Lake]:
    with morag.open("memory:") as catalog:
        yield Lake(catalog, (tmp_path / "warehouse").as_uri())


def test_the_manifests_and_data_files_of_a_table_are_found(tables: Lake) -> None:
    tables.make("db.t")
    tables.grow("db.t")
    outline = iceberg_metadata.read_outline(Files(), tables.metadata_location("db.t"))
    assert outline.location == f"{tables.warehouse}/db/t"
    assert [kind for kind, _ in outline.files()] == ["metadata", "metadata"]
    assert outline.snapshots is not None
    first, second = outline.snapshots
    assert _data(first) < _data(second)
    assert len(_data(second)) == 2


def test_deleted_entries_of_a_manifest_are_not_needed(tables: Lake) -> None:
    tables.make("db.t")
    tables.grow("db.t")
    tables.load_table("db.t").delete("id < 2000")
    outline = iceberg_metadata.read_outline(Files(), tables.metadata_location("db.t"))
    assert outline.snapshots is not None
    assert len(_data(outline.snapshots[-1])) == 1


def test_metadata_may_be_compressed_and_have_unknown_fields(tmp_path: Path) -> None:
    metadata = {
        "location": "s3://lake/t",
        "properties": {"write.data.path": "s3://fast/t", "write.metadata.path": "s3://safe/t"},
        "snapshots": [{"snapshot-id": 1, "manifests": ["s3://lake/t/m.avro"]}],
        "statistics": [{"snapshot-id": 1, "statistics-path": "s3://lake/t/s.puffin"}],
        "partition-statistics": [{"snapshot-id": 1, "statistics-path": "s3://lake/t/p.parquet"}],
        "something-new": {},
    }
    path = tmp_path / "v1.gz.metadata.json"
    path.write_bytes(gzip.compress(msgspec.json.encode(metadata)))
    outline = iceberg_metadata.read_outline(Files(), str(path))
    assert outline.location == "s3://lake/t"
    assert outline.snapshots == (iceberg_metadata.Snapshot(1, None, ("s3://lake/t/m.avro",)),)
    assert [path for _, path in outline.files()] == [
        "s3://lake/t/s.puffin",
        "s3://lake/t/p.parquet",
    ]


def test_truncated_files_and_other_files_are_unreadable(tables: Lake, tmp_path: Path) -> None:
    tables.make("db.t")
    outline = iceberg_metadata.read_outline(Files(), tables.metadata_location("db.t"))
    assert outline.snapshots is not None
    listed = outline.snapshots[0].manifest_list
    assert listed is not None
    [manifest] = iceberg_metadata.read_manifest_list(Files(), listed)
    for whole in (listed, manifest):
        path = Path(whole.removeprefix("file://"))
        path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(iceberg_metadata.Unreadable, match="truncated"):
        list(iceberg_metadata.read_manifest_list(Files(), listed))
    with pytest.raises(iceberg_metadata.Unreadable, match="truncated"):
        list(iceberg_metadata.read_manifest(Files(), manifest))
    (tmp_path / "x.metadata.json").write_bytes(b'{"format-version": 2')
    with pytest.raises(iceberg_metadata.Unreadable, match=r"x\.metadata\.json"):
        iceberg_metadata.read_outline(Files(), str(tmp_path / "x.metadata.json"))


def test_metadata_whose_compression_is_damaged_is_unreadable(tmp_path: Path) -> None:
    path, whole = tmp_path / "v1.gz.metadata.json", gzip.compress(b'{"location": "s3://lake/t"}')
    for damaged in (whole[:-9], whole[:12] + b"\xff" * 8 + whole[20:]):
        path.write_bytes(damaged)
        with pytest.raises(iceberg_metadata.Unreadable, match=r"v1\.gz\.metadata\.json"):
            iceberg_metadata.read_outline(Files(), str(path))


def test_both_kinds_of_delete_files_are_distinguished_from_data(tmp_path: Path) -> None:
    kinds = {
        "data": DataFileContent.DATA,
        "positions": DataFileContent.POSITION_DELETES,
        "equality": DataFileContent.EQUALITY_DELETES,
    }
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    output = PyArrowFileIO().new_output(str(tmp_path / "m.avro"))
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, schema, output, 1, "null") as manifest:
        for name, content in kinds.items():
            file = DataFile.from_args(
                content=content,
                file_path=f"s3://lake/t/{name}",
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=0,
            )
            status = ManifestEntryStatus.ADDED
            manifest.add_entry(
                ManifestEntry.from_args(status=status, snapshot_id=1, data_file=file)
            )
    assert list(iceberg_metadata.read_manifest(Files(), output.location)) == [
        ("data", "s3://lake/t/data"),
        ("delete", "s3://lake/t/positions"),
        ("delete", "s3://lake/t/equality"),
    ]


def _data(snapshot: iceberg_metadata.Snapshot) -> set[str]:
    assert snapshot.manifest_list is not None
    manifests = iceberg_metadata.read_manifest_list(Files(), snapshot.manifest_list)
    return {path for each in manifests for _, path in iceberg_metadata.read_manifest(Files(), each)}
