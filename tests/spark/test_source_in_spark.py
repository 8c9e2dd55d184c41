"""The format `morag` in queries of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

from morag.spark import register
from morag.spark.session import FILTERS
from morag.spark.source.schemas import TABLES
from tests.spark.in_process_read import Read
from tests.spark.sample_catalog import MANY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Options = dict[str, str]


@pytest.mark.parametrize(
    ("access", "table"),
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
def test_a_query_returns_the_rows_of_the_reader(
    spark: SparkSession, catalog_options: dict[str, Options], access: str, table: str
) -> None:
    requested = {"table": table}
    if table == "operations":
        requested = {"table": "log", "operations": "true", "partitions": "2", "ref": "main~1"}
    elif table == "diff":
        requested |= {"from": "main", "to": "dev"}
    frame = _load(spark, catalog_options[access] | requested)
    assert frame.columns == list(TABLES[table])
    shown = [row.asDict() for row in frame.collect()]
    assert sorted(map(_text, shown)) == sorted(
        map(_text, Read(catalog_options[access] | requested))
    )
    assert shown


def test_all_objects_can_be_counted(
    spark: SparkSession, catalog_options: dict[str, Options]
) -> None:
    frame = _load(spark, catalog_options["store"] | {"table": "objects", "partitions": "3"})
    assert frame.rdd.getNumPartitions() == 3
    counted = {row["kind"]: row["count"] for row in frame.groupBy("kind").count().collect()}
    assert counted["VALUE"] >= MANY


def test_a_query_reads_only_the_rows_it_needs(
    spark: SparkSession, catalog_options: dict[str, Options]
) -> None:
    requested = catalog_options["store"] | {"partitions": "4"}
    frame = _load(spark, requested, "name string, namespace string, key array<string>")
    assert frame.rdd.getNumPartitions() == 4
    found = frame.where("namespace = 'a.b' AND name = 't'")
    assert [row["key"] for row in found.collect()] == [["a", "b", "t"]]
    assert found.rdd.getNumPartitions() == 1
    one = frame.where(functions.col("key") == functions.array(*map(functions.lit, ("a", "b", "t"))))
    assert [row["name"] for row in one.collect()] == ["t"]
    assert frame.where("namespace LIKE 'man%'").count() == MANY


def test_the_format_can_be_registered_in_another_session(
    spark: SparkSession, catalog_options: dict[str, Options]
) -> None:
    spark.conf.set(FILTERS, "false")
    with pytest.raises(PySparkException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        _load(spark, catalog_options["store"] | {"table": "references"}, "name string").count()
    register(spark)
    assert (
        _load(spark, catalog_options["store"] | {"table": "references"}, "name string").count() == 3
    )


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"store": "memory:"}, "name that server by 'uri'"),
        ({"store": "rocksdb:/no/where"}, "There is no RocksDB store in '/no/where'"),
        ({"uri": "http://127.0.0.1:1"}, "Nothing listens at http://127.0.0.1:1"),
        ({"store": "sqlite:x", "branch": "main"}, "has no option 'branch'"),
    ],
)
def test_spark_passes_on_the_message_of_an_error(
    spark: SparkSession, options: Options, advice: str
) -> None:
    with pytest.raises(PySparkException, match=advice):
        _load(spark, options).collect()


def _load(spark: SparkSession, options: Options, schema: str | None = None) -> DataFrame:
    reader = spark.read.format("morag").options(**options)
    return (reader if schema is None else reader.schema(schema)).load()


def _text(row: dict[str, Any]) -> str:
    """A row as text: Spark returns times without a zone, and maps in another order."""
    properties = sorted(dict(row.get("properties", ())).items())
    plain = {name: value for name, value in row.items() if "time" not in name}
    return repr(plain | {"properties": properties})
