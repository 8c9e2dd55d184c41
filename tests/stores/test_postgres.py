"""PostgreSQL, a real server: what every backend promises, and what only this one does."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import msgspec
import psycopg
import pytest

from morag.backend.base import RefSwap
from morag.backend.postgres.backend import PostgresBackend
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
    StoreUrlInvalid,
)
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    SwapsTogetherContract,
    a_row,
    create,
    line,
    move,
    read,
)
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.safety.history_checks import put
from tests.stores.sql_contracts import (
    MeaningsContract,
    NetworkContract,
    OnSqlServer,
    TablesContract,
    UrlsContract,
    assert_hidden,
    check_meaning,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores

SERVER = "postgres"


class TestPostgres(OnSqlServer, SwapsTogetherContract):
    """The contract of backends."""


class TestPostgresTables(TablesContract):
    retype = "ALTER COLUMN obj_type TYPE CHAR(3)"
    drop_key = "DROP CONSTRAINT ref_log_pkey"

    def test_columns_are_nessies(self, server: PostgresServer, database: str, url: str) -> None:
        open_backend(url).close()
        columns = server.execute(
            database,
            """SELECT table_name, column_name, data_type, collation_name, column_default
                FROM information_schema.columns WHERE table_schema = 'public'
                AND table_name <> 'ref_log' ORDER BY table_name, ordinal_position""",
        )
        name = ("character varying", "ucs_basic", None)
        bytes, time = ("bytea", None, None), ("bigint", None, None)
        assert columns == [
            ("objs2", "repo", *name),
            ("objs2", "obj_id", *bytes),
            ("objs2", "obj_type", *name),
            ("objs2", "obj_vers", *name),
            ("objs2", "obj_value", *bytes),
            ("objs2", "obj_ref", *time),
            ("refs2", "repo", *name),
            ("refs2", "ref_name", *name),
            ("refs2", "pointer", *bytes),
            ("refs2", "ext_info", *bytes),
            ("refs2", "prev_ptr", *bytes),
            ("refs2", "created_at", "bigint", None, "0"),
            ("refs2", "deleted", "boolean", None, None),
        ]

    def test_a_schema_can_be_chosen(self, server: PostgresServer, database: str, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match="existing schema"):
            open_backend(f"{url}?schema=Our%20own")
        server.execute(database, 'CREATE SCHEMA "Our own"')
        with opened(f"{url}?schema=Our%20own") as backend:
            create(backend, MAIN)
        assert server.execute(database, 'SELECT ref_name FROM "Our own".refs2') == [(MAIN.name,)]
        with opened(url) as backend:
            assert backend.read_refs("r", [MAIN.name]) == {}


class TestPostgresNetwork(NetworkContract):
    """The contract of databases behind a network."""


class TestRoundTrips:
    def test_a_commit_takes_one_and_a_second_if_other_servers_commit_too(self, url: str) -> None:
        backend = open_backend(f"{url}?pool_size=1")
        assert isinstance(backend, PostgresBackend)
        one, other = (Repository(backend, Settings(), World()) for _ in range(2))
        for number in range(12):  # Until all statements are prepared.
            other.commit("main", [put(f"theirs {number}")], "warm")
            one.commit("main", [put(f"warm {number}")], "warm")
        assert round_trips(backend, lambda: one.commit("main", [put("new")], "new")) == 2
        for number in range(32):  # Until the repository does not expect others any more.
            one.commit("main", [put(f"alone {number}")], "warm")
        assert round_trips(backend, lambda: one.commit("main", [put("newer")], "new")) == 1
        backend.close()

    def test_each_call_takes_one_however_many_rows_it_has(self, url: str) -> None:
        backend = open_backend(f"{url}?pool_size=1")
        assert isinstance(backend, PostgresBackend)
        for number in range(10):
            backend.swap_ref("r", RefSwap(f"{number}", None, MAIN))
            backend.apply("r", [a_row(number)], RefSwap(MAIN.name, MAIN, MAIN), [line(number)])
            backend.insert_rows("r", [a_row(("more", number))])
            backend.read_rows("r", [a_row(number).id])
        create(backend, MAIN)
        many, log = [a_row(("many", n)) for n in range(1000)], [line(n) for n in range(100, 200)]
        for work in (
            lambda: backend.apply("r", many, RefSwap(MAIN.name, MAIN, MOVED), log),
            lambda: backend.insert_rows("r", [a_row(("new", n)) for n in range(1000)]),
            lambda: backend.read_rows("r", [many[0].id]),
            lambda: move(backend, MOVED, MAIN),
        ):
            assert round_trips(backend, work) == 1
        assert read(backend, MAIN.name) == MAIN
        backend.close()


def test_reads_by_key_use_an_index_whatever_the_statistics(
    server: PostgresServer, database: str, url: str
) -> None:
    """The plans are made while the tables are empty, and the statistics are never updated."""
    backend = open_backend(f"{url}?pool_size=1")
    assert isinstance(backend, PostgresBackend)
    for table in ("objs2", "refs2"):
        server.execute(database, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    rows, create_main = [a_row(number) for number in range(3000)], RefSwap(MAIN.name, None, MAIN)
    assert backend.apply("r", rows[:1], create_main).swapped

    def call_all() -> None:
        backend.read_rows("r", [row.id for row in rows[::1000]])
        backend.read_refs("r", ["1", "2"])
        backend.insert_rows("r", rows[:3])
        backend.apply("r", rows[:3], RefSwap(MAIN.name, MAIN, MAIN))
        backend._run(("SELECT pg_stat_force_next_flush()", ()))

    for _ in range(12):  # Until all plans are cached.
        call_all()
    backend.insert_rows("r", rows)
    for number in range(500):
        name = f"{number}"
        backend.swap_ref("r", RefSwap(name, None, msgspec.structs.replace(MAIN, name=name)))
    call_all()
    before = server.index_reads(database)
    call_all()
    assert 0 < server.index_reads(database) - before < 100
    backend.close()


def test_a_database_that_takes_no_writes_is_reported(
    server: PostgresServer, database: str, url: str
) -> None:
    with opened(url) as backend:
        assert isinstance(backend, PostgresBackend)
        backend.check_writable()
    server.execute(database, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with opened(url) as backend:
        assert isinstance(backend, PostgresBackend)
        with pytest.raises(StoreCannotWrite, match="accepts no writes"):
            backend.check_writable()


def test_a_read_only_role_may_open_the_tables(
    server: PostgresServer, database: str, url: str
) -> None:
    with opened(url) as backend:
        create(backend, MAIN)
    make_guest(server, database)
    server.execute(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    with opened(server.url(database, "guest:op%20en%2F")) as backend:
        assert read(backend, MAIN.name) == MAIN


def test_a_changed_password_is_not_taken_for_throttling(
    server: PostgresServer, database: str, url: str
) -> None:
    with opened(url):
        pass
    make_guest(server, database)
    server.execute(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    with opened(server.url(database, "guest:op%20en%2F")) as backend:
        assert isinstance(backend, PostgresBackend)
        server.execute(database, "ALTER ROLE guest PASSWORD 'other'")
        backend._pool.drop_idle()
        with pytest.raises(StoreUnreachable, match="check the user, the password"):
            read(backend, MAIN.name)


class TestUrls(UrlsContract):
    missing_database = "does not exist"

    def test_a_wrong_password_is_reported_and_not_shown(
        self, server: PostgresServer, database: str
    ) -> None:
        make_guest(server, database)
        with pytest.raises(StoreUrlInvalid, match="check the user, the password") as refusal:
            open_backend(server.url(database, "guest:sesame"))
        assert_hidden("sesame", refusal.value)

    def test_a_right_password_opens_what_was_granted(
        self, server: PostgresServer, database: str
    ) -> None:
        make_guest(server, database)
        url = server.url(database, "guest:op%20en%2F")
        with pytest.raises(StoreUrlInvalid, match=r"grant CREATE .*CREATE TABLE refs2"):
            open_backend(url)
        server.execute(database, "GRANT CREATE ON SCHEMA public TO guest")
        with opened(url) as backend:
            assert create(backend, MAIN)

    def test_a_role_without_grants_is_refused(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        make_guest(server, database)
        server.execute(database, "GRANT CREATE ON SCHEMA public TO guest")
        with pytest.raises(StoreUrlInvalid, match=r"'refs2'.*grant SELECT"):
            open_backend(server.url(database, "guest:op%20en%2F"))

    def test_a_reader_needs_only_the_right_to_read(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
        make_guest(server, database)
        server.execute(database, "GRANT SELECT ON refs2, objs2, ref_log TO guest")
        guest = server.url(database, "guest:op%20en%2F")
        reading = open_backend(guest, read_only=True)
        assert read(reading, MAIN.name) == MAIN
        reading.close()

    @pytest.mark.parametrize(
        "url", ["postgresql:", "postgresql://u:sesame@localhost", "postgresql://u:sesame%@h/d"]
    )
    def test_a_url_without_a_database_is_refused(self, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match="names no database") as refusal:
            open_backend(url)
        assert_hidden("sesame", refusal.value)

    @pytest.mark.parametrize("option", ["timeout_seconds=soon", "pool_size=-1", "ssl_mode=off"])
    def test_an_invalid_option_is_refused_by_name(self, option: str, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match=option.partition("=")[0]):
            open_backend(f"{url}?{option}")

    def test_a_timeout_may_be_very_long(self, url: str) -> None:
        with opened(f"{url}?timeout_seconds=999999") as backend:
            assert create(backend, MAIN)


class TestMeanings(MeaningsContract):
    restart_code = "40001"

    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_a_rolled_back_write_is_repeated(
        self, state: str, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "refs2", state, "undone", times=3)
            assert backend.apply(
                "r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED), [line(1)]
            ).swapped
            assert read(backend, MAIN.name) == MOVED
            assert server.attempts(database) == 4

    @pytest.mark.parametrize(
        ("state", "meaning"),
        [
            ("53100", StoreCannotWrite),
            ("53200", StoreCannotWrite),
            ("53400", StoreThrottled),
            ("57014", StoreBusy),
            ("57P01", StoreUnreachable),
            ("XX001", RepositoryCorrupt),
            ("P0001", ServiceUnavailable),
        ],
    )
    def test_every_error_has_its_meaning(
        self, state: str, meaning: type[MoragError], server: PostgresServer, database: str, url: str
    ) -> None:
        check_meaning(server, database, url, state, meaning)

    def test_a_read_only_database_can_be_read(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.execute(
                database,
                f"ALTER DATABASE {database} SET default_transaction_read_only = on",
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE"
                f" datname = '{database}' AND pid <> pg_backend_pid()",
            )
            with pytest.raises(StoreCannotWrite, match="read-only"):
                move(backend, MAIN, MOVED)
            assert read(backend, MAIN.name) == MAIN

    def test_too_many_connections_are_reported(self, server: PostgresServer, database: str) -> None:
        make_guest(server, database)
        server.execute(database, "GRANT CREATE ON SCHEMA public TO guest")
        url = server.url(database, "guest:op%20en%2F")
        with opened(url) as backend:
            server.execute(database, "ALTER ROLE guest CONNECTION LIMIT 1")
            with (
                psycopg.connect(url),
                pytest.raises(StoreThrottled, match="too many connections"),
            ):
                read(backend, MAIN.name)
            create(backend, MAIN)
        server.execute(database, "ALTER ROLE guest CONNECTION LIMIT -1")


def make_guest(server: PostgresServer, database: str) -> None:
    """Create a role that needs a password. Roles belong to the server, so it may exist already."""
    server.execute(
        database,
        "DO $$ BEGIN CREATE ROLE guest; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "ALTER ROLE guest LOGIN PASSWORD 'op en/' CONNECTION LIMIT -1",
    )


def round_trips(backend: PostgresBackend, work: Callable[[], object]) -> int:
    """The number of times that the driver waits for an answer, by the trace of its connection."""
    with tempfile.TemporaryFile("w+b") as trace:
        with backend._pool.use() as db:
            db.pgconn.trace(trace.fileno())
        work()
        with backend._pool.use() as db:
            db.pgconn.untrace()
        trace.seek(0)
        sent = [line.split(b"\t")[1:4] for line in trace.read().splitlines()]
    return sum(part[0] == b"F" and part[2] in (b"Sync", b"Query") for part in sent if part[2:])
