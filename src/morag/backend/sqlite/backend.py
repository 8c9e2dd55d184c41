"""The backend on a SQLite file, for a few processes on one machine."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections import deque
from contextlib import contextmanager
from threading import Event, Lock
from typing import TYPE_CHECKING, Final

from morag.backend.base import UNIQUE_KIND, Applied
from morag.backend.sql import statements as sql
from morag.backend.sql.backend import SqlBackend
from morag.backend.sqlite.errors import OPENING, READING, WRITING, cannot_write, is_busy
from morag.backend.sqlite.shared_memory import SHARED
from morag.backend.sqlite.write_ahead_log import LOG, LostPages, find_damage
from morag.backend.store_files import (
    OpenFiles,
    keep_until_exit,
    lost_file_message,
    name_for_copy,
    real_path,
    refuse_or_leave_out,
)
from morag.errors import RepositoryCorrupt, StoreBusy, StoreCannotWrite, StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from morag.backend.base import LogRow, ObjId, RefSwap, Row
    from morag.backend.sql.backend import Records
    from morag.backend.sql.statements import Statement
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
_COLUMNS: Final = (
    "SELECT repo, ref_name, pointer, ext_info, prev_ptr, created_at, deleted FROM refs2 LIMIT 0",
    "SELECT repo, log_key, log_value FROM ref_log LIMIT 0",
)
"""Fail if a column was renamed."""
_DELETE_UNREFERENCED: Final = (
    "DELETE FROM objs2 WHERE repo = ? AND obj_id = ? AND obj_type = ? AND obj_vers IS ?"
    " AND coalesce(obj_ref, 0) = ?"
)
_ROW_COLUMNS: Final = {"repo", "obj_id", "obj_type", "obj_vers", "obj_value", "obj_ref"}
BUSY_SECONDS: Final = 2.5  # Then the commit is retried until its timeout.
_RETRY_SECONDS: Final = 0.01
_ROOM_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)
_looking_at_a_log = Lock()


def open_sqlite(url: StoreUrl) -> SQLiteBackend:
    url.check_options(frozenset({"sync", "accept_loss"}))
    return SQLiteBackend(
        url.path("for example sqlite:./morag.db"),
        sync=url.flag("sync", default=True),
        read_only=url.read_only,
        accept_loss=url.flag("accept_loss", default=False),
    )


class SQLiteBackend(SqlBackend):
    """Writers of this process queue for one connection; each reader has a connection to itself.

    In WAL mode a reader sees the last commit and never waits, not even for a writer's sync. Between
    processes SQLite's own write lock decides: every write takes it before it reads.
    """

    def __init__(
        self,
        path: Path | str,
        sync: bool = True,
        read_only: bool = False,
        accept_loss: bool = False,
    ) -> None:
        self._path = real_path(path)
        self._read_only = read_only
        self._lock = Lock()
        self._idle: deque[sqlite3.Connection] = deque()
        self._closed = False
        self._refusal: Exception | None = None  # Of the newest write, if it was refused.
        self._database = self._files = OpenFiles(())
        self._lost = ""
        try:
            if self._path.is_dir():
                raise StoreUrlInvalid(f"'{path}' is a directory; SQLite needs a file")
            if read_only and not self._path.exists():
                raise StoreUrlInvalid(f"There is no SQLite store in '{path}'; name its file")
            if not read_only:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            with _looking_at_a_log:
                self._check_database()
                self._check_log(accept_loss=accept_loss)
            self._writer = self._connect()
        except (OSError, ValueError, sqlite3.Error) as error:
            raise OPENING.translate(error, str(self._path)) from error
        try:
            self._prepare(sync)
            if not read_only:
                self._database = OpenFiles([self._path])
                self._files = OpenFiles([self._path, *self._files_beside()])
        except (sqlite3.Error, UnicodeDecodeError, StoreCannotWrite) as error:
            self._close_writer()
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            raise OPENING.translate(cause, str(self._path)) from error
        except BaseException:
            self._close_writer()
            raise

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        with self._write() as db:
            return _insert(db, repo, rows)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        with self._write() as db:
            db.executemany(sql.DELETE_ROW, [(repo, id) for id in ids])

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        with self._write() as db:
            return frozenset(
                row.id
                for row in rows
                if db.execute(_DELETE_UNREFERENCED, sql.row_identity(repo, row)).rowcount
            )

    def erase(self, repo: str) -> None:
        with self._write() as db:
            for statement in sql.ERASE:
                db.execute(statement, (repo,))

    def close(self) -> None:
        with self._lock:
            was_open, self._closed = not self._closed, True
            if was_open:
                self._close_writer()
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

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        try:
            with self._write() as db:
                if not all(_swap(db, repo, swap) for swap in swaps):
                    raise _Refused
                _insert(db, repo, rows)
                _append(db, repo, log)
        except _Refused:
            return False
        return True

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        with self._write() as db:
            _append(db, repo, rows)

    def check_writable(self) -> None:
        """After a refused write, try a write that changes nothing, without waiting for a lock.

        It is small, so its success counts only if there is room for larger writes.
        """
        self._check_files()
        refusal = self._refusal
        if refusal is None:
            return
        no_room = shutil.disk_usage(self._path.parent).free < _ROOM_BYTES
        if no_room or not self._lock.acquire(blocking=False):
            raise cannot_write(self._path, refusal)
        try:
            self._writer.execute("PRAGMA busy_timeout = 0")
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            self._writer.execute(f"PRAGMA user_version = {version}")
            self._refusal = None
        except sqlite3.DatabaseError as error:
            meaning = WRITING.translate(error, self._path)
            if isinstance(meaning, RepositoryCorrupt):
                raise meaning from error
            raise cannot_write(self._path, refusal) from error
        finally:
            self._wait_if_busy()
            self._lock.release()

    def _check_database(self) -> None:
        """Refuse a missing or empty file beside a log: SQLite would delete the log and start anew.

        SQLite writes the first page of a new database before it creates the files beside it, and
        removes these when the database is closed. So look at those first: another process may
        create the store in this moment.
        """
        left = [path.name for path in self._files_beside() if path.exists()]
        if left and not (self._path.exists() and self._path.stat().st_size):
            raise RepositoryCorrupt(
                f"The store '{self._path}' is missing or empty, but '{left[0]}' is left of it."
                " Restore it from a backup; or remove the remaining files to create a new store"
            )

    def _files_beside(self) -> list[Path]:
        return [self._path.with_name(self._path.name + end) for end in (LOG, SHARED)]

    def _check_log(self, *, accept_loss: bool) -> None:
        """SQLite drops transactions when it opens a damaged log, so check the log before that."""
        damage = find_damage(self._path)
        if damage is None:
            return
        if isinstance(damage, LostPages):
            raise RepositoryCorrupt(f"The store '{self._path}' {damage}. Restore it from a backup")
        log = self._path.with_name(self._path.name + LOG)

        def keep_log() -> str:
            if self._read_only or not log.exists():
                return "there is nothing to keep of it"
            shutil.copyfile(log, copy := name_for_copy(log))
            return f"the whole log is kept in '{copy.name}'"

        refuse_or_leave_out(
            f"The store '{self._path}' has lost transactions: its log '{log.name}' {damage}",
            keep_log,
            accept_loss=accept_loss,
        )

    def _check_files(self) -> None:
        """Writes stay refused: a file that was put back may not be the one that was lost."""
        if not self._lost and (lost := self._files.lost()) is not None:
            self._lost = lost_file_message(self._path, lost)
        if self._lost:
            raise StoreCannotWrite(self._lost)

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
            for statement in _COLUMNS:
                db.execute(statement)

    def _refuse_foreign_tables(self, db: sqlite3.Connection) -> None:
        """Refuse the database of another program, and do not change it."""
        found = {
            name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }
        columns = {row[1] for row in db.execute("PRAGMA table_info(objs2)")}
        if found and not (found >= {"refs2", "objs2"} and columns >= _ROW_COLUMNS):
            raise StoreUrlInvalid(
                f"The database '{self._path}' is not a catalog's; name another file"
            )

    def _switch_to_wal(self) -> None:
        """Retry: if several processes open a new file, one switches it and the others fail."""
        pause, attempts = Event(), int(BUSY_SECONDS / _RETRY_SECONDS)
        self._writer.execute("PRAGMA busy_timeout = 0")  # The loop below waits instead of SQLite.
        for left in reversed(range(attempts)):
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if not left:
                    raise self._busy() from error
                pause.wait(_RETRY_SECONDS)
        self._wait_if_busy()

    def _wait_if_busy(self) -> None:
        self._writer.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that holds SQLite's write lock from its start, so its reads stay true."""
        with self._lock:
            try:  # Includes the beginning: an interrupt may come right after it.
                self._begin()
                yield self._writer
                self._check_files()
                self._writer.execute("COMMIT")
                self._refusal = None
            except sqlite3.DatabaseError as error:
                meaning = WRITING.translate(error, self._path)
                if meaning is error:
                    raise
                if isinstance(meaning, StoreCannotWrite):
                    self._refusal = error
                raise meaning from error
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def _begin(self) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if is_busy(error):
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
            self._check_files()  # Another file may have this name by now.
            db = self._connect()
        try:
            yield db
        except sqlite3.DatabaseError as error:
            if (meaning := READING.translate(error, self._path)) is error:
                raise
            raise meaning from error
        finally:
            self._idle.append(db)
            self._close_idle()

    def _close_writer(self) -> None:
        if (lost := self._database.lost()) is None:
            self._writer.close()
            return
        keep_until_exit(self._writer, *self._idle)
        self._idle.clear()
        _log.error("Closing the store '%s': %s", self._path, lost_file_message(self._path, lost))

    def _close_idle(self) -> None:
        """Close idle connections of a closed backend; those in use are closed when they return."""
        while self._closed:
            try:
                self._idle.pop().close()
            except IndexError:
                return

    def _connect(self) -> sqlite3.Connection:
        # Not bound to a thread: the pool and the lock ensure that one thread at a time uses it.
        db = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
        )
        if self._read_only:
            # Not SQLite's own read-only mode, which cannot read the log of a crashed process.
            db.execute("PRAGMA query_only = ON")
        return db


class _Refused(Exception):
    """A condition does not hold: the transaction must be rolled back."""


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
