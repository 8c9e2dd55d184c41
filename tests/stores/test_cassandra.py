"""Cassandra, on a real server: what every backend promises, and what only this one has to.

ScyllaDB speaks the same protocol and gets the same statements, but has not been seen here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from morag.backend.base import UNIQUE_KIND, LogRow
from morag.backend.cassandra.backend import CassandraBackend
from morag.backend.urls import open_backend
from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
    StoreUrlInvalid,
)
from morag.format.rows import NEVER_REFERENCED
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    PREVIOUS,
    DurableBackendContract,
    RefLogContract,
    a_row,
    at_once,
    create,
    move,
    read,
)
from tests.stores.servers.cassandra_interceptor import (
    INVALID,
    OVERLOADED,
    READ_TIMEOUT,
    SERVER_ERROR,
    UNAUTHORIZED,
    UNAVAILABLE,
    Answer,
    Cut,
    Interceptor,
    Silence,
    cas_timeout,
    intercepting,
)
from tests.stores.servers.tls import tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.testing.backend_contract import FullBackend
    from tests.stores.conftest import Running
    from tests.stores.servers.cassandra import Cassandra

pytestmark = pytest.mark.stores

SERVER = "cassandra"

MOVE = "UPDATE tests.refs2"
READ = "SELECT ref_name, pointer"
INSERT = "INSERT INTO tests.objs2"
REFRESH = "UPDATE tests.objs2 SET obj_ref"


@pytest.fixture(scope="session")
def server(running: Running) -> Cassandra:
    server: Cassandra = running[SERVER]
    server.make_keyspace("tests")
    return server


@pytest.fixture
def url(server: Cassandra) -> str:
    """The URL of a keyspace with empty tables. Truncating is faster than creating them."""
    server.empty("tests")
    return server.url("tests")


class TestCassandra(DurableBackendContract, RefLogContract): ...


# Stored rows


def test_the_tables_are_those_of_nessie(server: Cassandra, backend: FullBackend) -> None:
    columns = server.execute(
        "SELECT table_name, column_name, type, kind, position FROM system_schema.columns"
        " WHERE keyspace_name = 'tests'"
    )
    assert {row[1:] for row in columns if row[0] == "refs2"} == {
        ("repo", "text", "partition_key", 0),
        ("ref_name", "text", "partition_key", 1),
        ("pointer", "blob", "regular", -1),
        ("deleted", "boolean", "regular", -1),
        ("created_at", "bigint", "regular", -1),
        ("ext_info", "blob", "regular", -1),
        ("prev_ptr", "blob", "regular", -1),
    }
    assert {row[1:] for row in columns if row[0] == "objs2"} == {
        ("repo", "text", "partition_key", 0),
        ("obj_id", "blob", "partition_key", 1),
        ("obj_type", "text", "regular", -1),
        ("obj_vers", "text", "regular", -1),
        ("obj_value", "blob", "regular", -1),
        ("obj_ref", "bigint", "regular", -1),
    }


def test_refs_and_rows_are_stored_as_nessie_stores_them(
    server: Cassandra, backend: FullBackend
) -> None:
    create(backend, replace(MAIN, created_micros=0))  # Stored as a number, not as null.
    refs = "SELECT pointer, deleted, created_at, ext_info, prev_ptr FROM tests.refs2"
    assert server.execute(refs) == [(MAIN.pointer, False, 0, None, None)]
    row = a_row(1, UNIQUE_KIND, micros=5)
    backend.insert_rows("r", [row])
    rows = "SELECT repo, obj_id, obj_type, obj_vers, obj_value, obj_ref FROM tests.objs2"
    assert server.execute(rows) == [("r", row.id, "u", None, row.data + NEVER_REFERENCED, 5)]


def test_the_largest_row_comes_back(backend: FullBackend) -> None:
    most = CassandraBackend.limits.row_bytes
    largest = a_row("largest", "s", size_bytes=most - 100)
    assert most - 100 < len(largest.data) <= most
    assert backend.insert_rows("r", [largest]) == {largest.id}
    assert backend.insert_rows("r", [largest]) == frozenset()
    assert backend.read_rows("r", [largest.id]) == {largest.id: largest}


def test_a_log_of_years_is_read_across_its_partitions(
    server: Cassandra, backend: FullBackend
) -> None:
    hours = 3600 * 10**9
    lines = [LogRow((n * hours).to_bytes(8, "big") + b"abcd", b"%d" % n) for n in range(300)]
    backend.append_log("r", lines)
    buckets = "SELECT DISTINCT repo, bucket FROM tests.ref_log"
    assert len(server.execute(buckets)) == 301
    assert backend.read_log("r", None, 10**9) == lines[::-1]
    assert backend.read_log("r", lines[200].key, 7) == lines[193:200][::-1]
    backend.erase("r")
    assert server.execute("SELECT * FROM tests.ref_log") == []


# Errors and lost answers


@pytest.fixture
def interceptor(server: Cassandra) -> Iterator[Interceptor]:
    with intercepting(server.port) as opened:
        yield opened


@pytest.fixture
def intercepted(url: str, interceptor: Interceptor) -> Iterator[FullBackend]:
    """A backend that connects to the interceptor."""
    address = f"cassandra://127.0.0.1:{interceptor.port}/tests?timeout_seconds=4"
    opened = cast("FullBackend", open_backend(address))
    create(opened, MAIN)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("reaction", "error"),
    [
        (cas_timeout(done=True), StoreBusy),
        (replace(SERVER_ERROR, done=True), StoreBusy),
        (replace(OVERLOADED, done=True), StoreThrottled),
        (replace(UNAVAILABLE, done=True), StoreUnreachable),
        (Cut(done=True), StoreUnreachable),
        (Silence(), StoreBusy),
    ],
    ids=["timeout", "server error", "overloaded", "unavailable", "cut", "silence"],
)
def test_a_swap_without_an_answer_is_settled_by_the_next_read(
    interceptor: Interceptor,
    intercepted: FullBackend,
    reaction: Answer | Cut | Silence,
    error: type[MoragError],
) -> None:
    interceptor.next_time(MOVE, reaction)
    with pytest.raises(error) as raised:
        move(intercepted, MAIN, MOVED)
    assert type(raised.value) is error
    assert interceptor.times(MOVE) == 1, "a swap must not be sent twice"
    interceptor.seen.clear()
    assert read(intercepted, MAIN.name) == MOVED
    assert read(intercepted, MAIN.name) == MOVED
    reads = [executed.serial for executed in interceptor.seen if READ in executed.text]
    assert reads[-2:] == [True, False], "only the first read after the swap is serial"


@pytest.mark.parametrize(
    ("reaction", "error"),
    [
        (cas_timeout(done=False), StoreBusy),
        (OVERLOADED, StoreThrottled),
        (UNAVAILABLE, StoreUnreachable),
        (Cut(), StoreUnreachable),
        (UNAUTHORIZED, StoreCannotWrite),
    ],
    ids=["timeout", "overloaded", "unavailable", "cut", "unauthorized"],
)
def test_a_swap_that_was_not_done_can_be_retried(
    interceptor: Interceptor,
    intercepted: FullBackend,
    reaction: Answer | Cut,
    error: type[MoragError],
) -> None:
    interceptor.next_time(MOVE, reaction)
    with pytest.raises(error) as raised:
        move(intercepted, MAIN, MOVED)
    assert type(raised.value) is error
    assert read(intercepted, MAIN.name) == MAIN
    assert move(intercepted, MAIN, MOVED)


def test_only_refs_with_an_unknown_outcome_are_read_serially(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    others = [replace(MAIN, name=f"refs/heads/{n}") for n in range(3)]
    for other in others:
        create(intercepted, other)
    interceptor.next_time(MOVE, cas_timeout(done=False))
    with pytest.raises(StoreBusy):
        move(intercepted, MAIN, MOVED)
    interceptor.seen.clear()
    names = [ref.name for ref in (*others, MAIN)]
    assert intercepted.read_refs("other", names) == {}
    assert [executed.serial for executed in interceptor.seen] == [False]
    assert intercepted.read_refs("r", names).keys() == set(names)
    assert sorted(executed.serial for executed in interceptor.seen) == [False, False, True]


@pytest.mark.parametrize("reaction", [OVERLOADED, UNAVAILABLE, Cut(), Cut(done=True)])
def test_a_read_is_retried(
    interceptor: Interceptor, intercepted: FullBackend, reaction: Answer | Cut
) -> None:
    interceptor.next_time(READ, reaction)
    assert read(intercepted, MAIN.name) == MAIN


@pytest.mark.parametrize(
    ("reaction", "error"),
    [(OVERLOADED, StoreThrottled), (UNAVAILABLE, StoreUnreachable), (READ_TIMEOUT, StoreBusy)],
    ids=["overloaded", "unavailable", "timeout"],
)
def test_a_read_is_retried_a_few_times_only(
    interceptor: Interceptor, intercepted: FullBackend, reaction: Answer, error: type[MoragError]
) -> None:
    interceptor.next_time(READ, *([reaction] * 100))
    with pytest.raises(error) as raised:
        read(intercepted, MAIN.name)
    assert type(raised.value) is error
    assert interceptor.times(READ) <= 3


def test_rows_are_sent_once_and_all_are_finished_before_a_failure_is_reported(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    rows = [a_row(n, UNIQUE_KIND) for n in range(20)]
    interceptor.next_time(INSERT, cas_timeout(done=True))
    with pytest.raises(StoreBusy):
        intercepted.insert_rows("r", rows)
    assert interceptor.times(INSERT) == 20
    assert intercepted.insert_rows("r", rows) == frozenset()


def test_a_row_that_is_deleted_while_it_is_refreshed_is_inserted_after_all(
    server: Cassandra, interceptor: Interceptor, intercepted: FullBackend
) -> None:
    row = a_row(1)
    intercepted.insert_rows("r", [row])
    delete = f"DELETE FROM tests.objs2 WHERE repo = 'r' AND obj_id = 0x{row.id.hex()} IF EXISTS"
    interceptor.next_time(REFRESH, None, before=lambda: server.execute(delete))
    assert intercepted.insert_rows("r", [row]) == {row.id}
    assert intercepted.read_rows("r", [row.id]) == {row.id: row}


def test_a_line_of_the_log_may_be_written_twice(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    """A line is written twice if the first answer of a node is lost."""
    line = LogRow(b"12345678", b"line")
    interceptor.next_time("INSERT INTO tests.ref_log", cas_timeout(done=True))
    with pytest.raises(StoreBusy):
        intercepted.append_log("r", [line])
    intercepted.append_log("r", [line])
    assert intercepted.read_log("r", None, 9) == [line]


def test_a_row_above_its_limit_is_refused(backend: FullBackend) -> None:
    with pytest.raises(RequestTooLarge, match="a row of this size"):
        backend.insert_rows("r", [a_row("large", "s", size_bytes=17 << 20)])
    assert list(backend.scan_rows("r")) == []


def test_a_too_large_mutation_is_not_taken_for_damage(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    reaction = "Mutation of 17825792 bytes is too large for the maximum size of 16777216"
    interceptor.next_time(INSERT, replace(INVALID, text=reaction))
    with pytest.raises(RequestTooLarge, match="a row of this size"):
        intercepted.insert_rows("r", [a_row(1)])
    interceptor.next_time(INSERT, INVALID)
    with pytest.raises(RepositoryCorrupt):
        intercepted.insert_rows("r", [a_row(1)])


def test_a_table_that_is_gone_is_reported(server: Cassandra) -> None:
    server.make_keyspace("gone")
    backend = open_backend(server.url("gone"))
    try:
        server.execute("DROP TABLE gone.refs2")
        with pytest.raises(RepositoryCorrupt, match="refs2"):
            read(backend, MAIN.name)
    finally:
        backend.close()


def test_a_database_that_is_down_is_reported_and_found_again(server: Cassandra, url: str) -> None:
    backend = open_backend(url)
    try:
        create(backend, MAIN)
        server.kill()
        with pytest.raises(StoreUnreachable):
            read(backend, MAIN.name)
        with pytest.raises(StoreUnreachable):
            move(backend, MAIN, MOVED)
        with pytest.raises(StoreUnreachable):
            open_backend(url)
        server.start()
        end = time.monotonic() + 60
        while True:
            try:
                backend.read_refs("r", [MAIN.name])
                break
            except StoreUnreachable:
                assert time.monotonic() < end, "it should find the database by itself"
        assert create(backend, replace(MAIN, name="another", previous=PREVIOUS))
    finally:
        backend.close()


# Opening


def test_a_keyspace_must_exist(server: Cassandra) -> None:
    with pytest.raises(StoreUrlInvalid, match="CREATE KEYSPACE nowhere"):
        open_backend(server.url("nowhere"))


def test_a_table_of_another_shape_is_refused_and_left_alone(server: Cassandra) -> None:
    server.make_keyspace("shapes")
    for name, columns, problem in (
        (
            "refs2",
            "repo text, ref_name text, PRIMARY KEY ((repo, ref_name))",
            "no column 'pointer'",
        ),
        ("objs2", "repo text, obj_id blob, PRIMARY KEY (repo, obj_id)", "key"),
        (
            "ref_log",
            "repo text, bucket text, log_key blob, log_value blob,"
            " PRIMARY KEY ((repo, bucket), log_key)",
            "'bucket' is text, not blob",
        ),
    ):
        server.execute(f"CREATE TABLE shapes.{name} ({columns})")
        with pytest.raises(StoreUrlInvalid, match=problem):
            open_backend(server.url("shapes"))
        server.execute(f"DROP TABLE shapes.{name}")
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shapes'"
    assert server.execute(tables) == []


def test_several_servers_may_create_the_tables_at_once(server: Cassandra) -> None:
    server.make_keyspace("race")
    opened = at_once(open_backend, [server.url("race")] * 4)
    for backend, ref in zip(opened, (MAIN, MOVED, MOVED, MOVED), strict=True):
        assert create(backend, ref) == (ref is MAIN)
        backend.close()


def test_a_reader_makes_no_tables(server: Cassandra) -> None:
    server.make_keyspace("empty")
    with pytest.raises(StoreUrlInvalid, match="no table objs2"):
        open_backend(server.url("empty"), read_only=True)
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'empty'"
    assert server.execute(tables) == []


def test_a_reader_needs_no_log(server: Cassandra) -> None:
    server.make_keyspace("foreign")
    open_backend(server.url("foreign")).close()
    server.execute("DROP TABLE foreign.ref_log")  # Nessie makes none.
    reading = cast("FullBackend", open_backend(server.url("foreign"), read_only=True))
    try:
        assert reading.read_log("r", None, 9) == []
    finally:
        reading.close()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("cassandra://", "names no host"),
        ("cassandra://127.0.0.1", "no keyspace"),
        ("cassandra:///tests", "names no host"),
        ("cassandra://127.0.0.1/a/b", "no keyspace"),
        ("cassandra://127.0.0.1:port/tests", "no number"),
        ("cassandra://::1/tests", "no number"),
        ("cassandra://no.such.host.invalid/tests", "No host"),
        ("cassandra://127.0.0.1/tests?consistency=ONE", "Unknown option 'consistency'"),
        ("cassandra://127.0.0.1/tests?timeout_seconds=soon", "number"),
        ("cassandra://127.0.0.1/tests?connect_timeout_seconds=-1", "number"),
        ("cassandra://127.0.0.1/tests?tls_ca=/nowhere", "certificates"),
    ],
)
def test_an_invalid_url_is_refused(address: str, problem: str) -> None:
    with pytest.raises(StoreUrlInvalid, match=problem):
        open_backend(address)


def test_a_missing_data_centre_is_reported(server: Cassandra) -> None:
    with pytest.raises(StoreUrlInvalid, match=r"no data centre.*: datacenter1$"):
        open_backend(f"{server.url('tests')}?dc=nowhere")
    open_backend(f"{server.url('tests')}?dc=datacenter1").close()


def test_a_wrong_password_is_reported_and_not_shown(
    server: Cassandra, interceptor: Interceptor
) -> None:
    interceptor.refuses_passwords = True
    with pytest.raises(StoreUrlInvalid, match="password") as raised:
        open_backend(f"cassandra://ann:secret@127.0.0.1:{interceptor.port}/tests")
    with pytest.raises(StoreUrlInvalid, match="password"):
        open_backend(f"cassandra://127.0.0.1:{interceptor.port}/tests")
    assert "secret" not in str(raised.value)


def test_a_user_without_the_right_to_make_tables_is_refused(
    server: Cassandra, interceptor: Interceptor
) -> None:
    server.make_keyspace("denied")
    interceptor.next_time("CREATE TABLE", UNAUTHORIZED)
    with pytest.raises(StoreUrlInvalid, match="grant CREATE"):
        open_backend(f"cassandra://127.0.0.1:{interceptor.port}/denied")


def test_the_second_host_is_used_if_the_first_is_down(server: Cassandra) -> None:
    hosts = f"127.0.0.1:{server.port},127.0.0.2:{server.port}"
    for each in (hosts, ",".join(reversed(hosts.split(",")))):
        open_backend(f"cassandra://{each}/tests").close()


def test_tls_verifies_the_certificate(server: Cassandra, tmp_path: Path) -> None:
    with tls(server.port, tmp_path) as (port, certificate):
        address = f"cassandra://127.0.0.1:{port}/tests"
        open_backend(f"{address}?tls_ca={certificate}").close()
        for untrusted in ("tls=on", "tls=off"):
            with pytest.raises(StoreUnreachable):
                open_backend(f"{address}?{untrusted}&connect_timeout_seconds=2")
