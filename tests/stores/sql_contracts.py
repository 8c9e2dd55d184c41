"""Contracts of SQL databases behind a network, besides that of backends."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import pytest
from msgspec.structs import replace

from morag.backend.base import Ref, RefSwap, Slice
from morag.backend.urls import open_backend
from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreReadOnly,
    StoreUnreachable,
    StoreUrlInvalid,
)
from morag.protobuf import bytes_field, int_field
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    PREVIOUS,
    AppliesWithLogContract,
    DurableBackendContract,
    FullBackend,
    a_custom_row,
    a_row,
    an_id,
    at_once,
    create,
    line,
    move,
    read,
)
from tests.stores.proxy import Faults, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

TABLES = ("refs2", "objs2", "ref_log")


class SqlServer(Protocol):
    port: int

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def crash(self) -> None: ...

    def url(self, database: str, user: str = ..., port: int | None = None) -> str: ...

    def execute(self, database: str, *statements: str) -> Sequence[tuple[Any, ...]]: ...

    def refuse(self, database: str, table: str, code: Any, text: str, times: int) -> None:
        """Fail the first insertions into the table with the code and the text."""
        ...

    def attempts(self, database: str) -> int:
        """The number of insertions since `refuse`."""
        ...

    def locked(self, database: str, table: str) -> AbstractContextManager[None]:
        """Block reads and writes of the table in the `with` block."""
        ...

    def waiting(self, database: str) -> list[int]:
        """The connections that wait for a lock."""
        ...

    def cut(self, connection: int) -> None: ...


class OnSqlServer(DurableBackendContract, AppliesWithLogContract):
    """Needs the fixtures `server`, `database` and `url`."""


class TablesContract:
    """Needs the SQL that changes the type of a column in `objs2`, and the one that drops a key."""

    retype: ClassVar[str]
    drop_key: ClassVar[str]

    def test_records_are_nessies(self, server: SqlServer, database: str, url: str) -> None:
        row, custom = a_row(1, micros=1000), a_custom_row(b"custom", "v-1", micros=2000)
        full = Ref("full", an_id(2), True, 77, an_id(3), PREVIOUS[:2])
        with opened(url) as backend:
            backend.insert_rows("", [row, custom])
            for ref in (Ref("plain", an_id(1)), full):
                backend.swap_ref("", RefSwap(ref.name, None, ref))
        messages = [
            bytes_field(1, entry.pointer) + int_field(2, entry.until_micros)
            for entry in PREVIOUS[:2]
        ]
        previous = b"".join(bytes([len(message)]) + message for message in messages)
        refs = server.execute(database, "SELECT * FROM refs2 ORDER BY ref_name")
        assert [(*record[:-1], record[-1] in (True, b"\1")) for record in refs] == [
            ("", "full", an_id(2), an_id(3), previous, 77, True),
            ("", "plain", an_id(1), None, None, None, False),
        ]
        assert list(server.execute(database, "SELECT * FROM objs2 ORDER BY obj_ref")) == [
            ("", row.id, "v", None, row.data + b"\x58\x00", 1000),
            ("", b"custom", "c-s", "v-1", custom.data + b"\x58\x00", 2000),
        ]

    def test_nulls_can_be_read_where_nessie_allows_them(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            backend.insert_rows("", [a_row(1)])
            server.execute(database, "UPDATE objs2 SET obj_ref = NULL")
            assert backend.read_rows("", [an_id(1)]) == {an_id(1): a_row(1, micros=0)}

    def test_a_ref_without_a_pointer_is_damaged(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.execute(database, "UPDATE refs2 SET pointer = NULL")
            with pytest.raises(RepositoryCorrupt, match=MAIN.name):
                backend.read_refs("r", [MAIN.name])

    def test_servers_that_start_together_on_a_new_database_all_open_it(self, url: str) -> None:
        def start(name: str) -> None:
            with opened(url) as backend:
                assert create(backend, Ref(name, an_id(name)))

        at_once(start, [f"{number}" for number in range(6)])

    @pytest.mark.parametrize("column", ["refs2.prev_ptr", "objs2.obj_ref", "ref_log.log_value"])
    def test_a_table_without_a_column_is_refused_and_left_alone(
        self, column: str, server: SqlServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        table, name = column.split(".")
        server.execute(database, f"ALTER TABLE {table} DROP COLUMN {name}")
        before = columns(server, database)
        with pytest.raises(StoreUrlInvalid, match=f"'{table}'.* no column '{name}'"):
            open_backend(url)
        assert columns(server, database) == before

    def test_a_column_of_another_type_is_refused(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        server.execute(database, f"ALTER TABLE objs2 {self.retype}")
        with pytest.raises(StoreUrlInvalid, match=r"'objs2'.*'obj_type' is "):
            open_backend(url)

    def test_another_primary_key_is_refused(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        server.execute(database, f"ALTER TABLE ref_log {self.drop_key}")
        server.execute(database, "ALTER TABLE ref_log ADD PRIMARY KEY (log_key, repo)")
        with pytest.raises(StoreUrlInvalid, match=r"'ref_log'.*primary key is not \(repo, log_key"):
            open_backend(url)

    def test_additional_columns_and_tables_are_accepted(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        server.execute(database, "CREATE TABLE letters (a INT)")
        open_backend(url).close()
        for table in TABLES:
            server.execute(database, f"ALTER TABLE {table} ADD COLUMN further INT")
        with opened(url) as backend:
            assert backend.apply("r", [a_row(1)], RefSwap(MAIN.name, None, MAIN), [line(1)]).swapped

    def test_a_reader_makes_no_tables(self, server: SqlServer, database: str, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match="no catalog"):
            open_backend(url, read_only=True)
        assert columns(server, database) == []
        with opened(url) as backend:
            create(backend, MAIN)
        # Nessie has no ref-log.
        server.execute(database, "DROP TABLE ref_log")
        before = columns(server, database)
        backend = cast("FullBackend", open_backend(url, read_only=True))
        assert read(backend, MAIN.name) == MAIN
        assert backend.read_log("r", None, 9) == []
        with pytest.raises(StoreReadOnly):
            create(backend, replace(MAIN, name="other"))
        backend.close()
        assert columns(server, database) == before

    def test_nessies_tables_get_a_ref_log_beside_them(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
        server.execute(database, "DROP TABLE ref_log")
        with opened(url) as backend:
            backend.append_log("r", [line(1)])
            assert read(backend, MAIN.name) == MAIN


class NetworkContract:
    """Restarts, cuts and time-outs of a real server."""

    def test_a_database_that_is_down_is_reported_and_found_again(
        self, server: SqlServer, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.crash()
            try:
                for work in (
                    lambda: backend.read_refs("r", [MAIN.name]),
                    lambda: move(backend, MAIN, MOVED),
                    lambda: backend.insert_rows("r", [a_row(1)]),
                    lambda: backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED)),
                    lambda: list(backend.scan_rows("r")),
                    lambda: open_backend(url),
                ):
                    with pytest.raises(StoreUnreachable):
                        work()
            finally:
                server.start()
            assert read(backend, MAIN.name) == MAIN
            assert move(backend, MAIN, MOVED)

    def test_writers_notice_a_restart_before_they_write(self, server: SqlServer, url: str) -> None:
        with opened(url) as backend:
            # Open several connections, all of which the restart breaks.
            at_once(lambda n: create(backend, Ref(f"{n}", an_id(n))), range(4))
            server.stop()
            server.start()
            for number in range(4):
                assert move(backend, Ref(f"{number}", an_id(number)), None)

    def test_a_read_is_repeated_if_its_connection_broke(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend, ThreadPoolExecutor(1) as pool:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                reading = pool.submit(read, backend, MAIN.name)
                cut_waiting_connections(server, database)
            assert reading.result(timeout=60) == MAIN

    def test_a_write_is_not_repeated_if_its_connection_broke(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend, ThreadPoolExecutor(1) as pool:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                swap = RefSwap(MAIN.name, MAIN, MOVED)
                writing = pool.submit(backend.apply, "r", [a_row(1)], swap)
                cut_waiting_connections(server, database)
                with pytest.raises(StoreUnreachable, match="broke"):
                    writing.result(timeout=60)
            assert read(backend, MAIN.name) == MAIN
            assert list(backend.scan_rows("r")) == []
            assert backend.apply("r", [a_row(1)], swap).swapped

    def test_waits_are_bounded(self, server: SqlServer, database: str, url: str) -> None:
        with opened(f"{url}?timeout_seconds=0.5") as backend:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                with pytest.raises(StoreBusy, match="too long"):
                    read(backend, MAIN.name)
                with pytest.raises(StoreBusy, match="too long"):
                    move(backend, MAIN, MOVED)
            assert read(backend, MAIN.name) in (MAIN, MOVED)

    def test_a_timed_out_statement_is_cancelled(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(f"{url}?timeout_seconds=0.5") as backend:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                with pytest.raises(StoreBusy):
                    move(backend, MAIN, MOVED)
                while server.waiting(database):
                    time.sleep(0.05)
            assert read(backend, MAIN.name) == MAIN

    def test_a_late_reply_does_not_undo_the_write(self, server: SqlServer, database: str) -> None:
        with Proxy(("127.0.0.1", server.port)) as proxy:
            url = server.url(database, port=proxy.address[1])
            with opened(f"{url}?timeout_seconds=0.5") as backend:
                create(backend, MAIN)
                proxy.faults = Faults(late=1.0, seconds=30)
                with pytest.raises(StoreBusy, match="too long"):
                    move(backend, MAIN, MOVED)
                proxy.faults = Faults()
                assert read(backend, MAIN.name) == MOVED

    def test_a_lost_reply_does_not_undo_the_write(self, server: SqlServer, database: str) -> None:
        with (
            Proxy(("127.0.0.1", server.port)) as proxy,
            opened(server.url(database, port=proxy.address[1])) as backend,
        ):
            create(backend, MAIN)
            proxy.faults = Faults(after=1.0)
            with pytest.raises(StoreUnreachable, match="broke"):
                move(backend, MAIN, MOVED)
            proxy.faults = Faults()
            assert read(backend, MAIN.name) == MOVED

    def test_waiting_for_a_connection_is_bounded(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with (
            opened(f"{url}?pool_size=1&timeout_seconds=1") as backend,
            ThreadPoolExecutor(4) as pool,
        ):
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                waiting = [pool.submit(read, backend, MAIN.name) for _ in range(4)]
                failures = [each.exception(timeout=60) for each in waiting]
            assert all(isinstance(failure, StoreBusy) for failure in failures)
            assert any("pool_size" in str(failure) for failure in failures)
            assert read(backend, MAIN.name) == MAIN

    def test_few_connections_serve_many_threads(self, url: str) -> None:
        with opened(f"{url}?pool_size=2") as backend:
            at_once(lambda n: backend.insert_rows("r", [a_row(n)]), range(12))
            assert len(list(backend.scan_rows("r"))) == 12

    def test_a_closed_store_refuses_calls(self, url: str) -> None:
        backend = open_backend(url)
        backend.close()
        with pytest.raises(ServiceUnavailable, match="closed"):
            backend.read_refs("r", ["main"])

    def test_many_rows_are_found_in_parts_of_any_size(self, url: str) -> None:
        with opened(url) as backend:
            backend.insert_rows("r", [a_row(n, "vc"[n % 7 == 0]) for n in range(4000)])
            for count in (1, 3):
                for kinds in (frozenset[str](), frozenset("c")):
                    parts = [backend.scan_rows("r", kinds, Slice(n, count)) for n in range(count)]
                    found = [row.id for part in parts for row in part]
                    assert len(found) == len(set(found)) == (572 if kinds else 4000)


class UrlsContract:
    """URLs that cannot be opened. Needs the pattern of the error for a missing database."""

    missing_database: ClassVar[str]

    def test_a_database_that_does_not_exist_is_reported(self, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match=f"{self.missing_database}.*which must exist"):
            open_backend(f"{url}x")

    def test_a_port_without_a_server_is_unreachable(self, server: SqlServer) -> None:
        with pytest.raises(StoreUnreachable, match="accepts no connections"):
            open_backend(server.url("x", port=1))


class MeaningsContract:
    """Meanings of the database's errors. Needs the code of a rolled-back transaction."""

    restart_code: ClassVar[object]

    def test_a_rolled_back_write_is_repeated_a_few_times_only(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", self.restart_code, "rolled back", times=1000)
            with pytest.raises(StoreBusy, match="rolled back"):
                backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
            assert server.attempts(database) == 6
            assert read(backend, MAIN.name) == MAIN

    def test_a_dropped_table_is_damage(self, server: SqlServer, database: str, url: str) -> None:
        with opened(url) as backend:
            server.execute(database, "DROP TABLE objs2")
            with pytest.raises(RepositoryCorrupt, match="objs2"):
                backend.insert_rows("r", [a_row(1)])


def check_meaning(
    server: SqlServer, database: str, url: str, code: object, meaning: type[MoragError]
) -> None:
    """A write that fails with the code changes nothing, is not repeated, and has the meaning."""
    with opened(url) as backend:
        create(backend, MAIN)
        server.refuse(database, "objs2", code, "as injected", times=1)
        with pytest.raises(MoragError, match="as injected") as refusal:
            backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
        assert type(refusal.value).__mro__[:2].count(meaning) == 1
        assert read(backend, MAIN.name) == MAIN
        assert server.attempts(database) == 1, "the write was repeated"


def assert_hidden(secret: str, error: BaseException) -> None:
    """Neither the error nor its causes show the secret."""
    seen: BaseException | None = error
    while seen is not None:
        assert secret not in str(seen)
        seen = seen.__cause__


@contextmanager
def opened(url: str) -> Iterator[FullBackend]:
    with closing(cast("FullBackend", open_backend(url))) as backend:
        yield backend


def cut_waiting_connections(server: SqlServer, database: str) -> None:
    while not (waiting := server.waiting(database)):
        time.sleep(0.01)
    for connection in waiting:
        server.cut(connection)


def columns(server: SqlServer, database: str) -> list[tuple[Any, ...]]:
    """All tables and columns of the database."""
    schema = "database()" if "maria" in server.url(database) else "current_schema()"
    return list(
        server.execute(
            database,
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            f" WHERE table_schema = {schema} ORDER BY 1, 2",
        )
    )
