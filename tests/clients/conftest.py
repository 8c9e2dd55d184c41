"""Every client has a virtual environment of its own, and only there are its tests collected."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.clients.rest import Rest
from tests.clients.serving import Morag

if TYPE_CHECKING:
    from collections.abc import Iterator

collect_ignore_glob = [
    *([] if find_spec("pynessie") else ["test_pynessie_*.py"]),
    *([] if find_spec("pyspark") else ["test_spark*.py"]),
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        metavar="URL",
        help="run the tests of clients against this server, for instance the original",
    )


@pytest.fixture(scope="session")
def rest(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rest]:
    """The server that the clients use."""
    if address := request.config.getoption("--against"):
        yield Rest(address)
    else:
        with Morag(tmp_path_factory.mktemp("morag")) as server:
            yield Rest(server.address)
