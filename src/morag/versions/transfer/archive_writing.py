"""Writes export files: to a directory, or as the entries of one ZIP file."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from contextlib import suppress
from typing import IO, TYPE_CHECKING, BinaryIO, Final, Literal, TypeAlias, cast

from morag.errors import BadRequest
from morag.format.export_messages import EXPORT_META, sized
from morag.versions.transfer.file_names import METADATA, checked_name, data_file_name, file_problems

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from morag.format.export_messages import ExportMeta

ArchiveFormat: TypeAlias = Literal["zip", "directory"]

_BUFFER_BYTES: Final = 1024 * 1024


def format_of(path: Path) -> ArchiveFormat:
    """The format that a path to write suggests."""
    return "zip" if path.suffix.lower() == ".zip" else "directory"


def new_archive(
    path: Path, format: ArchiveFormat | None = None, max_file_bytes: int | None = None
) -> ArchiveWriter:
    """Start an export. Nothing that exists is changed."""
    if max_file_bytes is not None and max_file_bytes < 1:
        raise BadRequest("The size of export files must be at least 1 byte")
    if (format or format_of(path)) == "zip":
        return ZipWriter(path, max_file_bytes)
    return DirectoryWriter(path, max_file_bytes)


class DataFiles:
    """Writes messages of one kind to numbered files.

    A new file starts before a message with which the file would have more than `max_file_bytes`.
    """

    def __init__(
        self, kind: str, create: Callable[[str], BinaryIO], max_file_bytes: int | None
    ) -> None:
        self.count = 0
        self.names: list[str] = []
        self._kind = kind
        self._create = create
        self._max_file_bytes = max_file_bytes
        self._file: BinaryIO | None = None
        self._file_bytes = 0
        self._buffer: list[bytes] = []
        self._buffer_bytes = 0

    def add(self, message: bytes) -> None:
        framed = sized(message)
        most = self._max_file_bytes
        if most is not None and self._file_bytes and self._file_bytes + len(framed) > most:
            self.close()
        self._buffer.append(framed)
        self._buffer_bytes += len(framed)
        self._file_bytes += len(framed)
        self.count += 1
        if self._buffer_bytes >= _BUFFER_BYTES:
            self._flush()

    def close(self) -> None:
        """Close the current file. A later message starts the next one."""
        if self._buffer:
            self._flush()
        if self._file is not None:
            self._file.close()
            self._file, self._file_bytes = None, 0

    def _flush(self) -> None:
        if self._file is None:
            self.names.append(data_file_name(self._kind, len(self.names) + 1))
            self._file = self._create(self.names[-1])
        self._file.write(b"".join(self._buffer))
        self._buffer, self._buffer_bytes = [], 0


class ArchiveWriter:
    """A new export. It is complete, and has its final name, when `finish` returns.

    Several data files may be open at once. In a ZIP file, each is kept in a temporary file until it
    is closed, so memory does not grow with the export.
    """

    def __init__(self, max_file_bytes: int | None) -> None:
        self._max_file_bytes = max_file_bytes

    def data_files(self, kind: str) -> DataFiles:
        return DataFiles(kind, self.create, self._max_file_bytes)

    def create(self, name: str) -> BinaryIO:
        """A new file of the export. It is part of the export when it is closed."""
        raise NotImplementedError

    def write(self, name: str, content: bytes) -> None:
        with self.create(name) as file:
            file.write(content)

    def finish(self, meta: ExportMeta) -> None:
        """Write the metadata. All data files are closed before."""
        self.write(METADATA, EXPORT_META.encode(meta))
        self._complete()

    def abandon(self) -> None:
        """Close everything, and leave an export that cannot be taken for a complete one."""

    def _complete(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> ArchiveWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.abandon()


class DirectoryWriter(ArchiveWriter):
    """Files in a directory, which must be empty or absent."""

    def __init__(self, path: Path, max_file_bytes: int | None = None) -> None:
        super().__init__(max_file_bytes)
        with file_problems(path):
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                interrupted = "" if (path / METADATA).exists() else " of an export that did not end"
                raise BadRequest(
                    f"The directory '{path}' has files in it{interrupted}; name a new one, or "
                    "remove its files"
                )
        self._path = path

    def create(self, name: str) -> BinaryIO:
        with file_problems(self._path):
            return cast("BinaryIO", _SyncedFile(self._path / checked_name(name)))

    def _complete(self) -> None:
        _sync_directory(self._path)


class ZipWriter(ArchiveWriter):
    """Entries of a ZIP file, which must not exist. Until it is complete, its name has `.part`."""

    def __init__(self, path: Path, max_file_bytes: int | None = None) -> None:
        super().__init__(max_file_bytes)
        if path.exists():
            raise BadRequest(f"The file '{path}' exists; name a new one, or remove it")
        self._path, self._part = path, path.with_name(path.name + ".part")
        with file_problems(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._file = self._part.open("xb")
            except FileExistsError:
                raise BadRequest(
                    f"The file '{self._part}' is left from an export that did not end, or another "
                    "export is writing it; remove it, or name another file"
                ) from None
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, allowZip64=True)

    def create(self, name: str) -> BinaryIO:
        checked_name(name)
        return cast(
            "BinaryIO", _SpooledEntry(self._path.parent, lambda file: self._add(name, file))
        )

    def _add(self, name: str, file: IO[bytes]) -> None:
        with file_problems(self._path), self._zip.open(name, "w", force_zip64=True) as entry:
            shutil.copyfileobj(file, entry, _BUFFER_BYTES)

    def _complete(self) -> None:
        with file_problems(self._path):
            self._zip.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._part.rename(self._path)
            _sync_directory(self._path.parent)

    def abandon(self) -> None:
        if not self._file.closed:
            with suppress(OSError):  # Both write: on a full disk, that fails again.
                self._zip.close()
            with suppress(OSError):
                self._file.close()
            self._part.unlink(missing_ok=True)


class _SyncedFile:
    """A file that is on disk when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb")

    def write(self, data: bytes) -> int:
        with file_problems(self._path):
            return self._file.write(data)

    def close(self) -> None:
        with file_problems(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> _SyncedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SpooledEntry:
    """A temporary file that is passed to `add` when it is closed."""

    def __init__(self, directory: Path, add: Callable[[IO[bytes]], None]) -> None:
        self._directory, self._add = directory, add
        with file_problems(directory):
            self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - `close` closes it.

    def write(self, data: bytes) -> int:
        with file_problems(self._directory):
            return self._file.write(data)

    def close(self) -> None:
        with self._file:
            self._file.seek(0)
            self._add(self._file)

    def __enter__(self) -> _SpooledEntry:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
