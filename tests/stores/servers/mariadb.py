"""A MariaDB server for tests, from Debian's package."""

from __future__ import annotations

from contextlib import contextmanager
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, Final

import pymysql

from tests.stores.databases import Database, EmptyStore
from tests.stores.servers.daemon import Daemon, installed
from tests.stores.servers.sql_daemon import SqlDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "mariadb-server-core"
CLIENT_PACKAGE: Final = "mariadb-client-core"


class MariaDBServer(SqlDaemon):
    """`root` needs no password."""

    stop_signal = SIGTERM
    own_database = "mysql"
    unreachable = pymysql.err.OperationalError
    count_attempts = "SELECT next_not_cached_value - 1 FROM attempts"

    def __init__(self, sync: bool = False) -> None:
        program = installed("mariadbd", PACKAGE)
        daemon = Daemon(
            lambda daemon: [
                *(str(program), "--no-defaults", f"--datadir={daemon.directory}/data"),
                *(f"--port={daemon.port}", "--bind-address=127.0.0.1"),
                *(f"--socket={daemon.directory}/socket", f"--pid-file={daemon.directory}/pid"),
                f"--innodb-flush-log-at-trx-commit={1 if sync else 2}",
            ]
        )
        super().__init__(daemon)
        self.socket = self._daemon.directory / "socket"
        install = installed("mariadb-install-db", PACKAGE)
        installed("my_print_defaults", CLIENT_PACKAGE)  # Called by mariadb-install-db.
        how = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        data = f"--datadir={self._daemon.directory}/data"
        self._daemon.run([str(install), "--no-defaults", data, *how])
        self.start()

    def url(self, database: str, user: str = "root", port: int | None = None) -> str:
        return f"mariadb://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, database: str, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """Execute the statements, and return the result of the last one."""
        db = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )
        with db, db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def refuse(self, database: str, table: str, number: int, text: str, times: int) -> None:
        """Fail the first `times` insertions into the table with this error."""
        self.execute(
            database,
            "CREATE SEQUENCE attempts NOCACHE",
            f"""CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW
                IF nextval(attempts) <= {times} THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{text}';
                END IF""",
        )

    @contextmanager
    def locked(self, database: str, table: str) -> Iterator[None]:
        db = pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database)
        with db, db.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            yield

    def waiting(self, database: str) -> list[int]:
        """The connections that wait for a lock."""
        found = self.execute(
            "mysql",
            "SELECT id FROM information_schema.processlist WHERE"
            f" state = 'Waiting for table metadata lock' AND db = '{database}'",
        )
        return [id for (id,) in found]

    def connections(self, database: str) -> list[int]:
        query = f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"
        return [id for (id,) in self.execute("mysql", query)]

    def cut(self, connection: int) -> None:
        self.execute("mysql", f"KILL {connection}")


@contextmanager
def mariadb(sync: bool = False) -> Iterator[MariaDBServer]:
    server = MariaDBServer(sync)
    try:
        yield server
    finally:
        server.forget()


def new_store(server: MariaDBServer) -> EmptyStore:
    database, source = server.new_database(), "quarkus.datasource.mariadb"
    return EmptyStore.at(
        server.port,
        server.url(database),
        {
            "nessie.version.store.type": "JDBC2",
            "nessie.version.store.persist.jdbc.datasource": "mariadb",
            f"{source}.jdbc.url": f"jdbc:mariadb://127.0.0.1:{server.port}/{database}",
            f"{source}.username": "root",
            f"{source}.password": "",
        },
    )


DATABASE: Final = Database("MariaDB", mariadb, new_store, histories=14, runs_nessie=True)
