"""What SQLite's errors mean for a store."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreCannotWrite,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from pathlib import Path

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_REFUSED: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)


def is_busy(error: sqlite3.OperationalError) -> bool:
    return _primary_code(error) in _BUSY


def is_damage(error: BaseException) -> bool:
    """Also a text that is none any more, which Python finds, and a table that has changed: the
    statements are always the same."""
    text = str(error)
    return (
        _primary_code(error) in _DAMAGE
        or isinstance(error, UnicodeDecodeError)
        or text.startswith(("Could not decode to UTF-8", "no such column", "no such table"))
        or " has no column named " in text
    )


def refuses_writes(error: BaseException) -> bool:
    """Whether the disk or the file system is the reason that a write failed."""
    return _primary_code(error) in _REFUSED


def read_failure(path: Path, error: Exception) -> Exception:
    """The error to raise for a failed read: the error itself if neither file nor disk caused it."""
    if is_damage(error):
        return damaged(path, error)
    if _primary_code(error) == sqlite3.SQLITE_IOERR:
        return _cannot_read(path, error)
    return error


def damaged(path: Path, error: BaseException) -> RepositoryCorrupt:
    return RepositoryCorrupt(
        f"The store '{path}' is damaged ({error}). Stop the server and restore it from a backup"
    )


def _cannot_read(path: Path, error: BaseException) -> ServiceUnavailable:
    """Also the error if somebody has cut a file off that is open."""
    return ServiceUnavailable(
        f"The store '{path}' cannot read ({error}). Check its disk and its files, then restart the"
        " server"
    )


def cannot_write(path: Path, error: BaseException) -> StoreCannotWrite:
    advice = "Make room on its disk if it is full; otherwise check the disk and restart the server"
    return StoreCannotWrite(f"The store '{path}' cannot write ({error}). {advice}")


def unusable(path: Path, error: BaseException) -> MoragError:
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return cannot_write(path, error)
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUrlInvalid(
            f"'{path}' is not a SQLite database, or not any more; name another file, or restore it"
        )
    if is_damage(error):
        return damaged(path, error)
    return StoreUrlInvalid(
        f"Cannot open a SQLite store in {str(path)!r} ({error}); name a file that this process may"
        " create or write to, in a directory where it may do so too"
    )


def _primary_code(error: BaseException) -> int:
    """SQLite's code without the detail in its upper bits; 0 for an error that is not SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
