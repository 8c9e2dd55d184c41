"""Garbage collection in a lake that Spark wrote, with most kinds of files of Iceberg."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

import pytest

from morag.client import Client
from morag.spark import gc
from morag.spark.health import report
from morag.spark.opening import Origin
from tests.interop.spark_settings import add_catalog
from tests.server_process import Served
from tests.spark.iceberg_lake import Lake
from tests.spark.reachable_files import Reachability, path_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # PySpark leaves sockets open.
]

_MERGE_ON_READ: Final = ", ".join(
    f"'write.{verb}.mode' = 'merge-on-read'" for verb in ("delete", "update", "merge")
)
_GZIPPED: Final = "'write.metadata.compression-codec' = 'gzip'"
_FORGETFUL: Final = "'write.metadata.previous-versions-max' = '1'"
_READ: Final = {
    "main": ("v2", "v3", "parts", "moved", "overwritten", "view"),
    "dev": ("v2", "v3", "parts", "moved", "overwritten", "gone", "only_here", "view"),
}


def test_exactly_the_files_that_spark_no_longer_needs_are_removed(
    iceberg: SparkSession, tmp_path: Path
) -> None:
    with Served(tmp_path) as served, Client(served.url) as client:
        warehouse = tmp_path / "warehouse"
        origin, runs = Origin(uri=served.url), str(tmp_path / "runs")
        _write(iceberg, served, client, warehouse)
        before, rows = _files(warehouse), _rows(iceberg)
        needed = {path_of(each) for each in Reachability().files(client, lambda name: 1)}
        assert needed <= before.keys()
        assert _kinds(needed) >= {".gz.metadata.json", ".puffin", "-deletes.parquet", ".stats"}

        run = gc.collect(iceberg, origin, runs, cutoff="1", grace="PT0S")
        orphans = _paths(run.orphans)
        assert orphans == before.keys() - needed
        assert _kinds(orphans) >= {".gz.metadata.json", ".metadata.json", ".avro", ".parquet"}
        assert run.problems.isEmpty()

        gc.sweep(iceberg, run.path, origin, dry_run=False)
        assert _files(warehouse) == {path: before[path] for path in needed}
        assert _rows(iceberg) == rows
        for branch in _READ:
            reported = report(iceberg, origin, branch, deep=True, orphans=run).collect()
            assert len(reported) == len(_READ[branch]) + 1  # The tables and their namespace.
            assert {(row.status, row.problem) for row in reported} == {("OK", None)}
            assert {row.missing_files for row in reported} <= {0, None}

        gc.undo(iceberg, run.path)
        assert _files(warehouse) == before
        assert _rows(iceberg) == rows


def _write(spark: SparkSession, served: Served, client: Client, warehouse: Path) -> None:
    """Tables of all kinds on `main`, then on `dev` as well, and garbage of all kinds."""

    def run_sql(*statements: str) -> None:
        for statement in statements:
            spark.sql(statement)

    add_catalog(spark, "gc_main", served.url, 2, warehouse, "main")
    run_sql("CREATE NAMESPACE gc_main.db")
    for version in (2, 3):
        table = f"gc_main.db.v{version}"
        run_sql(
            f"CREATE TABLE {table} (id BIGINT, word STRING) USING iceberg "
            f"TBLPROPERTIES ('format-version' = '{version}', {_MERGE_ON_READ}, {_FORGETFUL})",
            f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 'word' FROM range(8)",
            f"DELETE FROM {table} WHERE id = 2",  # Position deletes, or a deletion vector.
            f"UPDATE {table} SET word = 'drei' WHERE id = 3",
        )
    run_sql(
        "CREATE TABLE gc_main.db.parts (id BIGINT, word STRING, day DATE) USING iceberg "
        f"PARTITIONED BY (word, days(day)) TBLPROPERTIES ({_GZIPPED}, {_FORGETFUL})",
        # Names that a URI must escape, and one that looks like a hidden file.
        "INSERT INTO gc_main.db.parts VALUES (1, 'a/b c%20#?', DATE '2024-02-29'), (2, '_x', NULL)",
        "ALTER TABLE gc_main.db.parts ADD PARTITION FIELD bucket(2, id)",
        "INSERT INTO gc_main.db.parts VALUES (3, 'später', DATE '1969-12-31')",
        "CALL gc_main.system.compute_table_stats('db.parts')",
        "CALL gc_main.system.compute_partition_stats('db.parts')",
        f"CREATE TABLE gc_main.db.moved (id BIGINT) USING iceberg TBLPROPERTIES ({_FORGETFUL})",
        "INSERT INTO gc_main.db.moved VALUES (1)",
        f"ALTER TABLE gc_main.db.moved SET LOCATION 'file:{warehouse}/elsewhere/moved'",
        "INSERT INTO gc_main.db.moved VALUES (2)",
        "CREATE TABLE gc_main.db.overwritten (id BIGINT) USING iceberg",
        "INSERT INTO gc_main.db.overwritten VALUES (1)",
        "CREATE TABLE gc_main.db.gone (id BIGINT) USING iceberg",
        "INSERT INTO gc_main.db.gone VALUES (1)",
        "CREATE VIEW gc_main.db.view AS SELECT count(*) AS n FROM gc_main.db.v3",
    )
    client.references.create_branch("dev", at="main")
    add_catalog(spark, "gc_dev", served.url, 2, warehouse, "dev")
    run_sql(
        "INSERT INTO gc_dev.db.v3 VALUES (9, 'dev')",
        "DELETE FROM gc_dev.db.v3 WHERE id = 4",
        "CREATE TABLE gc_dev.db.only_here USING iceberg AS SELECT id FROM range(3)",
        "INSERT OVERWRITE gc_main.db.overwritten VALUES (2), (3)",
        "CREATE OR REPLACE VIEW gc_main.db.view AS SELECT max(id) AS most FROM gc_main.db.v2",
        "DELETE FROM gc_main.db.v3 WHERE id = 5",
        "DROP TABLE gc_main.db.gone",
        f"CREATE TABLE gc_main.db.lost (id BIGINT) USING iceberg TBLPROPERTIES ({_GZIPPED})",
        "INSERT INTO gc_main.db.lost VALUES (1)",
        "DROP TABLE gc_main.db.lost",
        "CREATE VIEW gc_main.db.lost_view AS SELECT 1 AS one",
        "DROP VIEW gc_main.db.lost_view",
    )
    Lake(client, warehouse.as_uri()).expire("db.overwritten")
    client.references.create_branch("etl", at="main")
    add_catalog(spark, "gc_etl", served.url, 2, warehouse, "etl")
    run_sql("INSERT INTO gc_etl.db.parts VALUES (4, 'lost', NULL)", "DROP TABLE gc_etl.db.v2")
    client.references.delete("etl")


def _rows(spark: SparkSession) -> dict[str, list[str]]:
    """The rows of all tables on both branches."""
    tables = [f"gc_{branch}.db.{name}" for branch, names in _READ.items() for name in names]
    return {name: sorted(map(str, spark.table(name).collect())) for name in tables}


def _files(warehouse: Path) -> dict[Path, bytes]:
    """A hash of each file, without hidden files such as Hadoop's checksums."""
    return {
        path: sha256(path.read_bytes()).digest()
        for path in warehouse.rglob("*")
        if path.is_file()
        and not path.name.startswith(".")
        and ".morag-quarantine" not in path.parts
    }


def _paths(frame: DataFrame) -> set[Path]:
    return {path_of(row.path) for row in frame.select("path").collect()}


def _kinds(paths: set[Path]) -> set[str]:
    """The suffixes of the paths, as far as a test checks them."""
    ends = (".metadata.json", ".gz.metadata.json", ".avro", ".parquet", "-deletes.parquet",
            ".puffin", ".stats")  # fmt: skip
    return {end for end in ends for path in paths if path.name.endswith(end)}
