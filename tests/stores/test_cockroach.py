"""The dialect of CockroachDB, on PostgreSQL with the errors that only CockroachDB reports.

The tests have no CockroachDB. PostgreSQL with serializable isolation requests restarts, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.backend.base import Ref, RefSwap, SwapsTogether
from morag.backend.urls import open_backend
from morag.errors import StoreBusy
from morag.testing.backend_contract import MAIN, MOVED, a_row, an_id, at_once, create, line, read
from tests.stores.sql_contracts import OnSqlServer, opened

if TYPE_CHECKING:
    from tests.stores.servers.postgres import PostgresServer

pytestmark = pytest.mark.stores

SERVER = "postgres"

RESTART = (
    "restart transaction: TransactionRetryWithProtoRefreshError: TransactionRetryError:"
    " retry txn (RETRY_SERIALIZABLE)"
)
AMBIGUOUS = "result is ambiguous: error=rpc error [propagate]"


@pytest.fixture
def url(server: PostgresServer, database: str) -> str:
    return server.url(database).replace("postgresql", "cockroachdb", 1)


class TestCockroach(OnSqlServer):
    """The contract of backends."""


def test_references_are_changed_step_by_step(url: str) -> None:
    """CockroachDB refuses a statement that changes one table twice."""
    with opened(url) as backend:
        assert not isinstance(backend, SwapsTogether)


class TestCockroachTables:
    def test_names_have_no_collation(self, server: PostgresServer, database: str, url: str) -> None:
        open_backend(url).close()
        collations = server.execute(
            database,
            "SELECT DISTINCT collation_name FROM information_schema.columns"
            " WHERE table_schema = 'public'",
        )
        assert collations == [(None,)]


class TestRestarts:
    def test_a_restarted_commit_is_done_once(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", "40001", RESTART, times=4)
            swap = RefSwap(MAIN.name, MAIN, MOVED)
            assert backend.apply("r", [a_row(1)], swap, [line(1)]).new == {an_id(1)}
            assert server.attempts(database) == 5
            assert read(backend, MAIN.name) == MOVED
            assert list(backend.scan_rows("r")) == [a_row(1)]
            assert backend.read_log("r", None, 9) == [line(1)]

    def test_a_commit_that_is_always_restarted_is_busy(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", "40001", RESTART, times=1000)
            with pytest.raises(StoreBusy, match="RETRY_SERIALIZABLE") as busy:
                backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
            assert busy.value.status == 503
            assert read(backend, MAIN.name) == MAIN

    def test_an_ambiguous_result_is_left_to_the_caller(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        with opened(url) as backend:
            create(backend, MAIN)
            server.refuse(database, "objs2", "40003", AMBIGUOUS, times=1)
            with pytest.raises(StoreBusy, match="ambiguous"):
                backend.apply("r", [a_row(1)], RefSwap(MAIN.name, MAIN, MOVED))
            assert server.attempts(database) == 1, "the commit was repeated"

    def test_writers_of_one_row_all_succeed(
        self, server: PostgresServer, database: str, url: str
    ) -> None:
        """Serializable PostgreSQL gives the second of two writers the answer of CockroachDB."""
        shared = a_row("shared")

        def commit(name: str) -> None:
            at: Ref | None = None
            for number in range(10):
                new = Ref(name, an_id((name, number)))
                rows = [shared, a_row((name, number))]
                assert backend.apply("r", rows, RefSwap(name, at, new)).swapped
                at = new

        with opened(url) as backend:
            at_once(commit, [f"{number}" for number in range(4)])
            assert len(list(backend.scan_rows("r"))) == 1 + 4 * 10
        ((conflicts,),) = server.execute(
            database, f"SELECT xact_rollback FROM pg_stat_database WHERE datname = '{database}'"
        )
        assert conflicts > 0, "there was no conflict"
