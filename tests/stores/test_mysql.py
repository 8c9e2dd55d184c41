"""MariaDB, a real server, which stands for MySQL, too: what every backend promises, and more."""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pymysql
import pytest

from morag.backend.base import Ref, RefSwap
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.errors import (
    BadRequest,
    MoragError,
    RepositoryCorrupt,
    RequestTooLarge,
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
    an_id,
    at_once,
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
    from tests.stores.servers.mariadb import MariaDBServer

pytestmark = pytest.mark.stores

SERVER = "mariadb"


class TestMariaDB(OnSqlServer, SwapsTogetherContract):
    """The contract of backends."""


class TestMariaDBTables(TablesContract):
    # In the default collation of tables, which equates A and a.
    retype = "MODIFY obj_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    drop_key = "DROP PRIMARY KEY"

    def test_columns_are_nessies(self, server: MariaDBServer, database: str, url: str) -> None:
        open_backend(url).close()
        columns = server.execute(
            database,
            """SELECT table_name, column_name, column_type, collation_name, column_default
                FROM information_schema.columns WHERE table_schema = database()
                AND table_name <> 'ref_log' ORDER BY table_name, ordinal_position""",
        )
        key, name = (("varchar(255)", "utf8mb4_bin", default) for default in (None, "NULL"))
        id, value = (("tinyblob", None, "NULL"), ("longblob", None, "NULL"))
        time = ("bigint(20)", None)
        assert list(columns) == [
            ("objs2", "repo", *key),
            ("objs2", "obj_id", "tinyblob", None, None),
            ("objs2", "obj_type", *name),
            ("objs2", "obj_vers", *name),
            ("objs2", "obj_value", *value),
            ("objs2", "obj_ref", *time, "NULL"),
            ("refs2", "repo", *key),
            ("refs2", "ref_name", *key),
            ("refs2", "pointer", *id),
            ("refs2", "ext_info", *id),
            ("refs2", "prev_ptr", *value),
            ("refs2", "created_at", *time, "0"),
            ("refs2", "deleted", "bit(1)", None, "NULL"),
        ]

    def test_an_engine_without_transactions_is_refused(
        self, server: MariaDBServer, database: str, url: str
    ) -> None:
        open_backend(url).close()
        server.execute(database, "ALTER TABLE refs2 ENGINE = Aria")
        with pytest.raises(StoreUrlInvalid, match=r"'refs2'.*Aria.*ENGINE = InnoDB"):
            open_backend(url)

    def test_a_lenient_sql_mode_changes_nothing(
        self, server: MariaDBServer, database: str, url: str
    ) -> None:
        """In this mode the server truncates long values and does not escape by backslashes."""
        sql_mode = "NO_BACKSLASH_ESCAPES,ANSI_QUOTES,MYSQL40"
        server.execute(database, f"SET GLOBAL sql_mode = '{sql_mode}'")
        try:
            with opened(url) as backend:
                names = ["it's", '"quoted"', "back\\slash", "per%cent %s", "x" * 255]
                for name in names:
                    assert create(backend, Ref(name, an_id(name)))
                found = backend.read_refs("r", names)
                assert found == {name: Ref(name, an_id(name)) for name in names}
                with pytest.raises(RequestTooLarge, match="ref_name"):
                    create(backend, Ref("x" * 256, an_id(1)))
        finally:
            server.execute(database, "SET GLOBAL sql_mode = DEFAULT")


class TestLargeRows:
    def test_rows_are_spread_over_statements_that_fit(self, url: str) -> None:
        rows = [a_row(n, size_bytes=1 << 20) for n in range(24)]
        with opened(url) as backend:
            swap = RefSwap(MAIN.name, None, MAIN)
            assert backend.apply("r", rows, swap).new == {row.id for row in rows}
            assert backend.read_rows("r", [row.id for row in rows]).keys() == {
                row.id for row in rows
            }

    def test_a_row_that_is_too_large_for_a_packet_is_refused(self, url: str) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            large = a_row("large", "s", size_bytes=(8 << 20) - 1024)
            with pytest.raises(RequestTooLarge, match="max_allowed_packet"):
                backend.apply("r", [a_row(1), large], RefSwap(MAIN.name, MAIN, MOVED))
            assert read(backend, MAIN.name) == MAIN
            assert list(backend.scan_rows("r")) == []
            fits = a_row("large", "s", size_bytes=(8 << 20) - 2048)
            assert backend.insert_rows("r", [fits]) == {fits.id}


class TestMariaDBNetwork(NetworkContract):
    """The contract of databases behind a network."""


class TestTheKernel:
    def test_the_kernel_commits_on_mysql(self, url: str) -> None:
        repository = Repository(open_backend(url), Settings(), World())
        for number in range(5):
            repository.commit("main", [put(f"table {number}")], "one more")
        head = repository.references.get("main").hash
        repository.close()
        again = Repository(open_backend(url), Settings(), World())
        assert again.references.get("main").hash == head
        again.close()

    def test_the_kernel_refuses_what_exceeds_the_limits_of_the_database(self, url: str) -> None:
        """The limits are the width of a column for a name, and half a packet for an object."""
        with Repository(open_backend(url), Settings(), World()) as repository:
            longest = "x" * (255 - len("refs/heads/"))
            repository.references.create_branch(longest, "main")
            with pytest.raises(BadRequest, match=r"256 characters.*\(255\)"):
                repository.references.create_branch(f"{longest}x", "main")
            assert [each.name for each in repository.references.list()] == ["main", longest]
            assert repository.settings.max_object_bytes == (8 << 20) - 1024
            with pytest.raises(BadRequest, match="larger than the store allows"):
                repository.commit("main", [put("a")], "x" * (8 << 20))
            repository.commit("main", [put("a")], "x" * ((8 << 20) - 4096))


class TestUrls(UrlsContract):
    missing_database = "Unknown database"

    def test_a_wrong_password_is_reported_and_not_shown(
        self, server: MariaDBServer, database: str
    ) -> None:
        with pytest.raises(StoreUrlInvalid, match="check the user, the password") as refusal:
            open_backend(server.url(database, "root:sesame"))
        assert_hidden("sesame", refusal.value)

    def test_a_right_password_opens_what_was_granted(
        self, server: MariaDBServer, database: str
    ) -> None:
        url = make_guest(server, database, "SELECT, INSERT, UPDATE, DELETE")
        with pytest.raises(StoreUrlInvalid, match=r"grant CREATE.*CREATE TABLE refs2"):
            open_backend(url)
        with opened(make_guest(server, database, "ALL")) as backend:
            assert create(backend, MAIN)

    @pytest.mark.parametrize(
        "url", ["mysql:", "mariadb://u:sesame@localhost", "mysql://u:sesame@h:port/d"]
    )
    def test_a_url_without_a_database_is_refused(self, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match="names no user or no database") as refusal:
            open_backend(url)
        assert_hidden("sesame", refusal.value)

    @pytest.mark.parametrize("option", ["timeout_seconds=soon", "pool_size=-1", "sslmode=off"])
    def test_an_invalid_option_is_refused_by_name(self, option: str, url: str) -> None:
        with pytest.raises(StoreUrlInvalid, match=option.partition("=")[0]):
            open_backend(f"{url}?{option}")

    def test_a_socket_can_be_named(self, server: MariaDBServer, database: str) -> None:
        with opened(f"mysql://root@localhost/{database}?socket={server.socket}") as backend:
            assert create(backend, MAIN)


class TestMeanings(MeaningsContract):
    restart_code = 1213

    def test_a_deadlocked_write_is_repeated(
        self, server: MariaDBServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", 1213, "Deadlock found", times=3)
            swap = RefSwap(MAIN.name, MAIN, MOVED)
            assert backend.apply("r", [a_row(1)], swap, [line(1)]).new == {an_id(1)}
            assert server.attempts(database) == 4
            assert read(backend, MAIN.name) == MOVED

    def test_deadlocked_writers_both_succeed(self, url: str) -> None:
        """A real deadlock: two insertions hold rows for which the other waits."""
        with opened(url) as backend, opened(url) as other:
            rows = [a_row(n) for n in range(40)]
            for _ in range(5):
                new = at_once(
                    lambda each: each.insert_rows("r", rows), [backend, other, backend, other]
                )
                assert sum(map(len, new)) == len(rows)
                backend.erase("r")

    def test_a_lock_that_stays_is_reported_in_time(
        self, server: MariaDBServer, database: str, url: str
    ) -> None:
        with opened(f"{url}?timeout_seconds=2") as backend:
            create(backend, MAIN)
            holder = pymysql.connect(
                host="127.0.0.1", port=server.port, user="root", database=database
            )
            with holder, holder.cursor() as cursor:
                cursor.execute("SELECT * FROM refs2 FOR UPDATE")
                with pytest.raises(StoreBusy, match="1205"):
                    backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
            assert list(backend.scan_rows("r")) == []
            assert move(backend, MAIN, MOVED)

    @pytest.mark.parametrize(
        ("number", "meaning"),
        [
            (1021, StoreCannotWrite),
            (1114, StoreCannotWrite),
            (1203, StoreThrottled),
            (1205, StoreBusy),
            (1927, StoreUnreachable),
            (1034, RepositoryCorrupt),
            (1644, ServiceUnavailable),
        ],
    )
    def test_every_error_has_its_meaning(
        self, number: int, meaning: type[MoragError], server: MariaDBServer, database: str, url: str
    ) -> None:
        check_meaning(server, database, url, number, meaning)

    def test_a_read_only_database_can_be_read(self, server: MariaDBServer, database: str) -> None:
        with opened(make_guest(server, database, "ALL")) as backend:
            create(backend, MAIN)
            server.execute(database, "SET GLOBAL read_only = 1")
            try:
                with pytest.raises(StoreCannotWrite, match="read-only"):
                    move(backend, MAIN, MOVED)
                assert read(backend, MAIN.name) == MAIN
            finally:
                server.execute(database, "SET GLOBAL read_only = 0")

    def test_a_user_who_loses_access_gets_an_error(
        self, server: MariaDBServer, database: str
    ) -> None:
        with opened(make_guest(server, database, "ALL")) as backend:
            create(backend, MAIN)
            server.execute(database, f"ALTER USER {database}@'127.0.0.1' IDENTIFIED BY 'other'")
            for connection in server.connections(database):
                server.cut(connection)
            with pytest.raises(StoreUnreachable, match="Access denied"):
                read(backend, MAIN.name)
            make_guest(server, database, "ALL")
            assert read(backend, MAIN.name) == MAIN

    def test_too_many_connections_are_reported(self, server: MariaDBServer, database: str) -> None:
        url = make_guest(server, database, "ALL")
        limit = f"ALTER USER {database}@'127.0.0.1' WITH MAX_USER_CONNECTIONS 1"
        server.execute(database, limit)
        with opened(url) as backend, ThreadPoolExecutor(2) as pool:
            create(backend, MAIN)
            with server.locked(database, "refs2"):
                reading = [pool.submit(read, backend, MAIN.name) for _ in range(2)]
                done, _ = wait(reading, timeout=60, return_when=FIRST_COMPLETED)
                (refused,) = done
                with pytest.raises(StoreThrottled, match="max_user_connections"):
                    refused.result()
            (other,) = {*reading} - done
            assert other.result(timeout=60) == MAIN


def make_guest(server: MariaDBServer, database: str, rights: str) -> str:
    """The URL of a user with these rights."""
    user = f"{database}@'127.0.0.1'"
    server.execute(
        database,
        f"CREATE USER IF NOT EXISTS {user}",
        f"ALTER USER {user} IDENTIFIED BY 'op en/'",
        f"GRANT {rights} ON {database}.* TO {user}",
    )
    return server.url(database, f"{database}:op%20en%2F")
