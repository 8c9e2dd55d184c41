"""The meanings of SQLite's errors."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreCannotWrite,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from pathlib import Path

_DAMAGED: Final = (
    "The store '{address}' is damaged ({error}). Stop the server and restore it from a backup"
)
_CANNOT_WRITE: Final = (
    "The store '{address}' cannot write ({error}). Make room on its disk if it is full; otherwise"
    " check the disk and restart the server"
)
_DAMAGE: Final = (
    Meaning(
        RepositoryCorrupt,
        _DAMAGED,
        codes=frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}),
    ),
    # A text that is no longer UTF-8 is found by Python, after SQLite has read it.
    Meaning(RepositoryCorrupt, _DAMAGED, types=(UnicodeDecodeError,)),
    # The statements never change, so a table must have changed.
    Meaning(
        RepositoryCorrupt,
        _DAMAGED,
        words=(
            "Could not decode to UTF-8",
            "no such column",
            "no such table",
            " has no column named ",
        ),
    ),
)


def cannot_write(path: Path, error: Exception) -> StoreCannotWrite:
    return StoreCannotWrite(_CANNOT_WRITE.format(address=path, error=error))


def is_busy(error: sqlite3.OperationalError) -> bool:
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: Exception) -> int:
    """SQLite's code without the detail in its upper bits; 0 for an error that is not SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _table(*meanings: Meaning) -> ErrorTable:
    return ErrorTable(raised=(sqlite3.DatabaseError,), code=_primary_code, meanings=meanings)


READING: Final = _table(
    *_DAMAGE,
    # Also raised if an open file was cut off.
    Meaning(
        ServiceUnavailable,
        "The store '{address}' cannot read ({error}). Check its disk and its files, then restart"
        " the server",
        codes=frozenset({sqlite3.SQLITE_IOERR}),
    ),
)
WRITING: Final = _table(
    *_DAMAGE,
    Meaning(
        StoreCannotWrite,
        _CANNOT_WRITE,
        codes=frozenset(
            {
                sqlite3.SQLITE_FULL,
                sqlite3.SQLITE_IOERR,
                sqlite3.SQLITE_READONLY,
                sqlite3.SQLITE_CANTOPEN,
            }
        ),
    ),
)
OPENING: Final = _table(
    Meaning(StoreCannotWrite, _CANNOT_WRITE, codes=frozenset({sqlite3.SQLITE_FULL})),
    Meaning(
        StoreUrlInvalid,
        "'{address}' is not a SQLite database, or no longer one; name another file, or restore it",
        codes=frozenset({sqlite3.SQLITE_NOTADB}),
    ),
    *_DAMAGE,
    Meaning(
        StoreUrlInvalid,
        "Cannot open a SQLite store in {address!r} ({error}); name a file that this process may"
        " create or write to, in a directory where it may do so too",
    ),
)
