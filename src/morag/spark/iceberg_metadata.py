"""Reader of Iceberg's metadata: which files a table or view consists of."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import AvroFile
from pyiceberg.avro.reader import StructReader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import InputFile, load_file_io
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.typedef import Record
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyiceberg.avro.reader import Reader
    from pyiceberg.io import FileIO, InputStream

    from morag.spark.files import Files

Kind: TypeAlias = Literal["metadata", "manifest-list", "manifest", "data", "delete", "statistics"]

_GZIP: Final = b"\x1f\x8b"
_DATA: Final = 0  # The content of a data file; position and equality deletes are 1 and 2.

# Iceberg's ids of the fields that are needed from a manifest list and from a manifest. The decoder
# skips the others, which would be most of the work.
_MANIFEST_PATH: Final = (500,)
_STATUS_AND_FILE: Final = (0, 2)
_CONTENT: Final = 134  # The oldest tables have only data files, and not this field.
_CONTENT_AND_PATH: Final = (_CONTENT, 100)


class Unreadable(CannotRun):
    """A file of Iceberg's metadata exists, but cannot be decoded."""


def file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """PyIceberg's access to files; `options` are its own, like `s3.endpoint`."""
    return load_file_io(dict(options or {}), location)


class Snapshot(Struct, frozen=True, rename="kebab"):
    """A snapshot has a manifest list, or, in old tables, names its manifests here."""

    snapshot_id: int
    manifest_list: str | None = None
    manifests: tuple[str, ...] = ()


class _Statistics(Struct, frozen=True, rename="kebab"):
    statistics_path: str


class _LogEntry(Struct, frozen=True, rename="kebab"):
    metadata_file: str


class Outline(Struct, frozen=True, rename="kebab"):
    """The fields of a metadata file that name other files of its table or view.

    They are decoded without PyIceberg, so that versions of the format which it does not support
    yet can be read: these fields are the same in all versions. A view is a table without snapshots.
    """

    location: str
    """The only directory that belongs to the table alone. Directories named by properties such as
    `write.data.path` may be shared with tables of other catalogs."""
    snapshots: tuple[Snapshot, ...] | None = ()
    statistics: tuple[_Statistics, ...] | None = ()
    partition_statistics: tuple[_Statistics, ...] | None = ()
    metadata_log: tuple[_LogEntry, ...] | None = ()

    def files(self) -> Iterator[tuple[Kind, str]]:
        """The files that the metadata file names, without those of single snapshots."""
        for entry in self.metadata_log or ():
            yield "metadata", entry.metadata_file
        for statistics in (*(self.statistics or ()), *(self.partition_statistics or ())):
            yield "statistics", statistics.statistics_path


_OUTLINE: Final = msgspec.json.Decoder(Outline)


def metadata_text(files: Files, location: str) -> bytes:
    """A metadata file's JSON, which may be stored compressed."""
    raw = files.read(location)
    try:
        return gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    except (OSError, EOFError, zlib.error) as error:
        raise not_metadata(location, error) from error


def read_outline(files: Files, location: str) -> Outline:
    return decode_outline(metadata_text(files, location), location)


def decode_outline(text: bytes, location: str) -> Outline:
    try:
        return _OUTLINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_metadata(location, error) from error


def not_metadata(location: str, error: Exception) -> Unreadable:
    return Unreadable(f"'{location}' is not Iceberg metadata: {error}")


def read_manifest_list(files: Files, manifest_list: str) -> Iterator[str]:
    """The paths of a snapshot's manifests."""
    for record in _records(files, manifest_list, _MANIFEST_PATH):
        yield record[0]


def read_manifest(files: Files, manifest: str) -> Iterator[tuple[Kind, str]]:
    """The data and delete files of a manifest, without entries that are marked as deleted."""
    for status, file in _records(files, manifest, _STATUS_AND_FILE):
        content, path = file[0], file[1]
        if status != ManifestEntryStatus.DELETED:
            yield "data" if content in (None, _DATA) else "delete", path


def _records(files: Files, location: str, wanted: tuple[int, ...]) -> Iterator[Any]:
    content = files.read(location)
    try:
        with _ProjectedAvroFile(location, content, wanted) as records:
            # PyIceberg does not notice a truncated file, and live files would be missed.
            if not content.endswith(records.header.sync):
                raise ValueError("it is truncated")
            yield from ([record[i] for i in range(len(wanted))] for record in records)
    except Exception as error:  # A decoder of damaged bytes may raise anything.
        raise Unreadable(f"'{location}' is not one of Iceberg's Avro files: {error!r}") from error


class _ProjectedAvroFile(AvroFile[Record]):
    """PyIceberg's Avro file that decodes the wanted fields only."""

    def __init__(self, location: str, content: bytes, wanted: tuple[int, ...]) -> None:
        super().__init__(_Bytes(location, content))
        self._content, self._wanted = content, wanted

    def __enter__(self) -> _ProjectedAvroFile:
        self.decoder = new_decoder(self._content)
        self.header = self._read_header()
        self.reader = _reader(self.header.meta["avro.schema"], self._wanted)
        return self


@lru_cache(maxsize=256)  # The manifests of a table have one schema, unless it was changed.
def _reader(avro_schema: str, wanted: tuple[int, ...]) -> StructReader:
    schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
    return _projected(construct_reader(schema), schema.as_struct(), wanted)


def _projected(reader: Reader, struct: StructType, wanted: tuple[int, ...]) -> StructReader:
    assert isinstance(reader, StructReader), "the records of these files are structs"
    fields: list[tuple[int | None, Reader]] = []
    for (_, inner), field in zip(reader.field_readers, struct.fields, strict=True):
        position = wanted.index(field.field_id) if field.field_id in wanted else None
        if position is not None and isinstance(field.field_type, StructType):
            inner = _projected(inner, field.field_type, _CONTENT_AND_PATH)
        fields.append((position, inner))
    if missing := {*wanted} - {_CONTENT} - {field.field_id for field in struct.fields}:
        raise ValueError(f"it has no field {missing}")
    return StructReader(tuple(fields), lambda *_: Record(*[None] * len(wanted)), struct)


class _Bytes(InputFile):
    """Bytes in memory as a file for PyIceberg's decoder."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content)
