"""One Spark session for all tests, and servers, branches and lakes."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import morag
from morag.client import Client
from morag.spark import session
from morag.spark.opening import Origin
from tests.server_process import Served
from tests.spark.gc_scenario import Scenario
from tests.spark.iceberg_lake import Lake
from tests.spark.sample_catalog import filled
from tests.spark.scratch_branch import Branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            # PySpark leaves its connections to the JVM to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(autouse=True)
def collect_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect sockets that PySpark leaves, so that their warnings do not fail a later test."""
    yield
    if "spark" in request.fixturenames:
        gc.collect()


@pytest.fixture
def another_disk(tmp_path: Path) -> Iterator[Path]:
    shared_memory = Path("/dev/shm")
    if not shared_memory.is_dir() or shared_memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("this machine has no second disk")
    with tempfile.TemporaryDirectory(dir=shared_memory) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    directory = tmp_path_factory.mktemp("spark")
    started = session(
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            # The session is short and its tables are small: compiling does not pay off.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture(scope="module")
def catalog_options(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, dict[str, str]]]:
    """The options for the sample catalog: by the `uri` of a server, and by its `store`."""
    directory = tmp_path_factory.mktemp("catalog")
    store = f"rocksdb:{directory / 'store'}"
    with filled(directory, store) as (served, _):
        yield {"uri": {"uri": served.url}, "store": {"store": store}}


@pytest.fixture
def branch(served: Served, request: pytest.FixtureRequest) -> Iterator[Branch]:
    with Client(served.url) as client:
        yield Branch(client, served.url, request.node.name)


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(store=f"sqlite:{tmp_path / 'catalog.db'}")


@pytest.fixture
def lake(tmp_path: Path, origin: Origin) -> Iterator[Lake]:
    assert origin.store is not None
    with morag.open(origin.store) as repository:
        yield Lake(repository, (tmp_path / "lake").as_uri())


@pytest.fixture
def scenario(spark: SparkSession, tmp_path: Path) -> Iterator[Scenario]:
    made = Scenario(spark, tmp_path)
    yield made
    made.close()
