"""The format `morag` inside Spark: SQL in, rows out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from morag.spark import register
from morag.spark.session import FILTERS
from morag.spark.source.schemas import TABLES
from tests.spark.catalog import MANY, filled
from tests.spark.reading import Read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Options]]:
    directory = tmp_path_factory.mktemp("catalog")
    store = f"rocksdb:{directory / 'store'}"
    with filled(directory, store) as (served, _):
        yield {"uri": {"uri": served.url}, "store": {"store": store}}


@pytest.mark.parametrize(
    ("place", "table"),
    [
        ("uri", "references"),
        ("uri", "entries"),
        ("store", "entries"),
        ("store", "log"),
        ("uri", "operations"),
        ("store", "diff"),
        ("uri", "reflog"),
    ],
)
def test_spark_shows_what_is_read(
    spark: SparkSession, places: dict[str, Options], place: str, table: str
) -> None:
    asked = {"table": table}
    if table == "operations":
        asked = {"table": "log", "operations": "true", "partitions": "2", "ref": "main~1"}
    elif table == "diff":
        asked |= {"from": "main", "to": "dev"}
    frame = _load(spark, places[place] | asked)
    assert frame.columns == list(TABLES[table])
    shown = [row.asDict() for row in frame.collect()]
    assert sorted(map(_text, shown)) == sorted(map(_text, Read(places[place] | asked)))
    assert shown


def test_objects_in_spark(spark: SparkSession, places: dict[str, Options]) -> None:
    frame = _load(spark, places["store"] | {"table": "objects", "partitions": "3"})
    assert frame.rdd.getNumPartitions() == 3
    counted = {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()}
    assert counted["VALUE"] >= MANY


def test_a_query_reads_only_what_it_needs(spark: SparkSession, places: dict[str, Options]) -> None:
    asked = places["store"] | {"partitions": "4"}
    frame = _load(spark, asked, "name string, namespace string, key array<string>")
    assert frame.rdd.getNumPartitions() == 4
    found = frame.where("namespace = 'a.b' AND name = 't'")
    assert [row["key"] for row in found.collect()] == [["a", "b", "t"]]
    assert found.rdd.getNumPartitions() == 1
    one = frame.where(functions.col("key") == functions.array(*map(functions.lit, ("a", "b", "t"))))
    assert [row["name"] for row in one.collect()] == ["t"]
    assert frame.where("namespace LIKE 'man%'").count() == MANY


def test_a_session_that_somebody_else_made(spark: SparkSession, places: dict[str, Options]) -> None:
    spark.conf.set(FILTERS, "false")
    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        _load(spark, places["store"] | {"table": "references"}, "name string").count()
    register(spark)
    assert _load(spark, places["store"] | {"table": "references"}, "name string").count() == 3


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"store": "memory:"}, "name that server by 'uri'"),
        ({"store": "rocksdb:/no/where"}, "There is no RocksDB store in '/no/where'"),
        ({"uri": "http://127.0.0.1:1"}, "Nothing listens at http://127.0.0.1:1"),
        ({"store": "sqlite:x", "branch": "main"}, "has no option 'branch'"),
    ],
)
def test_spark_passes_on_what_is_wrong(spark: SparkSession, options: Options, advice: str) -> None:
    with pytest.raises(PySparkException, match=advice):
        _load(spark, options).collect()


def _load(spark: SparkSession, options: Options, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("morag").options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def _text(row: dict[str, Any]) -> str:
    """Times come back from Spark without a zone, and maps in another order."""
    properties = sorted(dict(row.get("properties", ())).items())
    plain = {name: value for name, value in row.items() if "time" not in name}
    return repr(plain | {"properties": properties})
