"""The backend on MariaDB and MySQL, for any number of servers."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import pymysql

from morag.backend.base import UNIQUE_KIND, WHOLE, Applied
from morag.backend.mysql import statements
from morag.backend.mysql.errors import DUPLICATE, ERRORS, code_of
from morag.backend.mysql.opening import MOST_NAME_CHARACTERS, MySQLConnector
from morag.backend.ordered_keys import id_range
from morag.backend.sql import statements as sql
from morag.backend.sql.backend import SCAN_AT_ONCE
from morag.backend.sql.pool import MOST, POOL_SIZE, Pool
from morag.backend.sql.remote import RemoteSqlBackend, in_order, restarting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from morag.backend.base import LogRow, ObjId, RefSwap, Row, Slice
    from morag.backend.mysql.opening import Connection
    from morag.backend.sql.backend import Records
    from morag.backend.sql.statements import Statement
    from morag.backend.urls import StoreUrl


def open_mysql(url: StoreUrl) -> MySQLBackend:
    connector = MySQLConnector(url)
    size = int(url.number("pool_size", POOL_SIZE, MOST)) or 1
    pool = Pool(connector, size, connector.answer_seconds)
    db = connector.connect_first()
    try:
        keeps_log = restarting(lambda: connector.prepare(db))
        largest = connector.largest_statement_bytes(db)
    finally:
        connector.close(db)
    return MySQLBackend(pool, largest, keeps_log)


class MySQLBackend(RemoteSqlBackend):
    """A call of more than one statement is one transaction, at read committed.

    That is enough: an update waits for the transaction that changes the row and then checks its
    condition, and a primary key takes no id twice. Nothing is read from replicas. A call that
    returned is as durable as the server's `innodb_flush_log_at_trx_commit` makes it; by default it
    is on disk.
    """

    most_name_characters = MOST_NAME_CHARACTERS

    def __init__(
        self, pool: Pool[Connection], largest_statement_bytes: int, keeps_log: bool = True
    ) -> None:
        super().__init__(pool, keeps_log)
        self._largest_bytes = largest_statement_bytes
        self.row_bytes = statements.largest_row_bytes(largest_statement_bytes)

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        def insert() -> frozenset[ObjId]:
            # All or nothing: a retry must not take its own rows for those of another server.
            with self._transaction() as db:
                return self._insert(db, repo, rows)

        return self._write(insert) if rows else frozenset()

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        for statement in sql.delete_rows(repo, list(ids)):
            self._change(statement)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        def delete(some: Sequence[Row]) -> list[ObjId]:
            with self._transaction() as db:
                stored, _ = self._execute(
                    db, statements.lock_identities(repo, [row.id for row in some])
                )
                found = {tuple(record) for record in stored}
                same = [row.id for row in some if sql.row_identity(repo, row) in found]
                for statement in sql.delete_rows(repo, same):
                    self._execute(db, statement)
                return same

        deleted: list[ObjId] = []
        for some in sql.chunks(in_order(rows)):
            deleted += self._write(partial(delete, some))
        return frozenset(deleted)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        """Range by range, each wide enough for some hundred rows; ids are spread evenly.

        A page in the order of ids would sort all rows that are left: the key of Nessie's table
        covers a prefix of the id, and the database does not know that this is the whole id.
        """
        low, high = id_range(part)
        at, end = int.from_bytes(low), 1 << 32 if high is None else int.from_bytes(high)
        width = end - at
        while at < end:
            to = min(at + width, end)
            most = SCAN_AT_ONCE if width > 1 else None
            found = self._select(statements.rows_between(repo, kinds, at, to, most))
            if most is not None and len(found) > most:
                width = max(1, width // 4)
                continue
            for record in found:
                if not kinds or record[1] in kinds:
                    yield sql.to_scanned_row(record, kinds)
            at = to
            if len(found) < SCAN_AT_ONCE // 4:
                width *= 2

    def erase(self, repo: str) -> None:
        for statement in statements.ERASE:
            while self._change((statement, (repo,))):
                pass

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        unique = frozenset(row.id for row in rows if row.kind == UNIQUE_KIND)

        def apply() -> frozenset[ObjId]:
            with self._transaction() as db:
                if not self._swap(db, repo, swap):
                    raise _Refused
                new = self._insert(db, repo, rows, unique)
                if log:
                    self._execute(db, statements.append_log(repo, log))
                return new

        try:
            return Applied(True, self._write(apply))
        except _Refused:
            return Applied(False, self._not_stored(repo, list(unique)))

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        def apply() -> None:
            with self._transaction() as db:
                if not all(self._swap(db, repo, swap) for swap in swaps):
                    raise _Refused
                self._insert(db, repo, rows)
                if log:
                    self._execute(db, statements.append_log(repo, log))

        try:
            self._write(apply)
        except _Refused:
            return False
        return True

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        if rows:
            self._change(statements.append_log(repo, rows))

    def _insert(
        self,
        db: Connection,
        repo: str,
        rows: Sequence[Row],
        unique: AbstractSet[ObjId] = frozenset(),
    ) -> frozenset[ObjId]:
        """Insert all rows as new, because most are; if that fails, find those that are not."""
        new: set[ObjId] = set()
        for group in statements.groups(in_order(rows), self._largest_bytes):
            left = {row.id: row for row in group}
            while left:
                try:
                    self._execute(db, statements.insert_rows(repo, list(left.values())))
                    new |= left.keys()
                    break
                except pymysql.IntegrityError as error:
                    if code_of(error) != DUPLICATE:
                        raise
                stored = self._refreshed(db, repo, left)
                if not unique.isdisjoint(stored):
                    raise _Refused
                left = {id: row for id, row in left.items() if id not in stored}
        return frozenset(new)

    def _refreshed(self, db: Connection, repo: str, rows: Mapping[ObjId, Row]) -> set[ObjId]:
        """Refresh the time of the rows that are stored; return their ids."""
        # Locked, so that nobody deletes a row before its time is refreshed.
        found = [self._execute(db, each)[0] for each in statements.lock_ids(repo, list(rows))]
        stored: set[ObjId] = {id for records in found for (id,) in records}
        by_time: dict[int, list[ObjId]] = {}
        for id in stored:
            by_time.setdefault(rows[id].referenced_micros, []).append(id)
        for micros, ids in by_time.items():
            for statement in sql.refresh_rows(repo, ids, micros):
                self._execute(db, statement)
        return stored

    def _swap(self, db: Connection, repo: str, swap: RefSwap) -> bool:
        if swap.expected is None and swap.new is None:
            (statement,) = sql.select(sql.REFS, repo, [swap.name])
            return not self._execute(db, statement)[0]
        return self._execute(db, sql.change_ref(repo, swap))[1] == 1

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with ERRORS.translating(), self._pool.use() as db:
            db.begin()
            try:
                yield db
            except BaseException:
                with suppress(pymysql.MySQLError):  # Closing the connection rolls it back, too.
                    db.rollback()
                raise
            db.commit()

    def _run(self, statement: Statement) -> tuple[Records, int]:
        with ERRORS.translating(), self._pool.use() as db:
            return self._execute(db, statement)

    def _execute(self, db: Connection, statement: Statement) -> tuple[Records, int]:
        text, args = statement
        with db.cursor() as cursor:
            try:
                count = cursor.execute(statements.spelt(text), args)
            except pymysql.IntegrityError as error:
                # With this suffix, a key that is stored already is not an error.
                if code_of(error) != DUPLICATE or not text.endswith(sql.UNLESS_THERE):
                    raise
                return (), 0
            return cursor.fetchall(), count


class _Refused(Exception):
    """A condition does not hold: the transaction must be rolled back."""
