"""Reads export files: of a directory, or the entries of a ZIP file."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, BinaryIO, cast

from morag.errors import ArchiveInvalid
from morag.format.export_messages import (
    EXPORT_META,
    EXPORTED_DESCRIPTION,
    MOST_MESSAGE_BYTES,
    ExportVersion,
    read_message,
    sized_messages,
)
from morag.versions.transfer.file_names import (
    DESCRIPTION,
    EXTRA,
    METADATA,
    checked_name,
    file_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.format.export_messages import ExportedDescription, ExportMeta


class ArchiveReader:
    """An export. Only the files that its metadata lists, and `morag-extra`, are opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        if path.is_dir():
            if not (path / METADATA).exists():
                raise ArchiveInvalid(
                    f"The directory '{path}' has no file '{METADATA}': it is no export, or one "
                    "that did not end"
                )
        elif path.is_file():
            with file_problems(path):
                self._zip = _opened_zip(path)
        else:
            raise ArchiveInvalid(f"There is no export '{path}'")
        try:
            self.meta = self._meta()
        except BaseException:
            self.close()
            raise

    @property
    def is_zip(self) -> bool:
        return self._zip is not None

    def open(self, name: str) -> BinaryIO:
        """A file of the export, from its start."""
        checked_name(name)
        with file_problems(self.path):
            if self._zip is None:
                if not (self.path / name).is_file():
                    raise self._lacks(name)
                return (self.path / name).open("rb")
            try:
                return cast("BinaryIO", self._zip.open(name))
            except KeyError:
                raise self._lacks(name) from None
            except (RuntimeError, NotImplementedError) as problem:
                raise ArchiveInvalid(f"Entry '{name}' of '{self.path}': {problem}") from None

    def messages(self, name: str) -> Iterator[tuple[int, bytes]]:
        """The messages of a data file, each with its offset in the file."""
        with self.open(name) as file, file_problems(self.path):
            yield from sized_messages(file, name)

    def description(self) -> ExportedDescription | None:
        """The description of the repository. Version 1 has none."""
        try:
            found = self._whole(DESCRIPTION)
        except FileMissing:
            return None
        return read_message(EXPORTED_DESCRIPTION, found, f"'{DESCRIPTION}' of '{self.path}'")

    def extra_lines(self) -> Iterator[bytes]:
        """The lines of `morag-extra`; none in files that Nessie wrote."""
        try:
            file = self.open(EXTRA)
        except FileMissing:
            return
        with file, file_problems(self.path):
            while line := file.readline(MOST_MESSAGE_BYTES + 1):
                if len(line) > MOST_MESSAGE_BYTES:
                    raise ArchiveInvalid(f"A line of '{EXTRA}' is too long")
                yield line

    def close(self) -> None:
        if self._zip is not None:
            self._zip.close()

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _meta(self) -> ExportMeta:
        meta = read_message(EXPORT_META, self._whole(METADATA), f"'{METADATA}' of '{self.path}'")
        if meta.version not in set(ExportVersion):
            raise ArchiveInvalid(
                f"'{self.path}' is an export of version {meta.version}; known are 1, 2 and 3"
            )
        for name in (*meta.reference_files, *meta.commit_files, *meta.generic_files):
            checked_name(name)
        return meta

    def _whole(self, name: str) -> bytes:
        with self.open(name) as file, file_problems(self.path):
            content = file.read(MOST_MESSAGE_BYTES + 1)
        if len(content) > MOST_MESSAGE_BYTES:
            raise ArchiveInvalid(f"'{name}' of '{self.path}' is too large")
        return content

    def _lacks(self, name: str) -> FileMissing:
        return FileMissing(f"'{self.path}' has no file '{name}': a part of the export is missing")


class FileMissing(ArchiveInvalid):
    """A file of an export is not there."""


def _opened_zip(path: Path) -> zipfile.ZipFile:
    archive = zipfile.ZipFile(path)
    names = archive.namelist()
    if len(set(names)) < len(names):
        archive.close()
        raise ArchiveInvalid(f"'{path}' has several entries of the same name")
    return archive
