"""Purges on Spark have the results of purges without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import morag
from morag import ContentKey, Put
from morag.backend.urls import open_backend
from morag.cli.main import main
from morag.config import Settings
from morag.spark.errors import CannotRun
from morag.spark.opening import Origin
from morag.spark.purge import purge
from morag.versions.maintenance.purge import purge as purge_without_spark
from morag.versions.maintenance.purge_report import PurgeRequest
from morag.versions.world import World
from tests.maintenance.purge_scenario import SMALL, a_table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOW = PurgeRequest(grace_seconds=0, settle_seconds=0)


def with_garbage(url: str) -> str:
    with morag.open(url, SMALL) as repo:
        for branch in ("main", "side"):
            if branch != "main":
                repo.references.create_branch(branch, "main")
            for n in range(6):
                tables = [(f"{branch}{n}-{k}", a_table(f"{n}-{k}")) for k in range(9)]
                repo.commit(
                    branch, [Put(ContentKey.of(name), table) for name, table in tables], "m"
                )
        repo.references.delete("side")
    return url


def row_count(url: str) -> int:
    backend = open_backend(url, read_only=True)
    count = sum(1 for _ in backend.scan_rows(""))
    backend.close()
    return count


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_a_purge_on_spark_removes_what_one_without_spark_reports(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    url = with_garbage(f"{engine}:{tmp_path / 'store'}")
    origin, journal = Origin(store=url), tmp_path / "journal"
    backend = open_backend(url, read_only=True)
    expected = purge_without_spark(backend, Settings(), World(), NOW)
    backend.close()
    before = row_count(url)
    assert expected.removed_rows > 50

    dry = purge(spark, origin, NOW)
    assert row_count(url) == before
    found = {(row.outcome, row.reason, row.kind): row.objects for row in dry.collect()}
    wanted: dict[tuple[str, str | None, str], int] = {
        ("would be removed", None, each.kind): each.rows for each in expected.removed
    }
    wanted |= {("stays", each.reason, each.kind): each.rows for each in expected.stays}
    assert found == wanted

    done = purge(spark, origin, replace(NOW, dry_run=False), journal=journal)
    removed = {row.kind: row.objects for row in done.collect() if row.outcome == "removed"}
    assert removed == {each.kind: each.rows for each in expected.removed}
    assert row_count(url) == before - expected.removed_rows
    assert not journal.exists()
    assert main(["admin", "check", "--store", url, "--quiet"]) == 0


def test_a_purge_that_removes_needs_a_journal_and_a_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(CannotRun, match="journal"):
        purge(spark, Origin(store=f"sqlite:{tmp_path / 's'}"), replace(NOW, dry_run=False))
    with pytest.raises(CannotRun, match="rows of a store"):
        purge(spark, Origin(uri="http://127.0.0.1:1"))


def test_the_command_reports_and_removes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = with_garbage(f"sqlite:{tmp_path / 'store'}")
    flags = ["--store", url, "--grace=PT0S", "--settle=PT0S", "--quiet"]
    flags += ["--journal", str(tmp_path / "journal")]
    assert main(["spark", "purge", *flags]) == 0
    assert "dry run: nothing was removed" in capsys.readouterr().out
    assert main(["spark", "purge", *flags, "--no-dry-run", "--json"]) == 0
    assert '"reason":"reachable"' in capsys.readouterr().out
    assert main(["admin", "purge", *flags]) == 0
    assert "would be removed:\n  in all                     0 objects" in capsys.readouterr().out
