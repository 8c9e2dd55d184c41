"""What the tests of all databases share: servers, started once, and backends opened on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from morag.backend.urls import open_backend
from tests.stores.engines import on_cassandra, on_dynamodb, on_mariadb, on_postgres
from tests.stores.servers.cassandra import Cassandra
from tests.stores.servers.dynamodb import dynamodb_local
from tests.stores.servers.mariadb import mariadb
from tests.stores.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.testing.backend_contract import FullBackend
    from tests.stores.engines import Engine
    from tests.stores.servers.dynamodb import DynamoDBLocal
    from tests.stores.servers.mariadb import MariaDBServer
    from tests.stores.servers.postgres import PostgresServer


class Reopening:
    """Opens a store, and closes what it opened before."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.backend = self._open()

    def __call__(self) -> FullBackend:
        self.backend.close()
        self.backend = self._open()
        return self.backend

    def _open(self) -> FullBackend:
        return cast("FullBackend", open_backend(self._url))


@pytest.fixture
def reopen(url: str) -> Iterator[Reopening]:
    """Of the `url` that the tests of an engine have as a fixture."""
    reopening = Reopening(url)
    yield reopening
    reopening.backend.close()


@pytest.fixture
def backend(reopen: Reopening) -> FullBackend:
    return reopen.backend


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    with mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    with Cassandra(tmp_path_factory.mktemp("cassandra")) as server:
        server.make_keyspace("tests")
        yield server


@pytest.fixture(scope="session")
def dynamodb() -> Iterator[DynamoDBLocal]:
    with dynamodb_local() as server:
        yield server


@pytest.fixture(params=["postgres", "mariadb", "cassandra", "dynamodb"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An empty place in each of the databases that run here as themselves, or nearly so."""
    server, place = {
        "postgres": ("postgres_server", on_postgres),
        "mariadb": ("mariadb_server", on_mariadb),
        "cassandra": ("cassandra", on_cassandra),
        "dynamodb": ("dynamodb", on_dynamodb),
    }[request.param]
    engine: Engine = place(request.getfixturevalue(server))  # type: ignore[operator]
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    return engine


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


@pytest.fixture
def mariadb_database(mariadb_server: MariaDBServer) -> str:
    return mariadb_server.new_database()
