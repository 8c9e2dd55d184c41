"""One server in memory for all tests that only talk to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 100_000


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With small limits, so that they can be reached."""
    limits = ("--max-request-bytes", str(LIMIT), "--max-head-bytes", "8192")
    with Served(tmp_path_factory.mktemp("served"), *limits) as server:
        yield server
