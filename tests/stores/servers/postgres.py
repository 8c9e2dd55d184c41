"""A PostgreSQL server for tests, from Debian's package."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, Any, Final

import psycopg

from tests.stores.databases import Database, EmptyStore
from tests.stores.servers.daemon import Daemon, installed
from tests.stores.servers.sql_daemon import SqlDaemon

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "postgresql-15"
_VERSIONS: Final = Path("/usr/lib/postgresql")


def _program_directories() -> list[Path]:
    """Debian has each version in its own directory outside the PATH."""
    return sorted(_VERSIONS.glob("*/bin"), reverse=True)


class PostgresServer(SqlDaemon):
    """Trusts all roles on loopback, but needs a password from the role `guest`."""

    stop_signal = SIGINT
    own_database = "postgres"
    unreachable = psycopg.OperationalError
    count_attempts = "SELECT last_value FROM attempts"

    def __init__(self, sync: bool = False) -> None:
        programs = installed("initdb", PACKAGE, _program_directories).resolve().parent
        daemon = Daemon(
            lambda daemon: [
                str(programs / "postgres"),
                *("-D", "data", "-p", str(daemon.port), "-k", str(daemon.directory)),
                *("-c", "listen_addresses=127.0.0.1", "-c", f"fsync={'on' if sync else 'off'}"),
            ]
        )
        super().__init__(daemon)
        how = ["-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C"]
        self._daemon.run([str(programs / "initdb"), "-D", "data", *how])
        access = self._daemon.directory / "data" / "pg_hba.conf"
        access.write_text(
            "host all guest 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        )
        self.start()

    def url(self, database: str, user: str = "postgres", port: int | None = None) -> str:
        return f"postgresql://{user}@127.0.0.1:{port or self.port}/{database}"

    def execute(self, database: str, *statements: str) -> list[Any]:
        """Execute the statements, and return the result of the last one."""
        with psycopg.connect(self.url(database), autocommit=True) as db:
            cursor = db.cursor()
            for statement in statements:
                cursor.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def refuse(self, database: str, table: str, state: str, text: str, times: int) -> None:
        """Fail the first `times` insertions or updates of the table with this error."""
        self.execute(
            database,
            "CREATE SEQUENCE attempts",
            f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF nextval('attempts') <= {times} THEN
                    RAISE EXCEPTION '{text}' USING ERRCODE = '{state}';
                END IF;
                RETURN NEW;
            END $$""",
            f"""CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON {table}
                FOR EACH ROW EXECUTE FUNCTION refuse()""",
        )

    @contextmanager
    def locked(self, database: str, table: str) -> Iterator[None]:
        with psycopg.connect(self.url(database)) as db:
            db.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
            yield

    def waiting(self, database: str) -> list[int]:
        """The connections that wait for a lock."""
        found = self.execute(
            "postgres",
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            f" AND datname = '{database}'",
        )
        return [pid for (pid,) in found]

    def index_reads(self, database: str) -> int:
        """The number of index entries that were read so far."""
        ((entries,),) = self.execute(database, "SELECT sum(idx_tup_read) FROM pg_stat_user_indexes")
        return int(entries)

    def cut(self, connection: int) -> None:
        self.execute("postgres", f"SELECT pg_terminate_backend({connection})")


@contextmanager
def postgres(sync: bool = False) -> Iterator[PostgresServer]:
    server = PostgresServer(sync)
    try:
        yield server
    finally:
        server.forget()


def new_store(server: PostgresServer) -> EmptyStore:
    database, source = server.new_database(), "quarkus.datasource.postgresql"
    return EmptyStore.at(
        server.port,
        server.url(database),
        {
            "nessie.version.store.type": "JDBC2",
            "nessie.version.store.persist.jdbc.datasource": "postgresql",
            f"{source}.jdbc.url": f"jdbc:postgresql://127.0.0.1:{server.port}/{database}",
            f"{source}.username": "postgres",
            f"{source}.password": "none",
        },
    )


DATABASE: Final = Database("PostgreSQL", postgres, new_store, histories=14, runs_nessie=True)
