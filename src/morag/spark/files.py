"""The files of a lake, where they lie: on disk or on S3, named by URIs."""

from __future__ import annotations

import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.moving import move_on_disk
from morag.spark.places import Place, places_meant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from os import stat_result

    from pyarrow.fs import FileInfo, FileSystem

_S3_COPIES_BYTES: Final = 5 * 1024**3  # In one request, and Arrow knows no other way.
_CHUNK_BYTES: Final = 1024**2


class FoundFile(Struct, frozen=True):
    """`modified_micros` is when it was written or came to be where it is; None where nobody tells:
    such a file never counts as old."""

    path: str
    size_bytes: int
    modified_micros: int | None


class Files(Struct, frozen=True):
    """Reads, lists, moves and removes files. `options` are those of PyIceberg, like `s3.endpoint`.

    It travels to the executors as it is, and connects where it is used.
    """

    options: dict[str, str] = {}

    def read(self, location: str) -> bytes:
        """All bytes of a file; FileNotFoundError if there is none, whatever the name may mean."""
        place, *others = places_meant(location)
        try:
            return self._read(place)
        except (FileNotFoundError, CannotRun):
            for other in others:
                with suppress(FileNotFoundError, CannotRun):
                    return self._read(other)
            raise

    def find(self, location: str) -> FoundFile | None:
        """The file of exactly that name, if there is one."""
        return self._find(Place.of(location))

    def is_there(self, location: str) -> bool:
        """Whether there is a file, whatever the name may mean."""
        unreachable = None
        for place in places_meant(location):
            try:
                if self._find(place) is not None:
                    return True
            except CannotRun as error:
                unreachable = error
        if unreachable is not None:
            raise unreachable
        return False

    def walk(self, location: str, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        """All files below a directory. Links are neither followed nor found.

        `skipped` is asked by name which directories are left out. What vanishes meanwhile is
        left out as well, and a directory that does not exist has no files. Nor are there any that
        could not be reached.
        """
        place = Place.of(location)
        if place.is_local:
            return _walk_disk(Path(place.path).resolve(), skipped)
        return iter(()) if place.is_nameless else self._walk(place, skipped)

    def move(self, source: str, target: str) -> None:
        """Move a file to a name that no other has; a file on S3 stays on S3.

        At every moment it is whole under one of its names. A move that was stopped while it had
        both is brought to its end by the next try.
        """
        here, there = Place.of(source), Place.of(target)
        if here.scheme != there.scheme:
            raise CannotRun(f"'{source}' cannot be moved to '{target}': that is another store")
        if self.find(target) is not None:
            if not self._are_alike(here, there):
                raise FileExistsError(f"'{target}' is there, and is not the file '{source}'")
            self.delete(source)
        elif here.is_local:
            move_on_disk(Path(here.path), Path(there.path))
        else:
            self._copy(source, here, there)
            self.delete(source)

    def delete(self, location: str) -> None:
        """Remove a file; FileNotFoundError if there is none."""
        place = Place.of(location)
        if place.is_local:
            Path(place.path).unlink()
        else:
            # Arrow then writes an empty object that stands for the directory, and has no way to
            # remove it. Listings take it for what it is.
            self._system(place).delete_file(place.inside)

    def _find(self, place: Place) -> FoundFile | None:
        if place.is_local:
            with suppress(FileNotFoundError, NotADirectoryError):
                found = Path(place.path).stat()
                return _on_disk(place.path, found) if stat.S_ISREG(found.st_mode) else None
            return None
        info = self._system(place).get_file_info(place.inside)
        return _elsewhere(info) if info.is_file else None

    def _read(self, place: Place) -> bytes:
        with self._opened(place) as file:
            found: bytes = file.read()
            return found

    def _opened(self, place: Place) -> AbstractContextManager[Any]:
        if place.is_local:
            return Path(place.path).open("rb")
        opened: AbstractContextManager[Any] = self._system(place).open_input_file(place.inside)
        return opened

    def _are_alike(self, one: Place, other: Place) -> bool:
        """Byte by byte: S3's tags of a file and of its copy may differ."""
        if other.is_local and Path(other.path).is_symlink():
            return False  # Perhaps to the one that would be deleted.
        with self._opened(one) as first, self._opened(other) as second:
            while chunk := first.read(_CHUNK_BYTES):
                if second.read(_CHUNK_BYTES) != chunk:
                    return False
            return not second.read(1)

    def _copy(self, source: str, here: Place, there: Place) -> None:
        found = self.find(source)
        if found is None:
            raise FileNotFoundError(source)
        if found.size_bytes > _S3_COPIES_BYTES:
            raise CannotRun(
                f"'{source}' cannot be moved: S3 copies 5 GiB at most. It can be deleted at once"
            )
        self._system(here).copy_file(here.inside, there.inside)

    def _walk(self, place: Place, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        # Directory by directory: a listing of everything at once is held in memory by Arrow.
        from pyarrow.fs import FileSelector

        system, left = self._system(place), [place.inside]
        while left:
            directory = left.pop()
            selector = FileSelector(directory, allow_not_found=True, recursive=False)
            for info in system.get_file_info(selector):
                if info.is_file:
                    yield _elsewhere(info)
                # Of one without a name, Arrow says that it is the one above, for ever.
                elif info.path != directory and not skipped(info.base_name):
                    left.append(info.path)

    def _system(self, place: Place) -> FileSystem:
        return _connected(place.scheme, place.host, tuple(sorted(self.options.items())))

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.options))  # Without their values: some are secrets.
        return f"{type(self).__name__}({names})"


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
    # Whoever copies or moves an old file to where it is to be committed brings its old time along.
    came = max(found.st_mtime_ns, found.st_ctime_ns)
    return FoundFile(f"file://{path}", found.st_size, came // 1000)


def _elsewhere(info: FileInfo) -> FoundFile:
    modified = None if info.mtime_ns is None else info.mtime_ns // 1000
    return FoundFile(f"s3://{info.path}", info.size, modified)


@lru_cache(maxsize=64)
def _connected(scheme: str, host: str, options: tuple[tuple[str, str], ...]) -> FileSystem:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(options)).fs_by_scheme(scheme, host)
