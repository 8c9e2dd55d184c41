"""A PostgreSQL server of the tests' own, from Debian's package."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.stores.servers.daemon import Daemon, installed

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "postgresql-15"
_VERSIONS: Final = Path("/usr/lib/postgresql")


def _places() -> list[Path]:
    """Debian keeps several versions beside each other, off the path."""
    return sorted(_VERSIONS.glob("*/bin"), reverse=True)


class PostgresServer:
    """Trusts everybody on loopback, but asks those whose role is `guest` for a password."""

    def __init__(self, sync: bool = False) -> None:
        programs = installed("initdb", PACKAGE, _places).resolve().parent
        self._sync = "on" if sync else "off"
        self._daemon = Daemon(
            lambda daemon: [
                str(programs / "postgres"),
                *("-D", "data", "-p", str(daemon.port), "-k", str(daemon.directory)),
                *("-c", "listen_addresses=127.0.0.1", "-c", f"fsync={self._sync}"),
            ]
        )
        self.port = self._daemon.port
        how = ["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._daemon.run([str(programs / "initdb"), "-D", "data", *how])
        access = self._daemon.directory / "data" / "pg_hba.conf"
        access.write_text(
            "host all guest 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        )
        self._numbers = count()
        self.start()

    def start(self) -> None:
        self._daemon.start(self._answers)

    def stop(self) -> None:
        self._daemon.stop(SIGINT)

    def crash(self) -> None:
        """All its processes end at once; it recovers when it starts again."""
        self._daemon.kill()

    def forget(self) -> None:
        self.stop()
        self._daemon.forget()

    def new_database(self) -> str:
        name = f"catalog{next(self._numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name}")
        return name

    def url(self, database: str, user: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, database: str, *statements: str) -> list[Any]:
        """What the last of the statements returned."""
        with psycopg.connect(self.url(database), autocommit=True) as db:
            cursor = db.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def refuse(self, database: str, table: str, state: str, text: str, times: int) -> None:
        """The first so many insertions and updates of the table fail so."""
        self.execute(
            database,
            "CREATE SEQUENCE tries",
            f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('tries') <= {times} THEN
                    RAISE EXCEPTION '{text}' USING ERRCODE = '{state}';
                END IF;
                RETURN NEW;
            END $$""",
            f"""CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table}
                FOR EACH ROW EXECUTE FUNCTION refuse()""",
        )

    def tries(self, database: str) -> int:
        """How often it was tried since `refuse`; sequences do not forget what was undone."""
        ((tries,),) = self.execute(database, "SELECT last_value FROM tries")
        return int(tries)

    @contextmanager
    def locked(self, database: str, table: str) -> Iterator[None]:
        with psycopg.connect(self.url(database)) as db:
            db.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            yield

    def waiting(self, database: str) -> list[int]:
        """Which connections wait for a lock."""
        found = self.execute(
            "postgres",
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            f" AND datname = '{database}'",
        )
        return [pid for (pid,) in found]

    def looked_at(self, database: str) -> int:
        """How many entries of indexes were read so far."""
        ((entries,),) = self.execute(database, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes")
        return int(entries)

    def cut(self, connection: int) -> None:
        self.execute("postgres", f"SELECT pg_terminate_backend({connection})")

    def _answers(self) -> bool:
        try:
            self.execute("postgres", "SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def postgres(sync: bool = False) -> Iterator[PostgresServer]:
    server = PostgresServer(sync)
    try:
        yield server
    finally:
        server.forget()
