"""The backend on PostgreSQL and CockroachDB, for any number of servers."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from morag.backend.base import UNIQUE_KIND, Applied
from morag.backend.postgres.arrays import BytesArray, NumberArray, TextArray
from morag.backend.postgres.errors import ERRORS, Taken
from morag.backend.postgres.opening import COCKROACH, POSTGRES, SCAN_FACTOR, PostgresConnector
from morag.backend.sql import statements as sql
from morag.backend.sql.pool import MOST, POOL_SIZE, Pool
from morag.backend.sql.remote import RemoteSqlBackend, in_order, restarting
from morag.errors import StoreCannotWrite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, RefSwap, Row
    from morag.backend.postgres.opening import Dialect, TimedConnection
    from morag.backend.sql.backend import Records
    from morag.backend.sql.statements import Keyed, Statement
    from morag.backend.urls import StoreUrl

B = TypeVar("B", bound="CockroachBackend")

_AT_ONCE: Final = 2000

# One parameter per column holds all rows, so the text is the same for any number of them.
_ROWS: Final = "unnest(?::bytea[], ?::text[], ?::text[], ?::bytea[], ?::int8[])"
_INSERT: Final = (
    "INSERT INTO objs2 (repo, obj_id, obj_type, obj_vers, obj_value, obj_ref)"
    f" SELECT ?::text, r.* FROM {_ROWS} AS r(id, kind, version, value, micros)"
)
_INSERT_NEW: Final = f"{_INSERT} ON CONFLICT DO NOTHING RETURNING obj_id"
_REFRESH: Final = f"{_INSERT} ON CONFLICT (repo, obj_id) DO UPDATE SET obj_ref = excluded.obj_ref"
_LOG: Final = (
    "INSERT INTO ref_log (repo, log_key, log_value)"
    " SELECT ?::text, r.* FROM unnest(?::bytea[], ?::bytea[]) AS r(key, value)"
)
# One index lookup per key, in all plans. For `obj_id = ANY(...)` the planner may prefer to scan the
# whole repository, if its statistics are older than the growth of the repository.
_FIND: Final = (
    "SELECT o.* FROM unnest(?::{type}[]) AS k(key), LATERAL"
    " (SELECT {columns} FROM {table} WHERE repo = ? AND {key} = k.key LIMIT 1) AS o"
)


def _found_by_key(what: Keyed) -> str:
    return _FIND.format(
        type="text" if what is sql.REFS else "bytea",
        columns=what.columns,
        table=what.table,
        key=what.key,
    )


_ABSENT: Final = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM refs2 WHERE repo = ? AND ref_name = ?)"
# The swap comes first, and everything else depends on it. A unique row that is stored already makes
# the cast to a number fail, and with it the statement: a condition could not see rows that other
# transactions are about to insert.
_APPLY: Final = f"""WITH swapped AS ({{swap}}),
inserted AS ({_INSERT} WHERE EXISTS (SELECT 1 FROM swapped)
    ON CONFLICT (repo, obj_id) DO UPDATE SET obj_ref = CASE
        WHEN excluded.obj_type = '{UNIQUE_KIND}'
        THEN ('unique but taken: ' || encode(excluded.obj_id, 'hex'))::int8
        ELSE excluded.obj_ref END),
logged AS ({_LOG} WHERE EXISTS (SELECT 1 FROM swapped) ON CONFLICT DO NOTHING)
SELECT (SELECT count(*) FROM swapped),
    ARRAY({_found_by_key(sql.IDS)})"""
# If a swap found nothing to change, the cast to a number fails, and with it the statement.
_APPLY_ALL: Final = f"""WITH {{swaps}},
inserted AS ({_REFRESH}),
logged AS ({_LOG} ON CONFLICT DO NOTHING)
SELECT CASE WHEN {{made}} = {{wanted}} THEN 1 ELSE ('too few swaps: ' || {{made}})::int8 END"""
_IS_READ_ONLY: Final = "SELECT current_setting('transaction_read_only') = 'on'"
_DELETE: Final = "DELETE FROM objs2 WHERE repo = ? AND obj_id = ANY(?::bytea[])"
# The ids are given twice: the condition on the array is the one for which the index is used.
_DELETE_UNREFERENCED: Final = (
    "DELETE FROM objs2 USING unnest(?::bytea[], ?::text[], ?::text[], ?::int8[])"
    " AS r(id, kind, version, micros) WHERE repo = ? AND obj_id = ANY(?::bytea[])"
    " AND obj_id = r.id AND obj_type = r.kind AND obj_vers IS NOT DISTINCT FROM r.version"
    " AND coalesce(obj_ref, 0) = r.micros RETURNING obj_id"
)
_ERASE: Final = tuple(
    f"DELETE FROM {table} WHERE repo = ? AND {key} IN"
    f" (SELECT {key} FROM {table} WHERE repo = ? LIMIT {_AT_ONCE})"
    for table, key in (("refs2", "ref_name"), ("objs2", "obj_id"), ("ref_log", "log_key"))
)


def open_postgres(url: StoreUrl) -> PostgresBackend:
    return _opened(PostgresBackend, url, POSTGRES)


def open_cockroach(url: StoreUrl) -> CockroachBackend:
    return _opened(CockroachBackend, url, COCKROACH)


def _opened(kind: type[B], url: StoreUrl, dialect: Dialect) -> B:
    connector = PostgresConnector(url, dialect)
    size = int(url.number("pool_size", POOL_SIZE, MOST)) or 1
    pool = Pool(connector, size, connector.answer_seconds)
    db = connector.connect_first()
    try:
        keeps_log = restarting(lambda: connector.prepare(db))
    finally:
        connector.close(db)
    return kind(pool, connector.answer_seconds, keeps_log)


class CockroachBackend(RemoteSqlBackend):
    """Every write is one statement, which the database executes as a whole or not at all.

    Read committed is enough for that: an update that had to wait checks its condition again, and of
    two inserts of one id the second waits for the first. CockroachDB runs it serializable, its
    default. Nothing is read from replicas. A call that returned is as durable as the server's
    `synchronous_commit` makes it; by default it is on disk.
    """

    def __init__(
        self, pool: Pool[TimedConnection], answer_seconds: float, keeps_log: bool = True
    ) -> None:
        super().__init__(pool, keeps_log)
        self._answer_seconds = answer_seconds

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        if not rows:
            return frozenset()
        rows = in_order(rows)
        found = self._write(lambda: self._run((_INSERT_NEW, _columns(repo, rows)))[0])
        new = frozenset(id for (id,) in found)
        old = [row for row in rows if row.id not in new]
        if old:
            self._change((_REFRESH, _columns(repo, old)))
        return new

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        ids = iter(ids)
        while some := list(islice(ids, _AT_ONCE)):
            self._change((_DELETE, (repo, BytesArray.of(some))))

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        """One statement per part. A row that another statement is refreshing is checked after it.

        Not repeated if the connection breaks: then it is unknown which rows are deleted.
        """
        deleted: list[ObjId] = []
        rows = in_order(rows)
        for at in range(0, len(rows), _AT_ONCE):
            statement = _DELETE_UNREFERENCED, _identities(repo, rows[at : at + _AT_ONCE])
            found = self._write(partial(self._run, statement))[0]
            deleted += (id for (id,) in found)
        return frozenset(deleted)

    def erase(self, repo: str) -> None:
        for statement in _ERASE:
            while self._change((statement, (repo, repo))):
                pass

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        """One statement, and hence one round trip, for any number of rows.

        Two calls that store one row at the same moment may both report it as new. A unique row is
        stored by only one of them.
        """
        rows = in_order(rows)
        ids = [row.id for row in rows]
        change, args = _change_returning(repo, swap)
        args = (*args, *_columns(repo, rows), *_log_columns(repo, log), BytesArray.of(ids), repo)
        try:
            ((swapped, stored),) = self._write(
                lambda: self._run((_APPLY.format(swap=change), args))[0]
            )
        except Taken:
            swapped, stored = 0, ()
        if not swapped:
            unique = [row.id for row in rows if row.kind == UNIQUE_KIND]
            return Applied(False, self._not_stored(repo, unique))
        return Applied(True, frozenset(ids).difference(stored))

    def check_writable(self) -> None:
        """Ask the database: a standby, or a read-only role, still answers reads."""
        ((is_read_only,),) = self._select((_IS_READ_ONLY, ()))
        if is_read_only:
            raise StoreCannotWrite(
                "The database accepts no writes: it is a standby, or read-only for this role"
            )

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        if rows:
            self._change((f"{_LOG} ON CONFLICT DO NOTHING", _log_columns(repo, rows)))

    def _look_ups(self, what: Keyed, repo: str, keys: Sequence[Any]) -> Iterator[Statement]:
        text = _found_by_key(what)
        array = TextArray if what is sql.REFS else BytesArray
        for some in sql.chunks(keys):
            yield text, (array.of(some), repo)

    def _select_page(self, statement: Statement) -> Records:
        return self._read(lambda: self._run(statement, SCAN_FACTOR)[0])

    def _run(self, statement: Statement, timeout_factor: int = 1) -> tuple[Records, int]:
        text, args = statement
        with ERRORS.translating(), self._pool.use() as db:
            db.answer_seconds = self._answer_seconds * timeout_factor
            cursor = db.reused_cursor.execute(_spelt(text), args)
            # Not `cursor.description`, which describes each column in detail.
            has_records = cursor.pgresult is not None and cursor.pgresult.nfields
            return cursor.fetchall() if has_records else (), cursor.rowcount


class PostgresBackend(CockroachBackend):
    """PostgreSQL can change several refs in one statement, too.

    CockroachDB refuses a statement that changes a table twice.
    """

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        """One statement. Its text depends on the kinds of the swaps, so these are sorted by kind:
        the database prepares only texts that it has seen a few times."""
        in_kinds = sorted(swaps, key=lambda swap: (swap.expected is None, swap.new is None))
        changes = [_change_returning(repo, swap) for swap in in_kinds]
        text = _APPLY_ALL.format(
            swaps=", ".join(f"s{n} AS ({change})" for n, (change, _) in enumerate(changes)),
            made=" + ".join(f"(SELECT count(*) FROM s{n})" for n in range(len(changes))),
            wanted=len(changes),
        )
        args = [arg for _, each in changes for arg in each]
        args += (*_columns(repo, in_order(rows)), *_log_columns(repo, log))
        try:
            self._write(lambda: self._run((text, tuple(args))))
        except Taken:
            return False
        return True


def _change_returning(repo: str, swap: RefSwap) -> Statement:
    """The swap as a statement that returns a record if the swap succeeded."""
    if swap.expected is None and swap.new is None:
        return _ABSENT, (repo, swap.name)
    change, args = sql.change_ref(repo, swap)
    return f"{change} RETURNING 1", args


@lru_cache(maxsize=256)
def _spelt(text: str) -> bytes:
    return text.replace("?", "%b").encode()


def _columns(repo: str, rows: Sequence[Row]) -> tuple[object, ...]:
    return (
        repo,
        BytesArray.of(row.id for row in rows),
        TextArray.of([row.kind for row in rows]),
        TextArray.of([row.version for row in rows]),
        BytesArray.of(sql.row_value(row) for row in rows),
        NumberArray.of([row.referenced_micros for row in rows]),
    )


def _identities(repo: str, rows: Sequence[Row]) -> tuple[object, ...]:
    ids = BytesArray.of(row.id for row in rows)
    return (
        ids,
        TextArray.of([row.kind for row in rows]),
        TextArray.of([row.version for row in rows]),
        NumberArray.of([row.referenced_micros for row in rows]),
        repo,
        ids,
    )


def _log_columns(repo: str, log: Sequence[LogRow]) -> tuple[object, ...]:
    return (
        repo,
        BytesArray.of(line.key for line in log),
        BytesArray.of(line.data for line in log),
    )
