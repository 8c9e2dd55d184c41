"""Fixtures: database servers that start once, backends on them, and empty stores in them."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from morag.backend.urls import open_backend
from tests.stores.registry import DATABASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.testing.backend_contract import FullBackend
    from tests.stores.databases import EmptyStore

_REPOSITORIES: Final = count()


class Reopening:
    """Opens a backend, and closes the previous one."""

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
    """Opens backends at the `url`, a fixture that each engine's tests define."""
    reopening = Reopening(url)
    yield reopening
    reopening.backend.close()


@pytest.fixture
def backend(reopen: Reopening) -> FullBackend:
    return reopen.backend


class Running:
    """The running servers. Each starts when a test first needs it."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._servers: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._servers:
            started = DATABASES[name].start(False)
            self._servers[name] = self._stack.enter_context(started)
        return self._servers[name]

    def new_store(self, name: str) -> EmptyStore:
        return DATABASES[name].new_store(self[name])


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with ExitStack() as stack:
        yield Running(stack)


@pytest.fixture
def server(request: pytest.FixtureRequest, running: Running) -> Any:
    """The server of the database that a test module names as its `SERVER`."""
    return running[request.module.SERVER]


@pytest.fixture
def database(server: Any) -> str:
    """A new database in an SQL server."""
    name: str = server.new_database()
    return name


@pytest.fixture
def url(server: Any, database: str) -> str:
    url: str = server.url(database)
    return url


@pytest.fixture(params=[name for name, each in DATABASES.items() if each.runs_nessie])
def store(
    request: pytest.FixtureRequest, running: Running, monkeypatch: pytest.MonkeyPatch
) -> EmptyStore:
    """An empty store in each database on which Nessie runs, too."""
    return _with_environment(running.new_store(request.param), monkeypatch)


@pytest.fixture(scope="session", params=list(DATABASES))
def shared_store(request: pytest.FixtureRequest, running: Running) -> tuple[str, EmptyStore]:
    """A store in each database and each emulator, which all tests share."""
    return request.param, running.new_store(request.param)


@pytest.fixture
def histories(shared_store: tuple[str, EmptyStore]) -> int:
    return DATABASES[shared_store[0]].histories


@pytest.fixture
def new_repository(
    shared_store: tuple[str, EmptyStore], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], str]:
    """URLs in the shared store, each of a repository that no test has used."""
    store = _with_environment(shared_store[1], monkeypatch)
    return lambda: store.url_at(store.address, f"repository=r{next(_REPOSITORIES)}")


def _with_environment(store: EmptyStore, monkeypatch: pytest.MonkeyPatch) -> EmptyStore:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store
