"""`morag spark fsck` reports the same as the check without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec import json

import morag
from morag.backend.urls import open_backend
from morag.cli.main import main
from morag.format.objects import KINDS
from morag.spark.errors import CannotRun
from morag.spark.fsck import check, fsck
from morag.spark.opening import Origin
from tests.maintenance.damaged_store import fill_repository, found
from tests.safety.full_repository import SMALL

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from morag.backend.base import Row
    from morag.logic.findings import Finding


@pytest.fixture(params=["sqlite", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    url = f"{request.param}:{tmp_path / 'store'}"
    with morag.open(url, SMALL) as repo:
        fill_repository(repo)
    return url


def columns(finding: Finding) -> tuple[str | None, ...]:
    texts = finding.id.hex(), finding.kind, finding.problem, finding.role, finding.needed_by
    return tuple(text or None for text in texts)


def damage(store: str) -> list[Row]:
    """Delete an object of each kind but two, and flip a bit in another one of each."""
    backend = open_backend(store)
    damaged = []
    rows = sorted(backend.scan_rows(""), key=lambda row: row.id)
    for kind in sorted(KINDS.keys() - {"c", "u"}):
        gone, flipped = ([row for row in rows if row.kind == kind] * 2)[:2]
        backend.delete_rows("", [gone.id])
        damaged.append(gone)
        if flipped is not gone:
            data = flipped.data[:-1] + bytes([flipped.data[-1] ^ 1])
            changed = type(flipped)(flipped.id, flipped.kind, data)
            assert backend.swap_row("", flipped, changed)
            damaged.append(flipped)
    backend.close()
    return damaged


def test_an_intact_store_has_no_findings_while_a_server_has_it(
    spark: SparkSession, store: str
) -> None:
    with morag.open(store):
        checked = check(spark, Origin(store=store))
    assert checked.findings.collect() == []
    assert checked.totals.commits == checked.totals.reachable > 30
    assert checked.totals.objects["COMMIT"] == checked.totals.commits


def test_all_damage_is_reported_as_without_spark(spark: SparkSession, store: str) -> None:
    damaged = damage(store)
    backend = open_backend(store, read_only=True)
    expected = {columns(finding)[:4] for finding in found(backend)}
    backend.close()
    reported = fsck(spark, Origin(store=store)).collect()
    assert {tuple(row)[:4] for row in reported} == expected
    ids = {row.id for row in reported}
    assert ids and ids <= {row.id.hex() for row in damaged}


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_the_command_prints_findings_and_exits_with_3(
    spark: SparkSession, store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fsck = ["spark", "fsck", "--store", store, "--quiet"]
    assert main(fsck) == 0
    assert capsys.readouterr().out == ""
    backend = open_backend(store)
    value = next(row for row in backend.scan_rows("") if row.kind == "v")
    backend.delete_rows("", [value.id])
    backend.close()
    assert main([*fsck, "--json"]) == 3
    shown = json.decode(capsys.readouterr().out)
    assert (shown["id"], shown["kind"], shown["role"]) == (value.id.hex(), "VALUE", "value")
    assert main([*fsck, "--output", str(tmp_path / "report")]) == 3
    assert [row.id for row in spark.read.parquet(str(tmp_path / "report")).collect()] == [
        value.id.hex()
    ]


def test_a_server_is_refused(spark: SparkSession) -> None:
    with pytest.raises(CannotRun, match="rows of a store"):
        fsck(spark, Origin(uri="http://127.0.0.1:1"))
