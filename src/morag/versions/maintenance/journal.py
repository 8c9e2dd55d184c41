"""The rows that a purge deletes, in a file, until it is certain that nobody needs them."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.errors import BadRequest
from morag.format.records import ObjId, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from morag.backend.base import Backend

MAIN: Final = "journal.db"
_PARTS: Final = "part-*.db"
_KEYS_AT_ONCE: Final = 500
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS rows (
        id BLOB PRIMARY KEY, kind TEXT NOT NULL, data BLOB NOT NULL, version TEXT, micros INTEGER
    );
    CREATE TABLE IF NOT EXISTS about (repository TEXT NOT NULL);
"""


class Journal:
    """A directory with the deleted rows of one repository.

    Rows are in it, synced to disk, before they are deleted, and stay until the purge has ended. If
    it was killed, the next purge with this directory puts back what is needed. Tasks on other
    machines write parts of their own (`write_part`), which `absorb` adds.
    """

    def __init__(self, directory: Path, repository: str) -> None:
        """`repository` identifies the repository: its rows must not get into another one."""
        self.directory = directory
        with _problems(directory):
            directory.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(directory / MAIN, isolation_level=None, timeout=1)
            try:
                # Locked until the end: no other purge uses this directory at the same time.
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.execute("BEGIN EXCLUSIVE")
                self._db.execute("COMMIT")
                self._db.execute("PRAGMA synchronous = EXTRA")
                self._db.executescript(_SCHEMA)
                self._check(repository)
            except BaseException:
                self._db.close()
                raise

    @property
    def is_empty(self) -> bool:
        return self._db.execute("SELECT 1 FROM rows LIMIT 1").fetchone() is None

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows. When this returns, they are on disk."""
        with _problems(self.directory):
            _write(self._db, rows)

    def absorb(self) -> None:
        """Add the rows of all parts that tasks wrote."""
        with _problems(self.directory):
            for part in sorted(self.directory.glob(_PARTS)):
                self._absorb(part)
                part.unlink()

    def find(self, ids: Sequence[ObjId]) -> list[Row]:
        found: list[Row] = []
        for at in range(0, len(ids), _KEYS_AT_ONCE):
            some = ids[at : at + _KEYS_AT_ONCE]
            places = ", ".join("?" * len(some))
            text = f"SELECT id, kind, data, version, micros FROM rows WHERE id IN ({places})"
            found += map(_row, self._db.execute(text, some))
        return found

    def forget(self, ids: Sequence[ObjId]) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("DELETE FROM rows WHERE id = ?", [(id,) for id in ids])
        self._db.execute("COMMIT")

    def rows(self, kind: str) -> Iterator[Row]:
        after = b""
        while True:
            found = self._db.execute(
                "SELECT id, kind, data, version, micros FROM rows WHERE kind = ? AND id > ?"
                " ORDER BY id LIMIT ?",
                [kind, after, _KEYS_AT_ONCE],
            ).fetchall()
            if not found:
                return
            yield from map(_row, found)
            after = found[-1][0]

    def close(self) -> None:
        self._db.close()

    def remove(self) -> None:
        """Close and delete the journal: its rows are not needed any more."""
        self.close()
        for path in (*self.directory.glob(f"{MAIN}*"), *self.directory.glob(_PARTS)):
            path.unlink(missing_ok=True)
        if not any(self.directory.iterdir()):
            self.directory.rmdir()

    def _absorb(self, part: Path) -> None:
        other = sqlite3.connect(part, isolation_level=None)
        try:
            other.executescript(_SCHEMA)  # A task that was killed may have left an empty file.
            cursor = other.execute("SELECT id, kind, data, version, micros FROM rows")
            while records := cursor.fetchmany(_KEYS_AT_ONCE):
                _insert(self._db, records)
        finally:
            other.close()

    def _check(self, repository: str) -> None:
        found = self._db.execute("SELECT repository FROM about").fetchone()
        if found is None:
            self._db.execute("INSERT INTO about VALUES (?)", [repository])
        elif found != (repository,):
            raise BadRequest(
                f"The journal in '{self.directory}' has rows of another repository; finish the"
                " purge of that one first, or name another directory"
            )


def has_rows(directory: Path) -> bool:
    """Whether a purge that used this directory did not end."""
    return (directory / MAIN).exists()


def write_part(directory: Path, name: str, rows: Sequence[Row]) -> None:
    """Write rows as a part of the journal, from any process. Then they are on disk."""
    db = sqlite3.connect(directory / f"part-{name}.db", isolation_level=None)
    try:
        db.execute("PRAGMA synchronous = EXTRA")
        db.executescript(_SCHEMA)
        _write(db, rows)
    finally:
        db.close()


def put_back(
    backend: Backend, repo: str, rows: Sequence[Row], now_micros: Callable[[], int]
) -> int:
    """Store those of the rows again that are missing; return how many.

    They get their old times, so that a later purge can remove them without another wait. A row that
    somebody stores at the same moment must not get an older time than his, so it is refreshed.
    """
    stored = backend.read_rows(repo, [row.id for row in rows])
    missing = [row for row in rows if row.id not in stored]
    if not missing:
        return 0
    new = backend.insert_rows(repo, missing)
    others = [row for row in missing if row.id not in new]
    if others:
        now = now_micros()
        backend.insert_rows(repo, [replace(row, referenced_micros=now) for row in others])
    return len(new)


@contextmanager
def _problems(directory: Path) -> Iterator[None]:
    """Report what the file system and SQLite complain about."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
            problem = f"Another purge uses the journal in '{directory}'; wait for its end"
        else:
            problem = f"The journal in '{directory}' cannot be used: {error}"
        raise BadRequest(problem) from error


def _write(db: sqlite3.Connection, rows: Sequence[Row]) -> None:
    _insert(
        db,
        [
            (row.id, row.kind, zlib.compress(row.data, 1), row.version, row.referenced_micros)
            for row in rows
        ],
    )


def _insert(db: sqlite3.Connection, records: Sequence[tuple[object, ...]]) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", records)
    db.execute("COMMIT")


def _row(record: tuple[bytes, str, bytes, str | None, int]) -> Row:
    id, kind, data, version, micros = record
    return Row(ObjId(id), kind, zlib.decompress(data), version, micros)
