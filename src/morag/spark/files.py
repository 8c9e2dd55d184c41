"""The files of a lake, where they lie: on disk or on S3, named by URIs."""

from __future__ import annotations

import re
import shutil
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

from msgspec import Struct

from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import stat_result

    from pyarrow.fs import FileInfo, FileSystem

_URI: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SLASHES: Final = re.compile(r"/{2,}")
_S3: Final = frozenset({"s3", "s3a", "s3n"})


class FoundFile(Struct, frozen=True):
    path: str
    size_bytes: int
    modified_micros: int


class Files(Struct, frozen=True):
    """Reads, lists, moves and removes files. `options` are those of PyIceberg, like `s3.endpoint`.

    It travels to the executors as it is, and connects where it is used.
    """

    options: dict[str, str] = {}

    def read(self, location: str) -> bytes:
        """All bytes of a file; FileNotFoundError if there is none."""
        place = Place.of(location)
        if place.is_local:
            return Path(place.path).read_bytes()
        with self._system(place).open_input_file(place.inside) as file:
            found: bytes = file.read()
            return found

    def find(self, location: str) -> FoundFile | None:
        """The file of that name, if there is one."""
        place = Place.of(location)
        if place.is_local:
            with suppress(FileNotFoundError, NotADirectoryError):
                found = Path(place.path).lstat()
                return _on_disk(place.path, found) if stat.S_ISREG(found.st_mode) else None
            return None
        info = self._system(place).get_file_info(place.inside)
        return _elsewhere(info) if info.is_file else None

    def walk(self, location: str, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        """All files below a directory. Links are neither followed nor found.

        `skipped` is asked by name which directories are left out. What vanishes meanwhile is
        left out as well, and a directory that does not exist has no files.
        """
        place = Place.of(location)
        if place.is_local:
            return _walk_disk(Path(place.path).resolve(), skipped)
        return self._walk(place, skipped)

    def move(self, source: str, target: str) -> None:
        """Move a file to a name that no other has; a file on S3 stays on S3."""
        here, there = Place.of(source), Place.of(target)
        if here.scheme != there.scheme:
            raise CannotRun(f"'{source}' cannot be moved to '{target}': that is another store")
        if here.is_local:
            path = Path(there.path)
            if path.exists():
                raise FileExistsError(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(here.path, path)  # At once within a disk, else by a copy.
            return
        system = self._system(here)
        if self.find(target) is not None:
            raise FileExistsError(target)
        system.copy_file(here.inside, there.inside)
        system.delete_file(here.inside)

    def delete(self, location: str) -> None:
        """Remove a file; FileNotFoundError if there is none."""
        place = Place.of(location)
        if place.is_local:
            Path(place.path).unlink()
        else:
            self._system(place).delete_file(place.inside)

    def _walk(self, place: Place, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        # Directory by directory: a listing of everything at once is held in memory by Arrow.
        from pyarrow.fs import FileSelector

        system, left = self._system(place), [place.inside]
        while left:
            selector = FileSelector(left.pop(), allow_not_found=True, recursive=False)
            for info in system.get_file_info(selector):
                if info.is_file:
                    yield _elsewhere(info)
                elif not skipped(info.base_name):
                    left.append(info.path)

    def _system(self, place: Place) -> FileSystem:
        return _connected(place.scheme, place.host, tuple(sorted(self.options.items())))


class Place(Struct, frozen=True):
    """A location taken apart: `file`, no host and a path; or `s3`, a bucket and a path."""

    scheme: str
    host: str
    path: str

    @classmethod
    def of(cls, location: str) -> Place:
        """Letters are taken as they are: Iceberg writes names, not encoded URIs."""
        found = _URI.fullmatch(location)
        if found is None:
            return cls("file", "", str(Path(location).absolute()))
        scheme, host, path = found[1].lower(), found[2] or "", _SLASHES.sub("/", found[3])
        if scheme == "file":
            return cls("file", "", path)
        if scheme not in _S3:
            raise CannotRun(
                f"'{location}' is on '{scheme}', but jobs handle the files of disks and of S3 only"
            )
        return cls("s3", host, path)

    @property
    def is_local(self) -> bool:
        return self.scheme == "file"

    @property
    def inside(self) -> str:
        """The path as Arrow's file systems want it."""
        return f"{self.host}{self.path}".rstrip("/")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"


def spellings(location: str) -> set[str]:
    """What a listing may call the file of this location.

    All locations that mean one file have a spelling in common: `file:/a`, `/a` and links to it, or
    `s3a://b/c` and `s3://b/c`. Writers differ in whether they decode `%` and cut at `?` and `#`;
    where it matters, a location has a spelling for each, so that none is missed.
    """
    texts = {location}
    if "%" in location or "?" in location or "#" in location:
        cut = urlparse(location)._replace(query="", fragment="").geturl()
        texts |= {unquote(location), cut, unquote(cut)}
    return {real(text) for text in texts}


def real(location: str) -> str:
    """The one spelling that listings use for a file or a directory."""
    place = Place.of(location)
    if not place.is_local:
        return str(place).rstrip("/")
    head, _, tail = place.path.rstrip("/").rpartition("/")
    return f"file://{_real_directory(head)}/{tail}"


@lru_cache(maxsize=16_384)
def _real_directory(path: str) -> str:
    return str(Path(path or "/").resolve()).rstrip("/")


def _walk_disk(top: Path, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
    left = [top]
    while left:
        with suppress(FileNotFoundError, NotADirectoryError):
            for entry in left.pop().iterdir():
                with suppress(FileNotFoundError):
                    found = entry.lstat()
                    if stat.S_ISREG(found.st_mode):
                        yield _on_disk(str(entry), found)
                    elif stat.S_ISDIR(found.st_mode) and not skipped(entry.name):
                        left.append(entry)


def _on_disk(path: str, found: stat_result) -> FoundFile:
    return FoundFile(f"file://{path}", found.st_size, found.st_mtime_ns // 1000)


def _elsewhere(info: FileInfo) -> FoundFile:
    return FoundFile(f"s3://{info.path}", info.size or 0, (info.mtime_ns or 0) // 1000)


@lru_cache(maxsize=64)
def _connected(scheme: str, host: str, options: tuple[tuple[str, str], ...]) -> FileSystem:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(options)).fs_by_scheme(scheme, host)
