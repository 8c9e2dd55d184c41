"""What the tests of all databases share: servers, started once, and backends opened on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from morag.backend.urls import open_backend
from tests.stores.servers.mariadb import mariadb
from tests.stores.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.testing.backend_contract import FullBackend
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


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    with mariadb() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> str:
    return postgres_server.new_database()


@pytest.fixture
def mariadb_database(mariadb_server: MariaDBServer) -> str:
    return mariadb_server.new_database()
