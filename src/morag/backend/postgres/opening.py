"""Connections to PostgreSQL and CockroachDB, and the tables in them."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from msgspec import Struct
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from morag.backend.postgres.arrays import understand_arrays
from morag.backend.postgres.errors import ERRORS, RESTARTED
from morag.backend.sql import schema as sql_schema
from morag.backend.sql.errors import Restart
from morag.backend.sql.pool import ANSWER_SECONDS, CONNECT_SECONDS, MOST, POOL_OPTIONS, is_silent
from morag.backend.sql.schema import BYTES, FLAG, ID, KEY, NAME, TABLES, TIME, Found
from morag.errors import StoreThrottled, StoreUnreachable, StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from psycopg.abc import PQGen

    from morag.backend.urls import StoreUrl

RV = TypeVar("RV")

SCAN_FACTOR: Final = 60
"""A page of a scan may examine many rows of other kinds, so its time limit is multiplied."""

_CANCEL_SECONDS: Final = 1.0
_MOST_MILLIS: Final = 2**31 - 1
_LIBPQ: Final = frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs"})
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    NAME: frozenset({"character varying", "text"}),
    **dict.fromkeys((ID, BYTES, KEY), frozenset({"bytea"})),
    TIME: frozenset({"bigint"}),
    FLAG: frozenset({"boolean"}),
}
_COLUMNS: Final = """SELECT table_name, column_name, data_type FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = ANY(%s)"""
# Not from the information schema, which shows keys only to roles that may change the table.
_KEYS: Final = """SELECT c.relname, a.attname FROM pg_constraint k
    JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY(k.conkey)
    WHERE n.nspname = current_schema() AND c.relname = ANY(%s) AND k.contype = 'p'
    ORDER BY array_position(k.conkey, a.attnum)"""
_FULL: Final = ("too many connections", "too many clients", "connection slots")
_MADE_BY_ANOTHER: Final = frozenset({"23505", "42710", "42P07"})  # By another server.


class NotLetIn(StoreUnreachable):
    """The database answers and refuses the user."""


class Dialect(Struct, frozen=True):
    """The differences between the two databases: the type of names, and the start of a session."""

    title: str
    name_type: str
    session: str


POSTGRES: Final = Dialect(
    "PostgreSQL",
    "VARCHAR COLLATE ucs_basic",
    # Every statement has an index, whatever the statistics of a young table suggest, and one plan
    # is right for all values: planning again costs a commit a third of its time.
    "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan;"
    " SET default_transaction_isolation = 'read committed'",
)
COCKROACH: Final = Dialect(
    "CockroachDB", "VARCHAR", "SET default_transaction_isolation = 'serializable'"
)


class TimedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Waits for no answer longer than `answer_seconds`."""

    answer_seconds: float | None = None

    @cached_property
    def reused_cursor(self) -> psycopg.Cursor[tuple[Any, ...]]:
        """For all statements: a new cursor costs a third as much as a small statement."""
        return self.cursor(binary=True)

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        return super().wait(gen, interval, timeout or self.answer_seconds)


class PostgresConnector:
    def __init__(self, url: StoreUrl, dialect: Dialect) -> None:
        url.check_options(_LIBPQ | POOL_OPTIONS | {"schema"})
        self._url, self._dialect = url, dialect
        self.answer_seconds = url.number("timeout_seconds", ANSWER_SECONDS, MOST)
        self._conninfo = _conninfo(url)
        self._session = self._settings()

    def connect(self) -> TimedConnection:
        try:
            db = TimedConnection.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            text = f"{self._dialect.title} accepts no connections ({_in_one_line(error)})"
            if any(words in text for words in _FULL):
                raise StoreThrottled(f"{text}; try again later") from error
            if self._answers(error):
                raise NotLetIn(f"{text}; check the user, the password and the database") from error
            raise StoreUnreachable(f"{text}; try again") from error
        db.answer_seconds = self.answer_seconds
        understand_arrays(db)
        try:
            with ERRORS.translating():
                db.execute(self._session)
        except BaseException:
            self.close(db)
            raise
        return db

    def is_sound(self, db: TimedConnection) -> bool:
        if db.closed or db.pgconn.transaction_status != pq.TransactionStatus.IDLE:
            return False
        return is_silent(db.pgconn.socket)

    def close(self, db: TimedConnection) -> None:
        if db.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            # Otherwise the database would continue the statement, or wait for its lock.
            with suppress(psycopg.Error):
                db.cancel_safe(timeout=_CANCEL_SECONDS)
        db.close()

    def connect_first(self) -> TimedConnection:
        """Like `connect`, but if the user is refused, the URL is wrong."""
        try:
            return self.connect()
        except NotLetIn as refused:
            why = _in_one_line(refused.__cause__)
            raise StoreUrlInvalid(
                f"{self._dialect.title} refuses '{self._url}' ({why}); check the user, the"
                " password and the database, which must exist"
            ) from refused

    def prepare(self, db: TimedConnection) -> bool:
        """Create missing tables and check all; return whether there is a ref-log."""
        return sql_schema.prepare(
            self._url,
            lambda: Found.all(_ask(db, _COLUMNS), _ask(db, _KEYS)),
            lambda table: self._create(db, table),
            _TYPES,
        )

    def _create(self, db: TimedConnection, table: str) -> None:
        name = self._dialect.name_type
        types = {NAME: name, ID: "BYTEA", BYTES: "BYTEA", KEY: "BYTEA", TIME: "BIGINT"}
        statement = sql_schema.create(table, {**types, FLAG: "BOOLEAN"})
        try:
            db.execute(statement.encode())
        except psycopg.Error as error:
            if error.sqlstate in RESTARTED:
                raise Restart from error
            if error.sqlstate not in _MADE_BY_ANOTHER:
                raise StoreUrlInvalid(
                    f"Cannot create the table '{table}' in '{self._url}' ({_in_one_line(error)});"
                    f" grant CREATE on an existing schema, or run there: {statement}"
                ) from error

    def _answers(self, error: psycopg.Error) -> bool:
        """Whether the server answers, so that it refuses the user. The error does not show it."""
        if isinstance(error, psycopg.errors.ConnectionTimeout):
            return False
        return pq.PGconn.ping(self._conninfo.encode()) == pq.Ping.OK

    def _settings(self) -> bytes:
        millis = min(ceil(self.answer_seconds * SCAN_FACTOR * 1000), _MOST_MILLIS)
        settings = [self._dialect.session, f"SET statement_timeout = {millis}"]
        if self._url.read_only:
            settings.append("SET default_transaction_read_only = on")
        schema = self._url.options.get("schema")
        if schema is not None:
            settings.append(f"SET search_path = {sql.Identifier(schema).as_string()}")
        return "; ".join(settings).encode()


def _conninfo(url: StoreUrl) -> str:
    own = {name: value for name, value in url.options.items() if name in _LIBPQ}
    try:
        parsed = conninfo_to_dict(f"postgresql:{url.rest}", **own)
    except psycopg.Error:  # Its text would show the password.
        parsed = {}
    if not parsed.get("dbname"):
        raise StoreUrlInvalid(
            f"'{url}' names no database; write {url.scheme}://USER:PASSWORD@HOST/DATABASE, with"
            " special characters as %XX"
        )
    seconds = url.number("connect_timeout_seconds", CONNECT_SECONDS, MOST)
    always: dict[str, str | int] = {
        "application_name": "morag",
        "keepalives_idle": 60,
        "client_encoding": "utf8",
    }
    return make_conninfo("", **{**parsed, **always, "connect_timeout": ceil(seconds)})


def _ask(db: TimedConnection, question: str) -> list[tuple[Any, ...]]:
    with ERRORS.translating():
        return db.execute(question.encode(), [list(TABLES)]).fetchall()


def _in_one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())
