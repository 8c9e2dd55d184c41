"""Plans and logs of Spark do not show the secrets of a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag import ContentKey, Put
from morag.spark.catalog_tables import read_table
from morag.spark.opening import Origin
from tests.spark.scratch_branch import table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # PySpark leaves sockets open.

_HIDDEN: Final = "hush"
"""A part of the store's URL that is hidden like a password."""


_UDF: Final = """'{"type": "UDF", "sqlText": "1", "dialect": "x"}'"""


@pytest.fixture(autouse=True)
def whole_plans(spark: SparkSession) -> Iterator[None]:
    """Make Spark log whole plans."""
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    yield
    spark.conf.unset("spark.sql.ui.explainMode")


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:{tmp_path / _HIDDEN}.db"
    with morag.open(url) as repository:
        repository.commit("main", [Put(ContentKey.of("t"), table(1))], "first")
    return url


@pytest.fixture
def store_file(store: str, tmp_path: Path) -> str:
    file = tmp_path / "store"
    file.write_text(store)
    return str(file)


def test_the_plan_of_a_read_has_no_secret(spark: SparkSession, store: str) -> None:
    frame = read_table(spark, Origin(store=store, token=_HIDDEN), "references")
    assert [row.name for row in frame.collect()] == ["main"]
    plans = frame._jdf.queryExecution().toString()
    assert "morag" in plans
    assert _HIDDEN not in plans + logged(spark)


def test_the_plan_of_a_write_has_no_secret(spark: SparkSession, store_file: str) -> None:
    """Spark shows the options of a write, so a password in them is refused."""
    rows = spark.sql(f"SELECT array('f') AS key, {_UDF} AS content")
    rows.write.format("morag").mode("append").option("store_file", store_file).save()
    plans = logged(spark)
    assert store_file in plans
    assert _HIDDEN not in plans


def test_the_checkpoint_of_a_stream_has_no_secret(
    spark: SparkSession, store: str, store_file: str, tmp_path: Path
) -> None:
    options = {"store": store, "token": _HIDDEN, "table": "log", "max_commits": "1"}
    commits = spark.readStream.format("morag").options(**options).load()
    rows = commits.selectExpr("array(hash) AS key", f"{_UDF} AS content")
    writer = rows.writeStream.format("morag").option("store_file", store_file)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    assert progress.numInputRows == 1
    kept = [file.read_bytes() for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
    assert _HIDDEN not in f"{kept} {progress} {logged(spark)}"


def logged(spark: SparkSession) -> str:
    """The plans that Spark writes into its event log, and shows in its UI."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return "".join(found.apply(at).physicalPlanDescription() for at in range(found.size()))
