"""SQLite's shared-memory file, which shows whether a database is open and how much was committed.

The system drops all locks that a process holds on a file when the process closes any handle to that
file. Another part of this process may have the database open, such as a notebook that uses
`sqlite3` directly. Without its locks, another process would assume that it is the only user and
delete the log. So a handle to this file is never closed here as long as the file exists: it is kept
and used again. That is one handle per database that another process has open or did not close. A
child process that reads the file would need no such care, but would slow down every start.
"""

from __future__ import annotations

import os
import struct
import sys
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.store_files import identity

if sys.platform == "linux":
    import fcntl

if TYPE_CHECKING:
    from morag.backend.store_files import Identity

SHARED: Final = "-shm"

_VERSION: Final = 3007000
_HEADER: Final = struct.Struct("=3I2BH2I8s8s8s")
_HEADER_BYTES: Final = 136
_COPIED_OFFSET: Final = 2 * _HEADER.size
_LOCK_OF_USERS: Final = 128
"""The byte that every connection to the database has locked."""
_LOCK: Final = "hhqqi4x"

_kept: dict[Identity, int] = {}
"""The handles, which are never closed while their files exist."""


class Committed(Struct, frozen=True):
    """The number of committed frames, how many of them are in the database file, and the salt."""

    frames: int
    copied: int
    salt: bytes


def is_in_use(database: Path) -> bool:
    """Whether the database is open, in this process or in another one.

    True on systems that cannot report it: then nothing is concluded from the log.
    """
    if sys.platform != "linux":
        return True
    shared = _handle(database)
    if shared is None:
        return False
    # A lock of this kind would belong to the handle, so it also conflicts with locks of this
    # process.
    wanted = struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, _LOCK_OF_USERS, 1, 0)
    try:
        found = fcntl.fcntl(shared, fcntl.F_OFD_GETLK, wanted)
    except OSError:
        return True
    kind: int = struct.unpack(_LOCK, found)[0]
    return kind != fcntl.F_UNLCK


def read_committed(database: Path) -> Committed | None:
    """The state that a killed process left behind. `None` if the machine was restarted since.

    Until then the system holds the newest state of both files. After a crash of the machine, this
    file may be newer than the log, whose end was never synced if the store had `sync=off`.
    """
    shared = _handle(database)
    if shared is None or os.fstat(shared).st_mtime < _boot_seconds():
        return None
    held, size = os.pread(shared, _HEADER_BYTES, 0), _HEADER.size
    if len(held) < _HEADER_BYTES or held[:size] != held[size : 2 * size]:
        return None
    version, _, _, is_made, *_, frames, _, _, salt, _ = _HEADER.unpack_from(held)
    if version != _VERSION or not is_made:
        return None
    return Committed(frames, struct.unpack_from("=I", held, _COPIED_OFFSET)[0], salt)


def _handle(database: Path) -> int | None:
    _close_deleted()
    path = database.with_name(database.name + SHARED)
    known = identity(path)
    if known is None:
        return None
    if known not in _kept:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        opened = os.fstat(handle)
        known = opened.st_dev, opened.st_ino
        _kept[known] = handle
    return _kept[known]


def _close_deleted() -> None:
    """A file without a name cannot be opened again, so no lock on it matters."""
    for known, handle in list(_kept.items()):
        if not os.fstat(handle).st_nlink:
            del _kept[known]
            os.close(handle)


def _boot_seconds() -> float:
    with suppress(OSError):
        for line in Path("/proc/stat").read_text().splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
    return inf
