"""A repository on RocksDB moves to PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag import ContentKey, Put
from morag.spark import session
from morag.spark.copy import copy
from morag.spark.opening import Origin
from morag.spark.purge import purge
from morag.versions.maintenance.purge_report import PurgeRequest
from tests.maintenance.purge_scenario import SMALL, a_table
from tests.spark.test_copy import content, filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.stores,
    # PySpark leaves its connections to the JVM to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

SERVER: Final = "postgres"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    started = session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    yield started
    started.stop()


def test_a_repository_moves_from_rocksdb_to_postgresql(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    source = filled(f"rocksdb:{tmp_path / 'store'}")
    done = copy(spark, Origin(store=source), Origin(store=url), parts=8)
    assert content(url) == content(source)
    assert done.findings is not None
    assert done.findings.collect() == []
    with morag.open(url, SMALL) as repo:
        repo.commit("side", [Put(ContentKey.of("new"), a_table("new"))], "goes on")
        repo.references.delete("side")
    # Executors delete in parallel.
    request = PurgeRequest(dry_run=False, grace_seconds=0, settle_seconds=0)
    removed = purge(spark, Origin(store=url), request, journal=tmp_path / "journal")
    assert {row.kind for row in removed.collect() if row.outcome == "removed"} >= {"COMMIT"}
    with morag.open(url, SMALL) as repo:
        repo.commit("main", [Put(ContentKey.of("new"), a_table("new"))], "goes on")
