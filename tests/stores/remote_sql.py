"""What both SQL databases behind a network promise besides the backend contract."""

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
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreReadOnly,
    StoreUnreachable,
    StoreUrlInvalid,
)
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
from morag.wire import bytes_field, int_field
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

    def locked(self, database: str, table: str) -> AbstractContextManager[None]:
        """Nobody can read or write the table meanwhile."""
        ...

    def waiting(self, database: str) -> list[int]:
        """Which connections wait for a lock."""
        ...

    def cut(self, connection: int) -> None: ...


class OnSqlServer(DurableBackendContract, AppliesWithLogContract):
    """Needs the fixtures `server`, `database` and `url`."""


class TablesContract:
    """Needs, besides, how to change the type of a column in `objs2`, and how to drop a key."""

    retype: ClassVar[str]
    drop_key: ClassVar[str]

    def test_records_are_the_originals(self, server: SqlServer, database: str, url: str) -> None:
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

    def test_nulls_can_be_read_where_the_original_allows_them(
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

    def test_those_who_start_at_once_on_a_new_database_all_get_it(self, url: str) -> None:
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
        before = described(server, database)
        with pytest.raises(StoreUrlInvalid, match=f"'{table}'.* no column '{name}'"):
            open_backend(url)
        assert described(server, database) == before

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

    def test_further_columns_and_tables_do_no_harm(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        server.execute(database, "CREATE TABLE letters (a INT)")
        open_backend(url).close()
        for table in TABLES:
            server.execute(database, f"ALTER TABLE {table} ADD COLUMN further INT")
        with opened(url) as backend:
            assert backend.apply("r", [a_row(1)], RefSwap(MAIN.name, None, MAIN), [line(1)]).swapped

    def test_who_only_reads_makes_no_tables(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with pytest.raises(StoreUrlInvalid, match="no catalog"):
            open_backend(url, read_only=True)
        assert described(server, database) == []
        with opened(url) as backend:
            create(backend, MAIN)
        # As the original leaves it.
        server.execute(database, "DROP TABLE ref_log")
        before = described(server, database)
        backend = cast("FullBackend", open_backend(url, read_only=True))
        assert read(backend, MAIN.name) == MAIN
        assert backend.read_log("r", None, 9) == []
        with pytest.raises(StoreReadOnly):
            create(backend, replace(MAIN, name="other"))
        backend.close()
        assert described(server, database) == before

    def test_the_originals_tables_get_a_ref_log_beside_them(
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

    def test_a_database_that_is_down_is_told_and_found_again(
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
            # Several connections stay behind, and none of them is of use any more.
            at_once(lambda n: create(backend, Ref(f"{n}", an_id(n))), range(4))
            server.stop()
            server.start()
            for number in range(4):
                assert move(backend, Ref(f"{number}", an_id(number)), None)

    def test_a_read_is_done_again_where_its_connection_broke(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend, ThreadPoolExecutor(1) as pool:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                reading = pool.submit(read, backend, MAIN.name)
                cut_who_waits(server, database)
            assert reading.result(timeout=60) == MAIN

    def test_a_write_is_not_done_again_where_its_connection_broke(
        self, server: SqlServer, database: str, url: str
    ) -> None:
        with opened(url) as backend, ThreadPoolExecutor(1) as pool:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                swap = RefSwap(MAIN.name, MAIN, MOVED)
                writing = pool.submit(backend.apply, "r", [a_row(1)], swap)
                cut_who_waits(server, database)
                with pytest.raises(StoreUnreachable, match="broke"):
                    writing.result(timeout=60)
            assert read(backend, MAIN.name) == MAIN
            assert list(backend.scan_rows("r")) == []
            assert backend.apply("r", [a_row(1)], swap).swapped

    def test_nobody_waits_for_ever(self, server: SqlServer, database: str, url: str) -> None:
        with opened(f"{url}?timeout_seconds=0.5") as backend:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                with pytest.raises(StoreBusy, match="too long"):
                    read(backend, MAIN.name)
                with pytest.raises(StoreBusy, match="too long"):
                    move(backend, MAIN, MOVED)
            assert read(backend, MAIN.name) in (MAIN, MOVED)

    def test_who_gave_up_leaves_nobody_waiting(
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

    def test_a_reply_that_comes_too_late_leaves_the_deed(
        self, server: SqlServer, database: str
    ) -> None:
        with Proxy(("127.0.0.1", server.port)) as proxy:
            url = server.url(database, port=proxy.address[1])
            with opened(f"{url}?timeout_seconds=0.5") as backend:
                create(backend, MAIN)
                proxy.faults = Faults(late=1.0, seconds=30)
                with pytest.raises(StoreBusy, match="too long"):
                    move(backend, MAIN, MOVED)
                proxy.faults = Faults()
                assert read(backend, MAIN.name) == MOVED

    def test_a_reply_that_is_lost_leaves_the_deed(self, server: SqlServer, database: str) -> None:
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

    def test_who_finds_no_free_connection_is_told_after_a_while(
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

    def test_a_closed_store_refuses(self, url: str) -> None:
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


@contextmanager
def opened(url: str) -> Iterator[FullBackend]:
    with closing(cast("FullBackend", open_backend(url))) as backend:
        yield backend


def cut_who_waits(server: SqlServer, database: str) -> None:
    while not (waiting := server.waiting(database)):
        time.sleep(0.01)
    for connection in waiting:
        server.cut(connection)


def described(server: SqlServer, database: str) -> list[tuple[Any, ...]]:
    """All tables and columns of the database."""
    schema = "database()" if "maria" in server.url(database) else "current_schema()"
    return list(
        server.execute(
            database,
            "SELECT table_name, column_name, data_type FROM information_schema.columns"
            f" WHERE table_schema = {schema} ORDER BY 1, 2",
        )
    )
