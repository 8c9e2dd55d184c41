"""Bigtable, on Google's emulator: it tests our requests, not the behaviour of Bigtable."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest
from google.cloud.bigtable_admin_v2 import BigtableTableAdminClient
from google.cloud.bigtable_admin_v2.services.bigtable_table_admin.transports import (
    BigtableTableAdminGrpcTransport,
)
from google.cloud.bigtable_admin_v2.types import ColumnFamily, Table
from google.cloud.bigtable_v2 import BigtableClient
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcTransport
from google.cloud.bigtable_v2.types import Mutation, ReadRowsResponse
from msgspec.structs import replace

from morag.backend.base import UNIQUE_KIND, LogRow, ObjId
from morag.backend.bigtable.backend import BigtableBackend, open_bigtable
from morag.backend.bigtable.calls import merged
from morag.backend.urls import StoreUrl, open_backend
from morag.errors import (
    BadRequest,
    MoragError,
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
    StoreUrlInvalid,
)
from morag.format.refs import encode_ref
from morag.format.rows import NEVER_REFERENCED
from morag.protobuf import int_field
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    PREVIOUS,
    DurableBackendContract,
    RefLogContract,
    a_custom_row,
    a_row,
    at_once,
    create,
    move,
    read,
)
from tests.stores.databases import new_name
from tests.stores.servers.bigtable import Bigtable, Failure, Interceptor, intercepting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from morag.backend.base import Ref, Row
    from morag.testing.backend_contract import FullBackend

pytestmark = pytest.mark.stores

SERVER = "bigtable"

TIME_MICROS = 1_586_232_861_000
SWAP = "CheckAndMutateRow"


@pytest.fixture
def project() -> str:
    """A new project without tables."""
    return new_name()


@pytest.fixture
def url(server: Bigtable, project: str) -> str:
    return server.url(project)


class TestBigtable(DurableBackendContract, RefLogContract): ...


# Stored cells


class Tables:
    """The tables of a project, read and written without the backend."""

    def __init__(self, server: Bigtable, project: str) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{server.port}")
        self._instance = f"projects/{project}/instances/tests"
        self._data = BigtableClient(transport=BigtableGrpcTransport(channel=self._channel))
        admin = BigtableTableAdminGrpcTransport(channel=self._channel)
        self._admin = BigtableTableAdminClient(transport=admin)

    def cells(self, table: str) -> dict[tuple[bytes, str, bytes, int], bytes]:
        """All cells by key, family, column and time."""
        found, key, family, column = {}, b"", "", b""
        for answer in self._data.read_rows(table_name=f"{self._instance}/tables/{table}"):
            for chunk in answer.chunks:
                key = chunk.row_key or key
                family = family if chunk.family_name is None else chunk.family_name
                column = column if chunk.qualifier is None else chunk.qualifier
                found[key, family, column, chunk.timestamp_micros] = chunk.value
        return found

    def write_ref(self, key: bytes, value: bytes) -> None:
        cell = Mutation.SetCell(
            family_name="r", column_qualifier=b"r", timestamp_micros=TIME_MICROS, value=value
        )
        path = f"{self._instance}/tables/refs"
        self._data.mutate_row(table_name=path, row_key=key, mutations=[Mutation(set_cell=cell)])

    def delete(self, table: str, key: bytes, *columns: bytes) -> None:
        mutations = [
            Mutation(
                delete_from_column=Mutation.DeleteFromColumn(
                    family_name="o", column_qualifier=column
                )
            )
            for column in columns
        ]
        path = f"{self._instance}/tables/{table}"
        self._data.mutate_row(table_name=path, row_key=key, mutations=mutations)

    def make(self, table: str, family: str) -> None:
        wanted = Table(column_families={family: ColumnFamily()})
        self._admin.create_table(parent=self._instance, table_id=table, table=wanted)

    def drop(self, table: str) -> None:
        self._admin.delete_table(name=f"{self._instance}/tables/{table}")

    def names(self) -> list[str]:
        found = self._admin.list_tables(parent=self._instance)
        return sorted(table.name.rpartition("/")[2] for table in found)

    def close(self) -> None:
        self._channel.close()


@pytest.fixture
def tables(server: Bigtable, project: str) -> Iterator[Tables]:
    tables = Tables(server, project)
    yield tables
    tables.close()


def test_refs_and_rows_are_stored_as_nessie_stores_them(
    tables: Tables, backend: FullBackend
) -> None:
    main = replace(MAIN, previous=PREVIOUS)
    create(backend, main)
    key = b"r:" + MAIN.name.encode()
    assert tables.cells("refs") == {(key, "r", b"r", TIME_MICROS): encode_ref(main)}
    unique, custom = a_row(1, UNIQUE_KIND, micros=5), a_custom_row(b"custom", "v1", micros=6)
    backend.insert_rows("r", [unique, custom])
    assert tables.cells("objs") == {
        (b"r:" + id, "o", column, TIME_MICROS): value
        for id, column, value in (
            (unique.id, b"o", unique.data + NEVER_REFERENCED),
            (unique.id, b"t", b"UNIQUE"),
            (unique.id, b"z", b"5"),
            (custom.id, b"o", custom.data + NEVER_REFERENCED),
            (custom.id, b"t", b"catalog-snapshot"),
            (custom.id, b"z", b"6"),
            (custom.id, b"V", b"v1"),
        )
    }


def test_deleted_refs_and_rows_leave_no_cells(tables: Tables, backend: FullBackend) -> None:
    create(backend, MAIN)
    move(backend, MAIN, None)
    custom = a_custom_row(b"custom", "1")
    backend.insert_rows("r", [a_row(1), custom])
    assert backend.swap_row("r", custom, a_custom_row(b"custom", None))
    assert not any(column == b"V" for _, _, column, _ in tables.cells("objs"))
    backend.delete_rows("r", [a_row(1).id, custom.id])
    backend.append_log("r", [LogRow(b"1", b"line")])
    backend.erase("r")
    assert [tables.cells(table) for table in ("refs", "objs", "ref_log")] == [{}, {}, {}]


def test_a_row_with_only_a_time_does_not_exist(tables: Tables, backend: FullBackend) -> None:
    """Nessie creates such a row when it refreshes a deleted one."""
    row = a_row(1)
    backend.insert_rows("r", [row])
    tables.delete("objs", b"r:" + row.id, b"o", b"t")
    assert backend.read_rows("r", [row.id]) == {}
    assert list(backend.scan_rows("r")) == []
    assert backend.insert_rows("r", [row]) == {row.id}
    assert backend.read_rows("r", [row.id]) == {row.id: row}


@pytest.mark.parametrize("new", [MOVED, None])
def test_a_ref_with_unknown_fields_is_swapped(
    tables: Tables, backend: FullBackend, new: Ref | None
) -> None:
    """A later version of Nessie may add a field, which Morag does not write."""
    create(backend, MAIN)
    tables.write_ref(b"r:" + MAIN.name.encode(), encode_ref(MAIN) + int_field(99, 1))
    assert read(backend, MAIN.name) == MAIN
    assert not move(backend, MOVED, MAIN)
    assert move(backend, MAIN, new)
    assert backend.read_refs("r", [MAIN.name]) == ({} if new is None else {MAIN.name: new})


def test_a_swap_that_always_loses_gives_up(
    tables: Tables, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = open_bigtable(StoreUrl.parse(url))
    try:
        create(backend, MAIN)
        change_if, numbers = backend._calls.change_if, count(1)

        def too_late(*args: Any, **changes: Any) -> bool:
            more = int_field(99, next(numbers))
            tables.write_ref(b"r:" + MAIN.name.encode(), encode_ref(MAIN) + more)
            return change_if(*args, **changes)

        monkeypatch.setattr(backend._calls, "change_if", too_late)
        with pytest.raises(StoreBusy, match="keep changing"):
            move(backend, MAIN, MOVED)
        assert read(backend, MAIN.name) == MAIN
    finally:
        backend.close()


@pytest.mark.parametrize(
    "write",
    [
        lambda backend, row: backend.insert_rows("a", [a_row(1), row]),
        lambda backend, row: backend.swap_row("a", row, None),
        lambda backend, row: backend.delete_rows("a", [row.id]),
    ],
    ids=["insert", "swap", "delete"],
)
def test_an_id_that_could_belong_to_another_repository_is_refused(
    backend: FullBackend, write: Callable[[FullBackend, Row], object]
) -> None:
    row = a_custom_row(b"id", "1")
    backend.insert_rows("a:b", [row])
    with pytest.raises(BadRequest, match="b:id"):
        write(backend, replace(row, id=ObjId(b"b:id")))
    assert list(backend.scan_rows("a")) == []
    assert backend.read_rows("a:b", [row.id]) == {row.id: row}


def test_the_largest_row_comes_back(backend: FullBackend) -> None:
    most = BigtableBackend.limits.row_bytes
    largest = a_row("largest", "s", size_bytes=most - 100)
    assert most - 100 < len(largest.data) <= most
    assert backend.insert_rows("r", [largest]) == {largest.id}
    assert backend.read_rows("r", [largest.id]) == {largest.id: largest}


def test_an_answer_may_come_in_pieces() -> None:
    """Unlike the emulator, Bigtable splits large cells, and may restart a row."""
    first = {"row_key": b"a", "family_name": "o", "qualifier": b"o"}
    second = {"row_key": b"b", "family_name": "o", "qualifier": b"o"}
    answers = [
        ReadRowsResponse(
            chunks=[
                {**first, "value": b"12", "value_size": 5},
                {"value": b"345"},
                {"qualifier": b"z", "value": b"7"},
            ]
        ),
        ReadRowsResponse(chunks=[{"reset_row": True}]),
        ReadRowsResponse(
            chunks=[
                {**first, "value": b"1", "value_size": 3},
                {"value": b"23"},
                {"value": b"older"},
                {"qualifier": b"z", "value": b"", "commit_row": True},
                {**second, "value": b"4", "commit_row": True},
            ]
        ),
    ]
    assert list(merged(answers)) == [(b"a", {b"o": b"123", b"z": b""}), (b"b", {b"o": b"4"})]


# Errors and lost answers


@pytest.fixture
def interceptor(server: Bigtable) -> Iterator[Interceptor]:
    with intercepting(server.port) as opened:
        yield opened


@pytest.fixture
def intercepted(project: str, interceptor: Interceptor) -> Iterator[FullBackend]:
    """A backend that connects to the interceptor."""
    address = f"bigtable://{project}/tests?emulator=127.0.0.1:{interceptor.port}"
    opened = cast("FullBackend", open_backend(address))
    create(opened, replace(MAIN, previous=PREVIOUS))
    interceptor.seen.clear()
    yield opened
    opened.close()


FAILURES = {
    grpc.StatusCode.UNAVAILABLE: StoreUnreachable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: StoreThrottled,
    grpc.StatusCode.DEADLINE_EXCEEDED: StoreBusy,
    grpc.StatusCode.ABORTED: StoreBusy,
    grpc.StatusCode.INTERNAL: StoreBusy,
    grpc.StatusCode.PERMISSION_DENIED: StoreCannotWrite,
    grpc.StatusCode.FAILED_PRECONDITION: StoreCannotWrite,
    grpc.StatusCode.NOT_FOUND: RepositoryCorrupt,
}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("code", "error"), FAILURES.items())
def test_a_conditional_call_is_sent_once(
    interceptor: Interceptor,
    intercepted: FullBackend,
    code: grpc.StatusCode,
    error: type[MoragError],
    done: bool,
) -> None:
    main = read(intercepted, MAIN.name)
    interceptor.next_time(SWAP, Failure(code, done))
    with pytest.raises(error) as raised:
        move(intercepted, main, MOVED)
    assert type(raised.value) is error
    assert interceptor.seen.count(SWAP) == 1
    assert read(intercepted, MAIN.name) == (MOVED if done else main)


def test_a_swap_takes_one_call_if_it_expects_what_was_read(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    assert move(intercepted, replace(MAIN, previous=PREVIOUS), MOVED)
    assert interceptor.seen == [SWAP]
    interceptor.seen.clear()
    assert move(intercepted, replace(MOVED, previous=PREVIOUS), MAIN)
    assert interceptor.seen == [SWAP, "ReadRows", SWAP], "previous pointers are not compared"


@pytest.mark.parametrize("call", ["ReadRows", "MutateRows"])
@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED], ids=str
)
def test_a_repeatable_call_is_retried_a_few_times(
    interceptor: Interceptor, intercepted: FullBackend, call: str, code: grpc.StatusCode
) -> None:
    def work() -> None:
        assert read(intercepted, MAIN.name).pointer == MAIN.pointer
        intercepted.append_log("r", [LogRow(b"1", b"line")])

    interceptor.next_time(call, Failure(code), Failure(code, done=True))
    work()
    assert interceptor.seen.count(call) == 3
    interceptor.next_time(call, *([Failure(code)] * 9))
    with pytest.raises(FAILURES[code]):
        work()
    assert interceptor.seen.count(call) == 6


def test_all_rows_are_finished_before_a_failure_is_reported(
    interceptor: Interceptor, intercepted: FullBackend
) -> None:
    rows = [a_row(n, UNIQUE_KIND) for n in range(20)]
    interceptor.next_time(SWAP, Failure(grpc.StatusCode.UNAVAILABLE, done=True))
    with pytest.raises(StoreUnreachable):
        intercepted.insert_rows("r", rows)
    assert interceptor.seen.count(SWAP) == 20
    assert intercepted.insert_rows("r", rows) == frozenset()


def test_no_answer_in_time_is_reported(project: str, interceptor: Interceptor) -> None:
    interceptor.never_answer("GetTable")
    address = (
        f"bigtable://{project}/tests?emulator=127.0.0.1:{interceptor.port}&timeout_seconds=0.2"
    )
    with pytest.raises(StoreBusy, match="in time"):
        open_backend(address)
    assert interceptor.seen == ["GetTable"]


def test_a_bigtable_that_is_down_is_reported_and_found_again(project: str) -> None:
    with Bigtable() as server:
        backend = open_backend(server.url(project))
        try:
            create(backend, MAIN)
            server.kill()
            with pytest.raises(StoreUnreachable):
                read(backend, MAIN.name)
            with pytest.raises(StoreUnreachable):
                move(backend, MAIN, MOVED)
            with pytest.raises(StoreUnreachable):
                open_backend(f"{server.url(project)}&connect_timeout_seconds=1")
            server.start()
            open_backend(server.url(project)).close()  # The emulator has lost its tables.
            end = time.monotonic() + 60
            while True:
                try:
                    assert create(backend, MAIN)
                    break
                except StoreUnreachable:
                    assert time.monotonic() < end, "the backend does not reconnect"
            assert read(backend, MAIN.name) == MAIN
        finally:
            backend.close()


# Opening


def test_tables_may_have_a_prefix(tables: Tables, url: str) -> None:
    open_backend(f"{url}&table_prefix=lake").close()
    assert tables.names() == ["lake_objs", "lake_ref_log", "lake_refs"]


def test_a_table_of_another_shape_is_refused_and_left_alone(tables: Tables, url: str) -> None:
    tables.make("objs", "other")
    with pytest.raises(StoreUrlInvalid, match=r"table objs .* family 'o'"):
        open_backend(url)
    assert tables.names() == ["objs"]


def test_a_reader_makes_no_tables(tables: Tables, url: str) -> None:
    with pytest.raises(StoreUrlInvalid, match="no table refs"):
        open_backend(url, read_only=True)
    assert tables.names() == []


def test_a_reader_needs_no_log(tables: Tables, url: str) -> None:
    open_backend(url).close()
    tables.drop("ref_log")  # Nessie makes none.
    reading = cast("FullBackend", open_backend(url, read_only=True))
    try:
        assert reading.read_log("r", None, 9) == []
    finally:
        reading.close()


def test_an_account_that_cannot_describe_tables_may_use_them(
    project: str, interceptor: Interceptor, url: str
) -> None:
    denied = Failure(grpc.StatusCode.PERMISSION_DENIED)
    address = f"bigtable://{project}/tests?emulator=127.0.0.1:{interceptor.port}"
    interceptor.next_time("GetTable", denied)
    interceptor.next_time("CreateTable", denied)
    with pytest.raises(StoreUrlInvalid, match="no table refs"):
        open_backend(address)
    open_backend(url).close()
    interceptor.next_time("GetTable", denied, denied, denied)
    open_backend(address).close()
    interceptor.next_time("GetTable", denied)
    interceptor.next_time("ReadRows", denied)
    with pytest.raises(StoreUrlInvalid, match="grant"):
        open_backend(address)


def test_an_instance_must_exist(project: str, interceptor: Interceptor) -> None:
    interceptor.next_time("CreateTable", Failure(grpc.StatusCode.NOT_FOUND))
    with pytest.raises(StoreUrlInvalid, match="instance"):
        open_backend(f"bigtable://{project}/tests?emulator=127.0.0.1:{interceptor.port}")


def test_several_servers_may_create_the_tables_at_once(url: str) -> None:
    opened = at_once(open_backend, [url] * 4)
    for backend, ref in zip(opened, (MAIN, MOVED, MOVED, MOVED), strict=True):
        assert create(backend, ref) == (ref is MAIN)
        backend.close()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("bigtable://", "names no project"),
        ("bigtable://project", "no instance"),
        ("bigtable://project/instance/table", "no instance"),
        ("bigtable://p/i?tables=x", "Unknown option 'tables'"),
        ("bigtable://p/i?emulator=127.0.0.1:1&timeout_seconds=soon", "number"),
    ],
)
def test_an_invalid_url_is_refused(address: str, problem: str) -> None:
    with pytest.raises(StoreUrlInvalid, match=problem):
        open_backend(address)


def test_credentials_are_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(StoreUrlInvalid, match="GOOGLE_APPLICATION_CREDENTIALS"):
        open_backend("bigtable://project/instance")
