"""Write, audit, publish on Iceberg tables, and streams, with Morag and with Nessie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from morag.client import Client
from morag.spark.lake_catalog import reload_catalogs
from morag.spark.publish import ChecksFailed, branch
from morag.spark.source.exactly_once import BATCH
from tests.interop.spark_settings import catalog_settings
from tests.spark.scratch_branch import Branch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.interop.rest import Rest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PySpark leaves sockets open.
]

_README: Final = Path(__file__).parents[2] / "README.md"
_EXAMPLE: Final = re.compile(r"```python\n([^`]*import morag\.spark\n.*?)```", re.DOTALL)


@pytest.fixture(params=["rest", "nessie"], ids=["morag", "nessie"])
def server(request: pytest.FixtureRequest) -> Rest:
    server: Rest = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def lake(iceberg: SparkSession, server: Rest, tmp_path: Path) -> Iterator[SparkSession]:
    """The session with one catalog, on `main`, which caches its tables."""
    settings = catalog_settings("lake", server.address, 2, tmp_path, ref="main")
    del settings["spark.sql.catalog.lake.cache-enabled"]
    others = {
        name: value
        for name, value in iceberg.conf.getAll.items()
        if name.startswith("spark.sql.catalog.")
    }
    for name in others:
        iceberg.conf.unset(name)
    for name, value in settings.items():
        iceberg.conf.set(name, value)
    reload_catalogs(iceberg)
    yield iceberg
    for name in settings:
        iceberg.conf.unset(name)
    for name, value in others.items():
        iceberg.conf.set(name, value)


def rows(spark: SparkSession, table: str) -> list[tuple[int, int]]:
    return sorted((row[0], row[1]) for row in spark.table(table).collect())


def test_the_example_of_the_readme_runs_again_and_again(
    lake: SparkSession,
    server: Rest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = _EXAMPLE.findall(_README.read_text())
    example = example.replace("http://127.0.0.1:19120", server.address)
    for _ in range(2):
        exec(compile(example, "README.md", "exec"), {})
        output = capsys.readouterr().out.strip()
        assert output == f"Branch 'etl' is published: 'main' is at {server.head('main')}"
        assert rows(lake, "lake.sales.orders") == [(1, 10), (2, 20)]
    assert "etl" not in {ref["name"] for ref in server.ask("GET", ["trees"])["references"]}


def test_work_that_fails_its_checks_stays_on_its_branch(lake: SparkSession, server: Rest) -> None:
    lake.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    lake.sql("CREATE TABLE lake.db.t (id BIGINT, amount INT) USING iceberg")
    lake.sql("INSERT INTO lake.db.t VALUES (1, 1)")
    lake.sql("USE lake.db")
    head = server.head("main")
    seen = []
    with (
        pytest.raises(ChecksFailed) as error,
        branch(lake, "bad_day", checks=["SELECT * FROM t WHERE amount < 0"]),
    ):
        lake.sql("INSERT INTO t VALUES (2, -1)")
        seen.append(rows(lake, "lake.db.t"))
    assert error.value.found == (
        "Check 'SELECT * FROM t WHERE amount < 0' found {'id': 2, 'amount': -1}",
    )
    assert seen == [[(1, 1), (2, -1)]]
    assert server.head("main") == head
    assert rows(lake, "t") == [(1, 1)]
    assert rows(lake, "lake.db.`t@bad_day`") == [(1, 1), (2, -1)]

    with branch(lake, "bad_day", replace=True, checks=["SELECT * FROM t WHERE amount < 0"]):
        lake.sql("INSERT INTO t VALUES (2, 2)")
        lake.sql("CREATE TABLE more (id BIGINT, amount INT) USING iceberg")
        lake.sql("INSERT INTO more VALUES (3, 3)")
    assert rows(lake, "t") == [(1, 1), (2, 2)]
    assert rows(lake, "lake.db.more") == [(3, 3)]
    lake.sql("USE spark_catalog.default")


def test_commits_are_followed_and_rows_are_written(
    lake: SparkSession, server: Rest, tmp_path: Path
) -> None:
    made = [f"c{n}" for n in range(5)]
    with Client(server.address) as client:
        source, target = (Branch(client, server.address, name) for name in ("from", "into"))
        for some in (made[:3], made[3:]):
            source.commit(*some)
            reader = lake.readStream.format("morag").options(**source.options, table="log")
            changes = reader.option("operations", "true").load()
            wanted = changes.select("key", "operation", "metadata_location", "snapshot_id")
            writer = wanted.writeStream.format("morag").options(**target.options)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()
        log = target.log()
    written = [[str(op.key) for op in entry.operations or ()] for entry in log]
    assert written == [made[:3], made[3:]]
    assert [entry.meta.properties[BATCH] for entry in log] == [("0",), ("1",)]
