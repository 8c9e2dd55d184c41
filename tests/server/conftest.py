"""One server with a store in memory for all tests that only send requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 100_000


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with small limits, so that tests can exceed them."""
    limits = ("--max-request-bytes", str(LIMIT), "--max-head-bytes", "8192")
    with Served(tmp_path_factory.mktemp("served"), *limits) as server:
        yield server
