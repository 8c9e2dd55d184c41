"""What the tests of all databases share: servers, started once, and backends opened on them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from morag.backend.urls import open_backend
from tests.stores.engines import (
    on_bigtable,
    on_cassandra,
    on_dynamodb,
    on_mariadb,
    on_mongodb,
    on_postgres,
)
from tests.stores.servers.bigtable import Bigtable
from tests.stores.servers.cassandra import Cassandra
from tests.stores.servers.dynamodb import dynamodb_local
from tests.stores.servers.mariadb import mariadb
from tests.stores.servers.mongodb import mongo_imitation
from tests.stores.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from morag.testing.backend_contract import FullBackend
    from tests.stores.engines import Engine
    from tests.stores.servers.dynamodb import DynamoDBLocal
    from tests.stores.servers.mariadb import MariaDBServer
    from tests.stores.servers.mongodb import MongoImitation
    from tests.stores.servers.postgres import PostgresServer

_PLACES: Final[Mapping[str, tuple[str, Callable[[Any], Engine]]]] = {
    "postgres": ("postgres_server", on_postgres),
    "mariadb": ("mariadb_server", on_mariadb),
    "cassandra": ("cassandra", on_cassandra),
    "dynamodb": ("dynamodb", on_dynamodb),
    "mongodb": ("mongodb", on_mongodb),
    "bigtable": ("bigtable", on_bigtable),
}
"""The fixture of each server, and what makes an empty place there."""

_REPOSITORIES: Final = count()


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


@pytest.fixture(scope="session")
def mongodb() -> Iterator[MongoImitation]:
    with mongo_imitation() as server:
        yield server


@pytest.fixture(scope="session")
def bigtable() -> Iterator[Bigtable]:
    with Bigtable() as server:
        yield server


@pytest.fixture(params=["postgres", "mariadb", "cassandra", "dynamodb"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An empty place in each of the databases that run here as themselves, or nearly so."""
    return _with_environment(_place(request), monkeypatch)


@pytest.fixture(scope="session", params=list(_PLACES))
def shared(request: pytest.FixtureRequest) -> Engine:
    """A place in each database that runs here, also in imitations, for all tests together."""
    return _place(request)


@pytest.fixture
def new_repository(shared: Engine, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """URLs in the shared place, each of a repository that nobody has used."""
    engine = _with_environment(shared, monkeypatch)
    return lambda: engine.url_at(engine.address, f"repository=r{next(_REPOSITORIES)}")


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


@pytest.fixture
def mariadb_database(mariadb_server: MariaDBServer) -> str:
    return mariadb_server.new_database()


def _place(request: pytest.FixtureRequest) -> Engine:
    server, place = _PLACES[request.param]
    return place(request.getfixturevalue(server))


def _with_environment(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    for name, value in engine.environment.items():
        monkeypatch.setenv(name, value)
    return engine
