"""Servers to generate on, and the command line in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.client import Client
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that the tests share: each uses branches of its own."""
    with Served(tmp_path_factory.mktemp("generate")) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client
