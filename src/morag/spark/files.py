"""The files of a lake on disk and on S3, named by URIs: read, find, list, move, delete."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from morag.spark.errors import CannotRun
from morag.spark.locations import Location, possible_locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from pyarrow.fs import FileInfo, FileSystem

# S3 copies no more in one request, and Arrow does not copy in parts.
_S3_COPY_LIMIT_BYTES: Final = 5 * 1024**3
_CHUNK_BYTES: Final = 1024**2
_PARTIAL_COPY: Final = "morag-half-"


class FoundFile(Struct, frozen=True):
    """`modified_micros` is when it was written or moved here; None if the store does not know.

    A file without a time never counts as old.
    """

    path: str
    size_bytes: int
    modified_micros: int | None


class Files(Struct, frozen=True):
    """Access to files. `options` are those of PyIceberg, like `s3.endpoint`.

    It is pickled to the executors, and connects where it is used.
    """

    options: dict[str, str] = {}

    def read(self, location: str) -> bytes:
        """All bytes of a file at any possible location; FileNotFoundError if there is none."""
        at, *others = possible_locations(location)
        try:
            return self._read(at)
        except (FileNotFoundError, CannotRun):
            for other in others:
                with suppress(FileNotFoundError, CannotRun):
                    return self._read(other)
            raise

    def find(self, location: str) -> FoundFile | None:
        """The file of exactly this name, if it exists."""
        return self._find(Location.of(location))

    def exists(self, location: str) -> bool:
        """Whether a file exists at any possible location."""
        unreachable = None
        for at in possible_locations(location):
            try:
                if self._find(at) is not None:
                    return True
            except CannotRun as error:
                unreachable = error
        if unreachable is not None:
            raise unreachable
        return False

    def walk(self, location: str, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        """All files below a directory. Links are neither followed nor returned.

        `skipped` decides by name which directories are left out. Files that vanish during the walk
        are left out, too. A directory that does not exist has no files, nor has one on S3 that
        Arrow cannot reach because of an empty name.
        """
        at = Location.of(location)
        if at.is_local:
            return _walk_disk(Path(at.path).resolve(), skipped)
        return iter(()) if at.has_empty_name else self._walk(at, skipped)

    def move(self, source: str, target: str) -> None:
        """Move a file to an unused name on the same kind of store.

        At every moment the file is complete under its old name or its new one. A move that was
        stopped while the file had both names is completed by the next attempt.
        """
        old, new = Location.of(source), Location.of(target)
        if old.scheme != new.scheme:
            raise CannotRun(f"'{source}' cannot be moved to '{target}': that is another store")
        if self.find(target) is not None:
            if not self._have_same_bytes(old, new):
                raise FileExistsError(f"'{target}' exists, and is not a copy of '{source}'")
            self.delete(source)
        elif old.is_local:
            move_on_disk(Path(old.path), Path(new.path))
        else:
            self._copy(source, old, new)
            self.delete(source)

    def delete(self, location: str) -> None:
        """Remove a file; FileNotFoundError if there is none."""
        at = Location.of(location)
        if at.is_local:
            Path(at.path).unlink()
        else:
            # Arrow then writes an empty object that stands for the directory, and offers no way to
            # avoid that. Listings treat it as a directory.
            self._system(at).delete_file(at.arrow_path)

    def _find(self, at: Location) -> FoundFile | None:
        if at.is_local:
            with suppress(FileNotFoundError, NotADirectoryError):
                found = Path(at.path).stat()
                return _on_disk(at.path, found) if stat.S_ISREG(found.st_mode) else None
            return None
        info = self._system(at).get_file_info(at.arrow_path)
        return _on_s3(info) if info.is_file else None

    def _read(self, at: Location) -> bytes:
        with self._opened(at) as file:
            found: bytes = file.read()
            return found

    def _opened(self, at: Location) -> AbstractContextManager[Any]:
        if at.is_local:
            return Path(at.path).open("rb")
        opened: AbstractContextManager[Any] = self._system(at).open_input_file(at.arrow_path)
        return opened

    def _have_same_bytes(self, one: Location, other: Location) -> bool:
        """Compares the bytes, because the ETags of a file on S3 and of its copy may differ."""
        if other.is_local and Path(other.path).is_symlink():
            return False  # The link may lead to the file that would be deleted.
        with self._opened(one) as first, self._opened(other) as second:
            while chunk := first.read(_CHUNK_BYTES):
                if second.read(_CHUNK_BYTES) != chunk:
                    return False
            return not second.read(1)

    def _copy(self, source: str, old: Location, new: Location) -> None:
        found = self.find(source)
        if found is None:
            raise FileNotFoundError(source)
        if found.size_bytes > _S3_COPY_LIMIT_BYTES:
            raise CannotRun(
                f"'{source}' cannot be moved: S3 copies 5 GiB at most. It can only be deleted"
            )
        self._system(old).copy_file(old.arrow_path, new.arrow_path)

    def _walk(self, at: Location, skipped: Callable[[str], bool]) -> Iterator[FoundFile]:
        # Directory by directory: Arrow holds a recursive listing in memory.
        from pyarrow.fs import FileSelector

        system, left = self._system(at), [at.arrow_path]
        while left:
            directory = left.pop()
            selector = FileSelector(directory, allow_not_found=True, recursive=False)
            for info in system.get_file_info(selector):
                if info.is_file:
                    yield _on_s3(info)
                # Arrow reports a directory with an empty name as its own parent, endlessly.
                elif info.path != directory and not skipped(info.base_name):
                    left.append(info.path)

    def _system(self, at: Location) -> FileSystem:
        return _file_system(at.scheme, at.host, tuple(sorted(self.options.items())))

    def __repr__(self) -> str:
        names = ", ".join(sorted(self.options))  # Some values are secrets.
        return f"{type(self).__name__}({names})"


def move_on_disk(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_to_another_disk(source, target)
        source.unlink()


def remove_partial_copies(directory: Path) -> None:
    """Remove the files that interrupted copies left in a directory. No copy may be running."""
    for partial_copy in directory.glob(f"{_PARTIAL_COPY}*"):
        partial_copy.unlink(missing_ok=True)


def _copy_to_another_disk(source: Path, target: Path) -> None:
    """Copy under a temporary name, and rename when the copy is complete and synced.

    The temporary file of a crash is not hidden: among the files of a table it is listed and
    collected as garbage. A quarantine is not listed, and needs `remove_partial_copies`.
    """
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=_PARTIAL_COPY)
    try:
        with source.open("rb") as reader, os.fdopen(descriptor, "wb") as writer:
            shutil.copyfileobj(reader, writer)
            writer.flush()
            os.fsync(descriptor)
        shutil.copystat(source, name)
        Path(name).rename(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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


def _on_disk(path: str, found: os.stat_result) -> FoundFile:
    # A copied or moved file may keep its old modification time, and may be committed soon.
    arrived = max(found.st_mtime_ns, found.st_ctime_ns)
    return FoundFile(f"file://{path}", found.st_size, arrived // 1000)


def _on_s3(info: FileInfo) -> FoundFile:
    modified = None if info.mtime_ns is None else info.mtime_ns // 1000
    return FoundFile(f"s3://{info.path}", info.size, modified)


@lru_cache(maxsize=64)
def _file_system(scheme: str, host: str, options: tuple[tuple[str, str], ...]) -> FileSystem:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO(dict(options)).fs_by_scheme(scheme, host)
