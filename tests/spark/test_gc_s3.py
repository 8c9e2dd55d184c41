"""Garbage collection on S3, for a catalog behind a server."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

import pytest

from morag.client import Client
from morag.spark import gc
from morag.spark.files import Files
from morag.spark.opening import Origin
from morag.versions.world import World
from tests.server_process import Served
from tests.spark.gc_scenario import paths
from tests.spark.iceberg_lake import ROWS, Lake
from tests.spark.reachable_files import Reachability
from tests.spark.s3_buckets import bucket, put

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.

LATER = World(clock_nanos=lambda: time_ns() + 30 * 86_400 * 10**9)


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    with bucket("lake", "other", "away") as options:
        yield options


@pytest.mark.long
def test_orphans_of_two_buckets_go_to_quarantine_and_back(
    spark: SparkSession, tmp_path: Path, s3: dict[str, str]
) -> None:
    files = Files(s3)
    with Served(tmp_path) as server, Client(server.url) as catalog:
        origin = Origin(uri=server.url)
        lake = Lake(catalog, "s3://lake/warehouse", options=s3)
        lake.make("db.t")
        lake.grow("db.t")
        lake.make("db.gone")
        lake.drop("db.gone")
        catalog.references.create_branch("gone", "main")
        lake.on("gone").make("db.too")
        catalog.references.delete("gone")
        lake.create_table("db.other", ROWS, location="s3://other/warehouse/db/t")
        for name in ("lake", "other"):
            put(s3, f"s3://{name}/warehouse/db/t/data/litter", name.encode())
        before = _files(files)
        live = Reachability(s3).files(catalog, lambda name: 1)

        run = gc.collect(
            spark,
            origin,
            str(tmp_path / "runs"),
            cutoff="1",
            quarantine="s3://away",
            files=s3,
            world=LATER,
        )
        assert paths(run.orphans) == before - live
        assert _files(files) == before
        half = min(before - live)  # A move that was stopped before the file itself was deleted.
        put(s3, run.plan.quarantined(half), files.read(half))
        gc.sweep(spark, run.path, origin, dry_run=False, files=s3)
        assert _files(files) == live
        gc.undo(spark, run.path, files=s3)
        assert _files(files) == before
        for name in ("lake", "other"):
            assert files.read(f"s3://{name}/warehouse/db/t/data/litter") == name.encode()


def _files(files: Files) -> set[str]:
    return {
        found.path
        for name in ("lake", "other")
        for found in files.walk(f"s3://{name}/warehouse", lambda name: False)
    }
