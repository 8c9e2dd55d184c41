"""Garbage collection on S3, for a catalog behind a server."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from morag.client import Client
from morag.spark import gc
from morag.spark.files import Files
from morag.spark.opening import Origin
from morag.versions.world import World
from tests.serving import Served
from tests.spark.lake import Lake
from tests.spark.reachability import Reachability
from tests.spark.scene import paths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # Spark is slow on machines that are busy.

BUCKET = "lake"
LATER = World(clock_nanos=lambda: time_ns() + 30 * 86_400 * 10**9)


@pytest.fixture
def s3() -> Iterator[dict[str, str]]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "s3.endpoint": f"http://{host}:{port}",
        "s3.access-key-id": "any",
        "s3.secret-access-key": "any",
        "s3.region": "us-east-1",
    }
    server.stop()


def test_orphans_on_s3_go_to_quarantine_and_back(
    spark: SparkSession, tmp_path: Path, s3: dict[str, str]
) -> None:
    files = Files(s3)
    _make_bucket(s3)
    with Served(tmp_path) as server, Client(server.url) as catalog:
        origin = Origin(uri=server.url)
        lake = Lake(catalog, f"s3://{BUCKET}/warehouse", options=s3)
        lake.make("db.t")
        lake.grow("db.t")
        lake.make("db.gone")
        lake.drop("db.gone")
        catalog.references.create_branch("gone", "main")
        lake.on("gone").make("db.too")
        catalog.references.delete("gone")
        before = _files(files)
        live = Reachability(s3).files(catalog, lambda name: 1)

        run = gc.collect(spark, origin, str(tmp_path / "runs"), cutoff="1", files=s3, world=LATER)
        assert paths(run.orphans) == before - live
        assert _files(files) == before
        gc.sweep(spark, run.path, origin, files=s3)
        assert _files(files) == live
        gc.undo(spark, run.path, files=s3)
        assert _files(files) == before


def _make_bucket(s3: dict[str, str]) -> None:
    with urlopen(Request(f"{s3['s3.endpoint']}/{BUCKET}", method="PUT")) as answer:
        assert answer.status == 200


def _files(files: Files) -> set[str]:
    found = files.walk(f"s3://{BUCKET}/warehouse", lambda name: False)
    return {each.path for each in found}
