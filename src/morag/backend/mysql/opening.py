"""Connections to MariaDB and MySQL, and the tables in them."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE, SERVER_STATUS
from pymysql.converters import conversions

from morag.backend.mysql.errors import ERRORS, THROTTLED, code_of
from morag.backend.sql import schema as sql_schema
from morag.backend.sql.pool import ANSWER_SECONDS, CONNECT_SECONDS, MOST, POOL_OPTIONS, is_silent
from morag.backend.sql.schema import BYTES, FLAG, ID, KEY, NAME, TABLES, TIME, Found
from morag.errors import StoreThrottled, StoreUnreachable, StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag.backend.urls import StoreUrl

Connection: TypeAlias = Any
"""A `pymysql.Connection`, whose published types lack what a pool needs."""

MOST_NAME_CHARACTERS: Final = 255
"""Nessie's columns hold no more."""

_TLS: Final = frozenset({"ssl_ca", "ssl_cert", "ssl_key"})
_COLLATION: Final = "utf8mb4_bin"
_MAKES: Final[Mapping[str, str]] = {
    NAME: f"VARCHAR({MOST_NAME_CHARACTERS}) CHARACTER SET utf8mb4 COLLATE {_COLLATION}",
    ID: "TINYBLOB",
    BYTES: "LONGBLOB",
    TIME: "BIGINT",
    FLAG: "BIT(1)",
    KEY: "VARBINARY(255)",
}
_TYPES: Final[Mapping[str, frozenset[str]]] = {
    NAME: frozenset({f"varchar {_COLLATION}"}),  # Another collation might ignore case.
    ID: frozenset({"tinyblob", "blob", "mediumblob", "longblob", "varbinary"}),
    BYTES: frozenset({"longblob"}),
    TIME: frozenset({"bigint"}),
    FLAG: frozenset({"bit"}),
    KEY: frozenset({"varbinary"}),
}
_OURS: Final = "table_schema = database() AND table_name IN (%s, %s, %s)"
_COLUMNS: Final = f"""SELECT table_name, column_name, concat_ws(' ', data_type, collation_name)
    FROM information_schema.columns WHERE {_OURS}"""
_KEYS: Final = f"""SELECT table_name, column_name FROM information_schema.key_column_usage
    WHERE {_OURS} AND constraint_name = 'PRIMARY' ORDER BY ordinal_position"""
_ENGINES: Final = f"SELECT table_name, engine FROM information_schema.tables WHERE {_OURS}"
_MADE_BY_ANOTHER: Final = 1050  # Another server created the table at the same moment.
_NOT_LET_IN: Final = frozenset({1044, 1045, 1049, 1130, 1251, 1698, 2054, 2059, 2061})


class MySQLConnector:
    def __init__(self, url: StoreUrl) -> None:
        url.check_options(_TLS | POOL_OPTIONS | {"socket"})
        self._url = url
        self.answer_seconds = url.number("timeout_seconds", ANSWER_SECONDS, MOST)
        self._arguments = self._to_connect()

    def connect(self) -> Connection:
        try:
            db: Connection = pymysql.connect(**self._arguments)
        except (pymysql.MySQLError, OSError) as error:
            text = f"The database of '{self._url}' accepts no connections ({error}); try again"
            if code_of(error) in _NOT_LET_IN:
                raise _NotLetIn(text) from error
            throttled = code_of(error) in THROTTLED
            raise (StoreThrottled(text) if throttled else StoreUnreachable(text)) from error
        except RuntimeError as error:  # An authentication method that needs one more package.
            raise _NotLetIn(str(error)) from error
        try:
            with ERRORS.translating(), db.cursor() as cursor:
                for setting in self._settings():
                    cursor.execute(setting)
        except BaseException:
            self.close(db)
            raise
        return db

    def is_sound(self, db: Connection) -> bool:
        if not db.open or db.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            return False
        return is_silent(db._sock)

    def close(self, db: Connection) -> None:
        db._force_close()  # `close` could wait for the database without limit.

    def connect_first(self) -> Connection:
        """Like `connect`, but if the user is refused, the URL is wrong."""
        try:
            return self.connect()
        except _NotLetIn as refused:
            raise StoreUrlInvalid(
                f"The database refuses '{self._url}' ({refused.__cause__}); check the user, the"
                " password and the database, which must exist"
            ) from refused.__cause__

    def prepare(self, db: Connection) -> bool:
        """Create missing tables and check all; return whether there is a ref-log."""
        keeps_log = sql_schema.prepare(
            self._url,
            lambda: Found.all(_ask(db, _COLUMNS), _ask(db, _KEYS)),
            lambda table: self._create(db, table),
            _TYPES,
        )
        for table, engine in _ask(db, _ENGINES):
            if engine != "InnoDB":
                raise StoreUrlInvalid(
                    f"The table '{table}' in '{self._url}' is stored by {engine}, which has no"
                    f" transactions; convert it: ALTER TABLE {table} ENGINE = InnoDB"
                )
        return keeps_log

    def largest_statement_bytes(self, db: Connection) -> int:
        with ERRORS.translating(), db.cursor() as cursor:
            cursor.execute("SELECT @@max_allowed_packet")
            (size,) = cursor.fetchone()
            return int(size)

    def _create(self, db: Connection, table: str) -> None:
        statement = sql_schema.create(table, _MAKES, key_suffix="(255)")
        try:
            with db.cursor() as cursor:
                cursor.execute(statement)
        except pymysql.MySQLError as error:
            if code_of(error) != _MADE_BY_ANOTHER:
                raise StoreUrlInvalid(
                    f"Cannot create the table '{table}' in '{self._url}' ({error}); grant CREATE,"
                    f" or run there: {statement}"
                ) from error

    def _settings(self) -> list[str]:
        # Lock waits end before the driver stops waiting for the database.
        lock_seconds = max(1, int(self.answer_seconds / 2))
        return [
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
            f"SET SESSION innodb_lock_wait_timeout = {lock_seconds}",
            f"SET SESSION lock_wait_timeout = {lock_seconds}",
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
            + (", READ ONLY" if self._url.read_only else ""),
        ]

    def _to_connect(self) -> dict[str, Any]:
        try:
            address = urlsplit(f"mysql:{self._url.rest}")
            port = address.port or 3306
        except ValueError:
            address, port = urlsplit(""), 0
        database = unquote(address.path).strip("/")
        if not database or not address.username:
            raise StoreUrlInvalid(
                f"'{self._url}' names no user or no database; write"
                f" {self._url.scheme}://USER:PASSWORD@HOST/DATABASE, with special characters as %XX"
            )
        options = self._url.options
        connect_seconds = self._url.number("connect_timeout_seconds", CONNECT_SECONDS, MOST)
        arguments: dict[str, Any] = {
            "host": address.hostname,
            "port": port,
            "user": unquote(address.username),
            "password": unquote(address.password or ""),
            "database": database,
            "charset": "utf8mb4",
            "autocommit": True,
            # So that an update also counts rows that do not change.
            "client_flag": CLIENT.FOUND_ROWS,
            "conv": {**conversions, FIELD_TYPE.BIT: lambda bits: int.from_bytes(bits, "big")},
            "connect_timeout": ceil(connect_seconds),
            "read_timeout": self.answer_seconds,
            "write_timeout": self.answer_seconds,
            **{name: options[name] for name in _TLS if name in options},
        }
        if "ssl_ca" in options:
            arguments |= {"ssl_verify_cert": True, "ssl_verify_identity": True}
        if "socket" in options:
            arguments["unix_socket"] = options["socket"]
        return arguments


class _NotLetIn(StoreUnreachable):
    """The database answers and refuses the user."""


def _ask(db: Connection, question: str) -> list[tuple[Any, ...]]:
    with ERRORS.translating(), db.cursor() as cursor:
        cursor.execute(question, tuple(TABLES))
        return list(cursor.fetchall())
