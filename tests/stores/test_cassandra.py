"""Cassandra, on a real server: what every backend promises, and what only this one has to.

ScyllaDB speaks the same protocol and gets the same statements, but has not been seen here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from morag.backend.base import UNIQUE_KIND, LogRow
from morag.backend.cassandra import CassandraBackend
from morag.backend.protos import NEVER_REFERENCED
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
from tests.stores.servers.cassandra_door import (
    INVALID,
    OVERLOADED,
    READ_TIMEOUT,
    SERVER_ERROR,
    UNAUTHORIZED,
    UNAVAILABLE,
    Answer,
    Cut,
    Door,
    Silence,
    cas_timeout,
    door,
)
from tests.stores.servers.tls import tls

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from morag.testing.backend_contract import FullBackend
    from tests.stores.servers.cassandra import Cassandra

pytestmark = pytest.mark.stores

MOVE = "UPDATE tests.refs2"
READ = "SELECT ref_name, pointer"
INSERT = "INSERT INTO tests.objs2"
REFRESH = "UPDATE tests.objs2 SET obj_ref"


@pytest.fixture
def url(cassandra: Cassandra) -> str:
    """Of a keyspace with empty tables. To empty them is faster than to make them."""
    cassandra.empty("tests")
    return cassandra.url("tests")


class TestCassandra(DurableBackendContract, RefLogContract): ...


# What lies in its tables


def test_the_tables_are_those_of_the_original(cassandra: Cassandra, backend: FullBackend) -> None:
    columns = cassandra.execute(
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


def test_refs_and_rows_are_stored_as_the_original_stores_them(
    cassandra: Cassandra, backend: FullBackend
) -> None:
    create(backend, replace(MAIN, created_micros=0))  # Which is a number here, and no null.
    refs = "SELECT pointer, deleted, created_at, ext_info, prev_ptr FROM tests.refs2"
    assert cassandra.execute(refs) == [(MAIN.pointer, False, 0, None, None)]
    row = a_row(1, UNIQUE_KIND, micros=5)
    backend.insert_rows("r", [row])
    rows = "SELECT repo, obj_id, obj_type, obj_vers, obj_value, obj_ref FROM tests.objs2"
    assert cassandra.execute(rows) == [("r", row.id, "u", None, row.data + NEVER_REFERENCED, 5)]


def test_the_largest_row_comes_back(backend: FullBackend) -> None:
    most = CassandraBackend.limits.row_bytes
    largest = a_row("largest", "s", size_bytes=most - 100)
    assert most - 100 < len(largest.data) <= most
    assert backend.insert_rows("r", [largest]) == {largest.id}
    assert backend.insert_rows("r", [largest]) == frozenset()
    assert backend.read_rows("r", [largest.id]) == {largest.id: largest}


def test_a_log_of_years_is_read_across_its_partitions(
    cassandra: Cassandra, backend: FullBackend
) -> None:
    hours = 3600 * 10**9
    lines = [LogRow((n * hours).to_bytes(8, "big") + b"abcd", b"%d" % n) for n in range(300)]
    backend.append_log("r", lines)
    buckets = "SELECT DISTINCT repo, bucket FROM tests.ref_log"
    assert len(cassandra.execute(buckets)) == 301
    assert backend.read_log("r", None, 10**9) == lines[::-1]
    assert backend.read_log("r", lines[200].key, 7) == lines[193:200][::-1]
    backend.erase("r")
    assert cassandra.execute("SELECT * FROM tests.ref_log") == []


# Answers that are none, and answers that get lost


@pytest.fixture
def before(cassandra: Cassandra) -> Iterator[Door]:
    with door(cassandra.port) as opened:
        yield opened


@pytest.fixture
def through(url: str, before: Door) -> Iterator[FullBackend]:
    """A backend that goes through the door."""
    address = f"cassandra://127.0.0.1:{before.port}/tests?timeout_seconds=4"
    opened = cast("FullBackend", open_backend(address))
    create(opened, MAIN)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("said", "error"),
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
    before: Door, through: FullBackend, said: Answer | Cut | Silence, error: type[MoragError]
) -> None:
    before.next_time(MOVE, said)
    with pytest.raises(error) as raised:
        move(through, MAIN, MOVED)
    assert type(raised.value) is error
    assert before.times(MOVE) == 1, "a swap must not be sent twice"
    before.seen.clear()
    assert read(through, MAIN.name) == MOVED
    assert read(through, MAIN.name) == MOVED
    reads = [executed.serial for executed in before.seen if READ in executed.text]
    assert reads[-2:] == [True, False], "it is settled once, and then it is settled"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (cas_timeout(done=False), StoreBusy),
        (OVERLOADED, StoreThrottled),
        (UNAVAILABLE, StoreUnreachable),
        (Cut(), StoreUnreachable),
        (UNAUTHORIZED, StoreCannotWrite),
    ],
    ids=["timeout", "overloaded", "unavailable", "cut", "unauthorized"],
)
def test_a_swap_that_was_not_done_can_be_tried_again(
    before: Door, through: FullBackend, said: Answer | Cut, error: type[MoragError]
) -> None:
    before.next_time(MOVE, said)
    with pytest.raises(error) as raised:
        move(through, MAIN, MOVED)
    assert type(raised.value) is error
    assert read(through, MAIN.name) == MAIN
    assert move(through, MAIN, MOVED)


def test_only_refs_in_doubt_are_read_the_expensive_way(before: Door, through: FullBackend) -> None:
    others = [replace(MAIN, name=f"refs/heads/{n}") for n in range(3)]
    for other in others:
        create(through, other)
    before.next_time(MOVE, cas_timeout(done=False))
    with pytest.raises(StoreBusy):
        move(through, MAIN, MOVED)
    before.seen.clear()
    names = [ref.name for ref in (*others, MAIN)]
    assert through.read_refs("other", names) == {}
    assert [executed.serial for executed in before.seen] == [False]
    assert through.read_refs("r", names).keys() == set(names)
    assert sorted(executed.serial for executed in before.seen) == [False, False, True]


@pytest.mark.parametrize("said", [OVERLOADED, UNAVAILABLE, Cut(), Cut(done=True)])
def test_a_read_is_tried_again(before: Door, through: FullBackend, said: Answer | Cut) -> None:
    before.next_time(READ, said)
    assert read(through, MAIN.name) == MAIN


@pytest.mark.parametrize(
    ("said", "error"),
    [(OVERLOADED, StoreThrottled), (UNAVAILABLE, StoreUnreachable), (READ_TIMEOUT, StoreBusy)],
    ids=["overloaded", "unavailable", "timeout"],
)
def test_a_read_is_not_tried_for_ever(
    before: Door, through: FullBackend, said: Answer, error: type[MoragError]
) -> None:
    before.next_time(READ, *([said] * 100))
    with pytest.raises(error) as raised:
        read(through, MAIN.name)
    assert type(raised.value) is error
    assert before.times(READ) <= 3


def test_rows_are_sent_once_and_the_others_end_before_a_failure_is_told(
    before: Door, through: FullBackend
) -> None:
    rows = [a_row(n, UNIQUE_KIND) for n in range(20)]
    before.next_time(INSERT, cas_timeout(done=True))
    with pytest.raises(StoreBusy):
        through.insert_rows("r", rows)
    assert before.times(INSERT) == 20
    assert through.insert_rows("r", rows) == frozenset()


def test_a_row_that_is_deleted_while_it_is_refreshed_is_inserted_after_all(
    cassandra: Cassandra, before: Door, through: FullBackend
) -> None:
    row = a_row(1)
    through.insert_rows("r", [row])
    delete = f"DELETE FROM tests.objs2 WHERE repo = 'r' AND obj_id = 0x{row.id.hex()} IF EXISTS"
    before.next_time(REFRESH, None, before=lambda: cassandra.execute(delete))
    assert through.insert_rows("r", [row]) == {row.id}
    assert through.read_rows("r", [row.id]) == {row.id: row}


def test_a_line_of_the_log_may_be_written_twice(before: Door, through: FullBackend) -> None:
    """So it is, where the first answer got lost on the way from one of several nodes."""
    line = LogRow(b"12345678", b"line")
    before.next_time("INSERT INTO tests.ref_log", cas_timeout(done=True))
    with pytest.raises(StoreBusy):
        through.append_log("r", [line])
    through.append_log("r", [line])
    assert through.read_log("r", None, 9) == [line]


def test_a_row_above_its_limit_is_refused(backend: FullBackend) -> None:
    with pytest.raises(RequestTooLarge, match="so large a row"):
        backend.insert_rows("r", [a_row("large", "s", size_bytes=17 << 20)])
    assert list(backend.scan_rows("r")) == []


def test_what_would_become_too_large_is_not_taken_for_damage(
    before: Door, through: FullBackend
) -> None:
    said = "Mutation of 17825792 bytes is too large for the maximum size of 16777216"
    before.next_time(INSERT, replace(INVALID, text=said))
    with pytest.raises(RequestTooLarge, match="so large a row"):
        through.insert_rows("r", [a_row(1)])
    before.next_time(INSERT, INVALID)
    with pytest.raises(RepositoryCorrupt):
        through.insert_rows("r", [a_row(1)])


def test_a_table_that_is_gone_is_told(cassandra: Cassandra) -> None:
    cassandra.make_keyspace("gone")
    backend = open_backend(cassandra.url("gone"))
    try:
        cassandra.execute("DROP TABLE gone.refs2")
        with pytest.raises(RepositoryCorrupt, match="refs2"):
            read(backend, MAIN.name)
    finally:
        backend.close()


def test_a_database_that_is_down_is_told_and_found_again(cassandra: Cassandra, url: str) -> None:
    backend = open_backend(url)
    try:
        create(backend, MAIN)
        cassandra.kill()
        with pytest.raises(StoreUnreachable):
            read(backend, MAIN.name)
        with pytest.raises(StoreUnreachable):
            move(backend, MAIN, MOVED)
        with pytest.raises(StoreUnreachable):
            open_backend(url)
        cassandra.start()
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


def test_a_keyspace_must_be_there(cassandra: Cassandra) -> None:
    with pytest.raises(StoreUrlInvalid, match="CREATE KEYSPACE nowhere"):
        open_backend(cassandra.url("nowhere"))


def test_a_table_of_another_shape_is_refused_and_left_alone(cassandra: Cassandra) -> None:
    cassandra.make_keyspace("shapes")
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
        cassandra.execute(f"CREATE TABLE shapes.{name} ({columns})")
        with pytest.raises(StoreUrlInvalid, match=problem):
            open_backend(cassandra.url("shapes"))
        cassandra.execute(f"DROP TABLE shapes.{name}")
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'shapes'"
    assert cassandra.execute(tables) == []


def test_several_servers_may_be_the_first(cassandra: Cassandra) -> None:
    cassandra.make_keyspace("race")
    opened = at_once(open_backend, [cassandra.url("race")] * 4)
    for backend, ref in zip(opened, (MAIN, MOVED, MOVED, MOVED), strict=True):
        assert create(backend, ref) == (ref is MAIN)
        backend.close()


def test_who_only_reads_makes_no_tables(cassandra: Cassandra) -> None:
    cassandra.make_keyspace("empty")
    with pytest.raises(StoreUrlInvalid, match="no table objs2"):
        open_backend(cassandra.url("empty"), read_only=True)
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'empty'"
    assert cassandra.execute(tables) == []


def test_who_only_reads_needs_no_log(cassandra: Cassandra) -> None:
    cassandra.make_keyspace("foreign")
    open_backend(cassandra.url("foreign")).close()
    cassandra.execute("DROP TABLE foreign.ref_log")  # The original makes none.
    reading = cast("FullBackend", open_backend(cassandra.url("foreign"), read_only=True))
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
def test_a_url_that_cannot_be_right_is_refused(address: str, problem: str) -> None:
    with pytest.raises(StoreUrlInvalid, match=problem):
        open_backend(address)


def test_a_data_centre_that_is_not_there_is_told(cassandra: Cassandra) -> None:
    with pytest.raises(StoreUrlInvalid, match=r"no data centre.*: datacenter1$"):
        open_backend(f"{cassandra.url('tests')}?dc=nowhere")
    open_backend(f"{cassandra.url('tests')}?dc=datacenter1").close()


def test_a_wrong_password_is_told_and_not_shown(cassandra: Cassandra, before: Door) -> None:
    before.refuses_passwords = True
    with pytest.raises(StoreUrlInvalid, match="password") as raised:
        open_backend(f"cassandra://ann:secret@127.0.0.1:{before.port}/tests")
    with pytest.raises(StoreUrlInvalid, match="password"):
        open_backend(f"cassandra://127.0.0.1:{before.port}/tests")
    assert "secret" not in str(raised.value)


def test_a_user_who_may_not_make_tables_is_told(cassandra: Cassandra, before: Door) -> None:
    cassandra.make_keyspace("denied")
    before.next_time("CREATE TABLE", UNAUTHORIZED)
    with pytest.raises(StoreUrlInvalid, match="grant CREATE"):
        open_backend(f"cassandra://127.0.0.1:{before.port}/denied")


def test_the_second_host_is_asked_if_the_first_is_down(cassandra: Cassandra) -> None:
    hosts = f"127.0.0.1:{cassandra.port},127.0.0.2:{cassandra.port}"
    for each in (hosts, ",".join(reversed(hosts.split(",")))):
        open_backend(f"cassandra://{each}/tests").close()


def test_tls_is_spoken_with_those_who_can_be_trusted(cassandra: Cassandra, tmp_path: Path) -> None:
    with tls(cassandra.port, tmp_path) as (port, certificate):
        address = f"cassandra://127.0.0.1:{port}/tests"
        open_backend(f"{address}?tls_ca={certificate}").close()
        for untrusted in ("tls=on", "tls=off"):
            with pytest.raises(StoreUnreachable):
                open_backend(f"{address}?{untrusted}&connect_timeout_seconds=2")
