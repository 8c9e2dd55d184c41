"""A MariaDB server of the tests' own, from Debian's package."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from signal import SIGTERM
from typing import TYPE_CHECKING, Any, Final

import pymysql

from tests.stores.servers.daemon import Daemon, installed

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "mariadb-server-core"
CLIENT_PACKAGE: Final = "mariadb-client-core"


class MariaDBServer:
    """`root` needs no password."""

    def __init__(self, sync: bool = False) -> None:
        program = installed("mariadbd", PACKAGE)
        self._daemon = Daemon(
            lambda daemon: [
                *(str(program), "--no-defaults", f"--datadir={daemon.directory}/data"),
                *(f"--port={daemon.port}", "--bind-address=127.0.0.1"),
                *(f"--socket={daemon.directory}/socket", f"--pid-file={daemon.directory}/pid"),
                f"--innodb-flush-log-at-trx-commit={1 if sync else 2}",
            ]
        )
        self.port = self._daemon.port
        self.socket = self._daemon.directory / "socket"
        install = installed("mariadb-install-db", PACKAGE)
        installed("my_print_defaults", CLIENT_PACKAGE)  # Called by mariadb-install-db.
        how = ["--auth-root-authentication-method=normal", "--skip-test-db"]
        data = f"--datadir={self._daemon.directory}/data"
        self._daemon.run([str(install), "--no-defaults", data, *how])
        self._numbers = count()
        self.start()

    def start(self) -> None:
        self._daemon.start(self._answers)

    def stop(self) -> None:
        self._daemon.stop(SIGTERM)

    def crash(self) -> None:
        self._daemon.kill()

    def forget(self) -> None:
        self.stop()
        self._daemon.forget()

    def new_database(self) -> str:
        name = f"catalog{next(self._numbers)}"
        self.execute("mysql", f"CREATE DATABASE {name}")
        return name

    def url(self, database: str, user: str = "root", port: int | None = None) -> str:
        return f"mariadb://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, database: str, *statements: str) -> tuple[tuple[Any, ...], ...]:
        """What the last of the statements returned."""
        db = pymysql.connect(
            host="127.0.0.1", port=self.port, user="root", database=database, autocommit=True
        )
        with db, db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return cursor.fetchall()

    def refuse(self, database: str, table: str, number: int, text: str, times: int) -> None:
        """The first so many insertions into the table fail so."""
        self.execute(
            database,
            "CREATE SEQUENCE tries NOCACHE",
            f"""CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW
                IF nextval(tries) <= {times} THEN
                    SIGNAL SQLSTATE '45000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{text}';
                END IF""",
        )

    def tries(self, database: str) -> int:
        """How often it was tried since `refuse`; sequences do not forget what was undone."""
        ((tries,),) = self.execute(database, "SELECT next_not_cached_value - 1 FROM tries")
        return int(tries)

    @contextmanager
    def locked(self, database: str, table: str) -> Iterator[None]:
        db = pymysql.connect(host="127.0.0.1", port=self.port, user="root", database=database)
        with db, db.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            yield

    def waiting(self, database: str) -> list[int]:
        """Which connections wait for a lock."""
        found = self.execute(
            "mysql",
            "SELECT id FROM information_schema.processlist WHERE"
            f" state = 'Waiting for table metadata lock' AND db = '{database}'",
        )
        return [id for (id,) in found]

    def connections(self, database: str) -> list[int]:
        who = f"SELECT id FROM information_schema.processlist WHERE db = '{database}'"
        return [id for (id,) in self.execute("mysql", who)]

    def cut(self, connection: int) -> None:
        self.execute("mysql", f"KILL {connection}")

    def _answers(self) -> bool:
        try:
            self.execute("mysql", "SELECT 1")
        except pymysql.err.OperationalError:
            return False
        return True


@contextmanager
def mariadb(sync: bool = False) -> Iterator[MariaDBServer]:
    server = MariaDBServer(sync)
    try:
        yield server
    finally:
        server.forget()
