"""PostgreSQL, a real server: what every backend promises, and what only this one does."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import msgspec
import psycopg
import pytest

from morag.backend.base import RefSwap
from morag.backend.postgres import PostgresBackend
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
from morag.testing.backend_contract import MAIN, MOVED, a_row, create, line, move, read
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.safety.sound import put
from tests.stores.remote_sql import NetworkContract, OnSqlServer, TablesContract, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    return postgres_server


@pytest.fixture
def database(postgres_database: str) -> str:
    return postgres_database


@pytest.fixture
def url(server: PostgresServer, database: str) -> str:
    return server.url(database)


class TestPostgres(OnSqlServer):
    """The contract of backends."""


class TestPostgresTables(TablesContract):
    retype = "ALTER COLUMN obj_type TYPE CHAR(3)"
    drop_key = "DROP CONSTRAINT ref_log_pkey"

    def test_columns_are_the_originals(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        described = server.execute(
            database,
            """SELECT table_name, column_name, data_type, collation_name, column_default
                FROM information_schema.columns WHERE table_schema = 'public'
                AND table_name <> 'ref_log' ORDER BY table_name, ordinal_position""",
        )
        name = ("character varying", "ucs_basic", None)
        bytes, time = ("bytea", None, None), ("bigint", None, None)
        assert described == [
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
    def test_a_commit_takes_one_and_another_where_other_servers_commit_too(self, url: str) -> None:
        backend = open_backend(f"{url}?pool_size=1")
        assert isinstance(backend, PostgresBackend)
        one, other = (Repository(backend, Settings(), World()) for _ in range(2))
        for number in range(12):  # Until all statements are prepared.
            other.commit("main", [put(f"theirs {number}")], "warm")
            one.commit("main", [put(f"warm {number}")], "warm")
        assert round_trips(backend, lambda: one.commit("main", [put("new")], "new")) == 2
        for number in range(32):  # Until nobody expects the other any more.
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


def test_what_is_found_by_keys_is_found_by_an_index_whatever_the_planner_believes(
    server: PostgresServer, database: str, url: str
) -> None:
    """Plans that were made while the tables were empty, and nobody has counted them since."""
    backend = open_backend(f"{url}?pool_size=1")
    assert isinstance(backend, PostgresBackend)
    for table in ("objs2", "refs2"):
        server.execute(database, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    rows, create_main = [a_row(number) for number in range(3000)], RefSwap(MAIN.name, None, MAIN)
    assert backend.apply("r", rows[:1], create_main).swapped

    def ask_all() -> None:
        backend.read_rows("r", [row.id for row in rows[::1000]])
        backend.read_refs("r", ["1", "2"])
        backend.insert_rows("r", rows[:3])
        backend.apply("r", rows[:3], RefSwap(MAIN.name, MAIN, MAIN))
        backend._run(("SELECT pg_stat_force_next_flush()", ()))

    for _ in range(12):  # Until all is planned for good.
        ask_all()
    backend.insert_rows("r", rows)
    for number in range(500):
        name = f"{number}"
        backend.swap_ref("r", RefSwap(name, None, msgspec.structs.replace(MAIN, name=name)))
    ask_all()
    looked = server.looked_at(database)
    ask_all()
    assert 0 < server.looked_at(database) - looked < 100
    backend.close()


def test_a_database_that_takes_no_writes_is_told_as_such(
    server: PostgresServer, database: str, url: str
) -> None:
    with opened(url) as backend:
        assert isinstance(backend, PostgresBackend)
        backend.check_writable()
    server.execute(database, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with opened(url) as backend:
        assert isinstance(backend, PostgresBackend)
        with pytest.raises(StoreCannotWrite, match="takes no writes"):
            backend.check_writable()


def test_who_may_only_read_the_tables_is_not_told_that_they_are_wrong(
    server: PostgresServer, database: str, url: str
) -> None:
    with opened(url) as backend:
        create(backend, MAIN)
    make_guest(server, database)
    server.execute(database, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
    with opened(server.url(database, "guest:op%20en%2F")) as backend:
        assert read(backend, MAIN.name) == MAIN


def test_a_password_that_was_changed_is_no_throttling(
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


class TestWhatTheUrlSays:
    def test_a_database_that_does_not_exist_is_told(self, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match=r"does not exist.*which must exist"):
            open_backend(f"{url}x")

    def test_a_wrong_password_is_told_and_not_shown(
        self, server: PostgresServer, database: str
    ) -> None:
        make_guest(server, database)
        with pytest.raises(StoreUrlInvalid, match="check the user, the password") as refusal:
            open_backend(server.url(database, "guest:sesame"))
        assert_hidden("sesame", refusal.value)

    def test_a_right_one_opens_what_was_granted(
        self, server: PostgresServer, database: str
    ) -> None:
        make_guest(server, database)
        url = server.url(database, "guest:op%20en%2F")
        with pytest.raises(StoreUrlInvalid, match=r"grant CREATE .*CREATE TABLE refs2"):
            open_backend(url)
        server.execute(database, "GRANT CREATE ON SCHEMA public TO guest")
        with opened(url) as backend:
            assert create(backend, MAIN)

    def test_who_was_granted_nothing_on_the_tables_is_told(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        make_guest(server, database)
        server.execute(database, "GRANT CREATE ON SCHEMA public TO guest")
        with pytest.raises(StoreUrlInvalid, match=r"'refs2'.*grant SELECT"):
            open_backend(server.url(database, "guest:op%20en%2F"))

    def test_reading_takes_no_more_than_the_right_to_read(
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
    def test_what_is_no_place_is_refused(self, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match="names no database") as refusal:
            open_backend(url)
        assert_hidden("sesame", refusal.value)

    @pytest.mark.parametrize("option", ["timeout_seconds=soon", "pool_size=-1", "ssl_mode=off"])
    def test_options_are_checked(self, option: str, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match=option.partition("=")[0]):
            open_backend(f"{url}?{option}")

    def test_an_answer_may_be_waited_for_as_long_as_one_likes(self, url: str) -> None:
        with opened(f"{url}?timeout_seconds=999999") as backend:
            assert create(backend, MAIN)

    def test_a_server_that_is_not_there_is_unreachable(self) -> None:
        with pytest.raises(StoreUnreachable, match="takes no connection"):
            open_backend("postgresql://postgres@127.0.0.1:1/x")


class TestSpecialAnswers:
    @pytest.mark.parametrize("state", ["40001", "40P01"])
    def test_what_was_undone_is_done_again(
        self, state: str, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "refs2", state, "undone", times=3)
            assert backend.apply(
                "r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED), [line(1)]
            ).swapped
            assert read(backend, MAIN.name) == MOVED
            assert server.tries(database) == 4

    def test_but_not_for_ever(self, server: PostgresServer, database: str, url: str) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", "40001", "undone", times=1000)
            with pytest.raises(StoreBusy, match="undone"):
                backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
            assert server.tries(database) == 6
            assert read(backend, MAIN.name) == MAIN

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
    def test_every_refusal_is_told_in_our_words(
        self, state: str, meaning: type[MoragError], server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "refs2", state, "so it is", times=1)
            with pytest.raises(MoragError, match="so it is") as refusal:
                move(backend, MAIN, MOVED)
            assert type(refusal.value).__mro__[:2].count(meaning) == 1
            assert read(backend, MAIN.name) == MAIN
            assert server.tries(database) == 1, "and not tried again"

    def test_a_database_that_does_not_write_still_reads(
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

    def test_a_table_that_is_gone_is_told(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            server.execute(database, "DROP TABLE objs2")
            with pytest.raises(RepositoryCorrupt, match="objs2"):
                backend.insert_rows("r", [a_row(1)])

    def test_too_many_connections_are_told(self, server: PostgresServer, database: str) -> None:
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
    """A role that needs a password. Roles are the server's, so it may be there already."""
    server.execute(
        database,
        "DO $$ BEGIN CREATE ROLE guest; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        "ALTER ROLE guest LOGIN PASSWORD 'op en/' CONNECTION LIMIT -1",
    )


def assert_hidden(secret: str, error: BaseException) -> None:
    seen: BaseException | None = error
    while seen is not None:
        assert secret not in str(seen)
        seen = seen.__cause__


def round_trips(backend: PostgresBackend, work: Callable[[], object]) -> int:
    """How often the driver hands over and waits, by its own trace of its only connection."""
    with tempfile.TemporaryFile("w+b") as trace:
        with backend._pool.use() as db:
            db.pgconn.trace(trace.fileno())
        work()
        with backend._pool.use() as db:
            db.pgconn.untrace()
        trace.seek(0)
        sent = [line.split(b"\t")[1:4] for line in trace.read().splitlines()]
    return sum(part[0] == b"F" and part[2] in (b"Sync", b"Query") for part in sent if part[2:])
