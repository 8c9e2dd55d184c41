"""Fixtures for tests of other clients, each of which runs in the environment of its client."""

from __future__ import annotations

import uuid
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.interop.rest import Rest, delta, namespace, put, table, view
from tests.nessie.server import Server, rocksdb
from tests.server_process import Served

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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--against",
        metavar="URL",
        help="run the tests of clients against this server, for instance Nessie",
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


@pytest.fixture(scope="session", params=[1, 2], ids=["v1", "v2"])
def api(request: pytest.FixtureRequest) -> int:
    """The version of the API that a client uses."""
    api: int = request.param
    return api


@pytest.fixture
def sample_branch(rest: Rest) -> str:
    """A branch with two commits: a namespace with a table, then the other kinds of content."""
    name = f"b-{uuid.uuid4()}"
    rest.create(name)
    rest.commit(
        name, "first", [put("db", content=namespace("db")), put("db", "one", content=table(1))]
    )
    others = {"view": view(1), "delta": delta(1), "with.dots": table(2)}
    contents = [put("db", last, content=content) for last, content in others.items()]
    rest.commit(name, "second", contents)
    return name


@pytest.fixture(scope="session")
def nessie(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    directory = tmp_path_factory.mktemp("nessie")
    with Server(rocksdb(directory / "data"), directory / "log", {}) as server:
        yield Rest(server.address)


@pytest.fixture(scope="session")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Imported here, because environments of other clients have no Spark or an older one.
    from tests.interop.spark_session import session

    with session(tmp_path_factory.mktemp("spark")) as spark:
        yield spark
