"""One SQLite file, for a laptop or for a few processes on one machine."""

from __future__ import annotations

import shutil
import sqlite3
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from morag.backend import sql
from morag.backend.base import UNIQUE_KIND, Applied
from morag.backend.sql_backend import SqlBackend
from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
    StoreUrlInvalid,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, RefSwap, Row
    from morag.backend.sql import Statement
    from morag.backend.sql_backend import Records
    from morag.backend.urls import StoreUrl

SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS refs2 (
        repo TEXT NOT NULL, ref_name TEXT NOT NULL, pointer BLOB, ext_info BLOB, prev_ptr BLOB,
        created_at INTEGER DEFAULT 0, deleted INTEGER,
        PRIMARY KEY (repo, ref_name)) WITHOUT ROWID""",
    # With rowids: a commit's row is often longer than a page, and ids come in random order. Rows
    # that are appended to the table, with only the ids in a tree, are written 1.3 times faster.
    """CREATE TABLE IF NOT EXISTS objs2 (
        repo TEXT NOT NULL, obj_id BLOB NOT NULL, obj_type TEXT, obj_vers TEXT, obj_value BLOB,
        obj_ref INTEGER,
        PRIMARY KEY (repo, obj_id))""",
    """CREATE TABLE IF NOT EXISTS ref_log (
        repo TEXT NOT NULL, log_key BLOB NOT NULL, log_value BLOB NOT NULL,
        PRIMARY KEY (repo, log_key)) WITHOUT ROWID""",
)
_ROW_COLUMNS: Final = {"repo", "obj_id", "obj_type", "obj_vers", "obj_value", "obj_ref"}
BUSY_SECONDS: Final = 2.5  # Then it is tried again, as long as a commit may take.
_RETRY_SECONDS: Final = 0.01
_ROOM_BYTES: Final = 1 << 20
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_REFUSED: Final = (
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
)


def open_sqlite(url: StoreUrl) -> SQLiteBackend:
    url.check_options(frozenset({"sync"}))
    file = url.path("for example sqlite:./morag.db")
    return SQLiteBackend(file, sync=url.flag("sync", default=True), read_only=url.read_only)


class SQLiteBackend(SqlBackend):
    """Writers of this process queue for one connection; each reader has a connection to itself.

    In WAL mode a reader sees the last commit and waits for nobody, also not for a writer's sync.
    Between processes SQLite's own write lock decides: every write takes it before it looks.
    """

    def __init__(self, path: Path | str, sync: bool = True, read_only: bool = False) -> None:
        self._path = Path(path).absolute()
        self._read_only = read_only
        self._lock = Lock()
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._refusal: Exception | None = None  # Of the newest write, if it was refused.
        try:
            if self._path.is_dir():
                raise StoreUrlInvalid(f"'{path}' is a directory; SQLite needs a file")
            if read_only and not self._path.exists():
                raise StoreUrlInvalid(f"There is no SQLite store in '{path}'; name its file")
            if not read_only:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._connect()
        except (OSError, ValueError, sqlite3.Error) as error:
            raise _unusable(self._path, error) from error
        try:
            self._prepare(sync)
        except (sqlite3.Error, StoreCannotWrite) as error:
            self._writer.close()
            raise _unusable(self._path, error.__cause__ or error) from error
        except BaseException:
            self._writer.close()
            raise

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        with self._write() as db:
            return _insert(db, repo, rows)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        with self._write() as db:
            db.executemany(sql.DELETE_ROW, [(repo, id) for id in ids])

    def erase(self, repo: str) -> None:
        with self._write() as db:
            for statement in sql.ERASE:
                db.execute(statement, (repo,))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._writer.close()
        self._close_idle()

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        unique = [row.id for row in rows if row.kind == UNIQUE_KIND]
        with self._write() as db:
            fresh = [i for i in unique if db.execute(sql.ROW_EXISTS, (repo, i)).fetchone() is None]
            if len(fresh) < len(unique) or not _swap(db, repo, swap):
                return Applied(swapped=False, new=frozenset(fresh))
            new = _insert(db, repo, rows)
            _append(db, repo, log)
        return Applied(swapped=True, new=new)

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        with self._write() as db:
            _append(db, repo, rows)

    def check_writable(self) -> None:
        """Once refused, try a write that changes nothing, but wait for nobody.

        It is small. Where a larger one was refused before, that counts only if there is room.
        """
        refusal = self._refusal
        if refusal is None:
            return
        no_room = shutil.disk_usage(self._path.parent).free < _ROOM_BYTES
        if no_room or not self._lock.acquire(blocking=False):
            raise _cannot_write(self._path, refusal)
        try:
            self._writer.execute("PRAGMA busy_timeout = 0")
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            self._writer.execute(f"PRAGMA user_version = {version}")
            self._refusal = None
        except sqlite3.OperationalError as error:
            raise _cannot_write(self._path, refusal) from error
        finally:
            self._wait_if_busy()
            self._lock.release()

    def _select(self, statement: Statement) -> Records:
        with self._read() as db:
            return db.execute(*statement).fetchall()

    def _change(self, statement: Statement) -> int:
        with self._write() as db:
            return db.execute(*statement).rowcount

    def _prepare(self, sync: bool) -> None:
        if self._read_only:
            self._refuse_foreign_tables(self._writer)
            return
        self._switch_to_wal()
        # Without sync a crash of the machine may lose the last commits, but never tears one.
        self._writer.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
        with self._write() as db:
            self._refuse_foreign_tables(db)
            for statement in SCHEMA:
                db.execute(statement)

    def _refuse_foreign_tables(self, db: sqlite3.Connection) -> None:
        """Somebody else's database is left as it is."""
        found = {
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        columns = {row[1] for row in db.execute("PRAGMA table_info(objs2)")}
        if found and not (found >= {"refs2", "objs2"} and columns >= _ROW_COLUMNS):
            raise StoreUrlInvalid(
                f"The database '{self._path}' is not a catalog's; name another file"
            )

    def _switch_to_wal(self) -> None:
        """Of several who open a new file one switches it; the others fail at once, not in time."""
        pause, tries = Event(), int(BUSY_SECONDS / _RETRY_SECONDS)
        self._writer.execute("PRAGMA busy_timeout = 0")  # Where SQLite would wait, we do.
        for left in reversed(range(tries)):
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
                if not left:
                    raise self._busy() from error
                pause.wait(_RETRY_SECONDS)
        self._wait_if_busy()

    def _wait_if_busy(self) -> None:
        self._writer.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds SQLite's write lock from its start, so that a look counts."""
        with self._lock:
            try:  # Around the beginning too: an interrupt may come right after it.
                self._begin()
                yield self._writer
                self._writer.execute("COMMIT")
                self._refusal = None
            except sqlite3.OperationalError as error:
                if _primary_code(error) not in _REFUSED:
                    raise
                self._refusal = error
                raise _cannot_write(self._path, error) from error
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def _begin(self) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                raise self._busy() from error
            raise

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"Another process has been writing to '{self._path}' for too long; try again"
        )

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        if self._closed:
            raise sqlite3.ProgrammingError(f"{self._path} is closed")
        try:
            db = self._idle.pop()
        except IndexError:
            db = self._connect()
        try:
            yield db
        finally:
            self._idle.append(db)
            self._close_idle()

    def _close_idle(self) -> None:
        """Close what nobody uses, once the backend is closed; what is in use comes by later."""
        while self._closed:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _connect(self) -> sqlite3.Connection:
        # Not bound to a thread: the pool and the lock see to it that one at a time uses it.
        db = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        if self._read_only:
            # Not SQLite's own mode for it: that one cannot read a log left by who crashed.
            db.execute("PRAGMA query_only = ON")
        return db


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return _primary_code(error) in _BUSY


def _primary_code(error: BaseException) -> int:
    """SQLite's code without the detail in its upper bits; 0 for an error that is not SQLite's."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _cannot_write(path: Path, error: BaseException) -> StoreCannotWrite:
    advice = "Make room on its disk, or check it"
    return StoreCannotWrite(f"The store '{path}' cannot write ({error}). {advice}")


def _unusable(path: Path, error: BaseException) -> MoragError:
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return _cannot_write(path, error)
    if code == sqlite3.SQLITE_CORRUPT:
        return RepositoryCorrupt(
            f"The SQLite database '{path}' is damaged; restore it from a backup ({error})"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreUrlInvalid(
            f"'{path}' is not a SQLite database, or not any more; name another file, or restore it"
        )
    return StoreUrlInvalid(
        f"Cannot open a SQLite store in {str(path)!r} ({error}); name a file that this process may"
        " create or write to, in a directory where it may do so too"
    )


def _swap(db: sqlite3.Connection, repo: str, swap: RefSwap) -> bool:
    if swap.expected is None and swap.new is None:
        (statement,) = sql.select(sql.REFS, repo, [swap.name])
        return db.execute(*statement).fetchone() is None
    return db.execute(*sql.change_ref(repo, swap)).rowcount == 1


def _insert(db: sqlite3.Connection, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
    new = []
    for row in rows:
        if db.execute(sql.INSERT_ROW, sql.row_record(repo, row)).rowcount:
            new.append(row.id)
        else:
            db.execute(sql.REFRESH_ROW, (row.referenced_micros, repo, row.id))
    return frozenset(new)


def _append(db: sqlite3.Connection, repo: str, rows: Sequence[LogRow]) -> None:
    db.executemany(sql.APPEND_LOG, [(repo, row.key, row.data) for row in rows])
