"""What Iceberg's metadata says, and which files it needs."""

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
_DATA: Final = 0  # Of a data file's content: position and equality deletes are 1 and 2.

# By Iceberg's ids, the fields of a manifest list and of a manifest that matter here. The others are
# skipped while decoding, which is most of the work.
_MANIFEST_PATH: Final = (500,)
_STATUS_AND_FILE: Final = (0, 2)
_CONTENT: Final = 134  # The oldest tables know data files only, and do not have it.
_CONTENT_AND_PATH: Final = (_CONTENT, 100)


class Unreadable(CannotRun):
    """A file of Iceberg's metadata is there, but makes no sense."""


def file_io(location: str, options: Mapping[str, str] | None = None) -> FileIO:
    """PyIceberg's way to files; `options` are its own, like `s3.endpoint`."""
    return load_file_io(dict(options or {}), location)


class Snapshot(Struct, frozen=True, rename="kebab"):
    """Its manifests are in a list of their own, or named right here, as old tables may do."""

    snapshot_id: int
    manifest_list: str | None = None
    manifests: tuple[str, ...] = ()


class _Statistics(Struct, frozen=True, rename="kebab"):
    statistics_path: str


class _LogEntry(Struct, frozen=True, rename="kebab"):
    metadata_file: str


class Outline(Struct, frozen=True, rename="kebab"):
    """Which files a metadata file names, and where others of its table or view are to be found.

    Read without PyIceberg, and so without anything that it does not know yet: for these few fields
    all versions of the format are alike, and a view is a table without snapshots.
    """

    location: str
    """The only directory that is its own: those that properties such as `write.data.path` name may
    be shared with tables that nobody here knows."""
    snapshots: tuple[Snapshot, ...] | None = ()
    statistics: tuple[_Statistics, ...] | None = ()
    partition_statistics: tuple[_Statistics, ...] | None = ()
    metadata_log: tuple[_LogEntry, ...] | None = ()

    def files(self) -> Iterator[tuple[Kind, str]]:
        """What is named right here, except for what belongs to single snapshots."""
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


def outline(files: Files, location: str) -> Outline:
    return outlined(metadata_text(files, location), location)


def outlined(text: bytes, location: str) -> Outline:
    try:
        return _OUTLINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise not_metadata(location, error) from error


def not_metadata(location: str, error: Exception) -> Unreadable:
    return Unreadable(f"'{location}' is not Iceberg metadata: {error}")


def manifests(files: Files, manifest_list: str) -> Iterator[str]:
    """The manifests of a snapshot."""
    for record in _records(files, manifest_list, _MANIFEST_PATH):
        yield record[0]


def data_files(files: Files, manifest: str) -> Iterator[tuple[Kind, str]]:
    """The data and delete files that a manifest holds, without those that it says were removed."""
    for status, file in _records(files, manifest, _STATUS_AND_FILE):
        content, path = file[0], file[1]
        if status != ManifestEntryStatus.DELETED:
            yield "data" if content in (None, _DATA) else "delete", path


def _records(files: Files, location: str, wanted: tuple[int, ...]) -> Iterator[Any]:
    content = files.read(location)
    try:
        with _Narrow(location, content, wanted) as records:
            # PyIceberg takes a file that was cut off for one that ends, and files would be missed.
            if not content.endswith(records.header.sync):
                raise ValueError("it was cut off")
            yield from ([record[i] for i in range(len(wanted))] for record in records)
    except Exception as error:  # Whatever a decoder stumbles over.
        raise Unreadable(f"'{location}' is not one of Iceberg's Avro files: {error!r}") from error


class _Narrow(AvroFile[Record]):
    """PyIceberg's Avro file, of which the wanted fields alone are read."""

    def __init__(self, location: str, content: bytes, wanted: tuple[int, ...]) -> None:
        super().__init__(_Bytes(location, content))
        self._content, self._wanted = content, wanted

    def __enter__(self) -> _Narrow:
        self.decoder = new_decoder(self._content)
        self.header = self._read_header()
        self.reader = _reader(self.header.meta["avro.schema"], self._wanted)
        return self


@lru_cache(maxsize=256)  # All manifests of a table have one schema, and few tables change theirs.
def _reader(avro_schema: str, wanted: tuple[int, ...]) -> StructReader:
    schema = AvroSchemaConversion().avro_to_iceberg(json.loads(avro_schema))
    return _narrowed(construct_reader(schema), schema.as_struct(), wanted)


def _narrowed(reader: Reader, struct: StructType, wanted: tuple[int, ...]) -> StructReader:
    assert isinstance(reader, StructReader), "the records of these files are structs"
    fields: list[tuple[int | None, Reader]] = []
    for (_, inner), field in zip(reader.field_readers, struct.fields, strict=True):
        place = wanted.index(field.field_id) if field.field_id in wanted else None
        if place is not None and isinstance(field.field_type, StructType):
            inner = _narrowed(inner, field.field_type, _CONTENT_AND_PATH)
        fields.append((place, inner))
    if missing := {*wanted} - {_CONTENT} - {field.field_id for field in struct.fields}:
        raise ValueError(f"it has no field {missing}")
    return StructReader(tuple(fields), lambda *_: Record(*[None] * len(wanted)), struct)


class _Bytes(InputFile):
    """A file that has been read already, for PyIceberg's decoder."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content)
