"""A database in a temporary file, for sets and orders that may be larger than memory."""

from __future__ import annotations

import sqlite3
from typing import Final

CACHE_KIB: Final = 64 * 1024


def temporary_database(
    schema: str, *, cache_kib: int = CACHE_KIB, shared_by_threads: bool = False
) -> sqlite3.Connection:
    """A database with these tables. Its file is deleted when the connection is closed.

    Nothing is synced, and nothing can be rolled back. Threads that share it must take turns.
    """
    # "" is a temporary file. SQLite creates it only when the cache is full.
    db = sqlite3.connect("", isolation_level=None, check_same_thread=not shared_by_threads)
    db.execute(f"PRAGMA cache_size = -{cache_kib}")
    db.execute("PRAGMA journal_mode = OFF")
    db.executescript(schema)
    return db
