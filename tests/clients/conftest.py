"""A client with an environment of its own has its tests collected only there."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.clients.rest import Rest
from tests.original.server import Server, rocksdb
from tests.serving import Served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SPARK35 = find_spec("pyspark") is not None and version("pyspark").startswith("3.5.")
_SPARK = find_spec("pyspark") is not None and not _SPARK35

collect_ignore_glob = [
    *([] if find_spec("pynessie") else ["test_pynessie_*.py"]),
    *([] if _SPARK else ["test_spark.py", "test_publish.py", "test_diffs.py", "test_gc.py"]),
    *([] if _SPARK35 else ["test_spark35.py"]),
]


class Original(Server):
    @property
    def address(self) -> str:
        return self._address


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
        with Served(tmp_path_factory.mktemp("morag")) as server:
            yield Rest(server.url)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    directory = tmp_path_factory.mktemp("original")
    with Original(rocksdb(directory / "data"), directory / "log", {}) as server:
        assert isinstance(server, Original)
        yield Rest(server.address)


@pytest.fixture(scope="session")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Not at the top: other clients have no Spark, or an older one.
    from tests.clients.spark import session

    with session(tmp_path_factory.mktemp("spark")) as spark:
        yield spark
