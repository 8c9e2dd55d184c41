"""How the commands `morag spark read`, `diff` and `health` name catalogs and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag import ContentKey, Delete, Put
from morag.cli.main import main
from morag.cli.spark_text import table_text

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from pyspark.sql import SparkSession

    from morag.spark.opening import Origin
    from tests.spark.iceberg_lake import Lake


def test_a_key_is_accepted_as_diff_shows_it(
    spark: SparkSession, lake: Lake, origin: Origin, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.make("db.orders", rows=2)
    lake.catalog.references.create_branch("dev", at="main")
    lake.on("dev").grow("db.orders", 3)
    plain, dotted = ContentKey.of("db", "orders"), ContentKey.of("db", "or.ders")
    for branch in ("main", "dev"):
        content = lake.catalog.contents.get(branch, plain)
        lake.catalog.commit(branch, [Delete(plain), Put(dotted, content)], "put a dot into it")
    diff = ["spark", "diff", "main", "dev", "--store", str(origin.store), "--quiet"]
    assert main(diff) == 0
    sign, shown, *_ = capsys.readouterr().out.split()
    assert (sign, shown) == ("~", ".db.or*.ders")
    assert main([*diff, "--rows", shown, "--json"]) == 0
    rows = [msgspec.json.decode(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["_change"] for row in rows] == ["ADDED"] * 3
    assert main([*diff, "--rows", "db.or.ders"]) == 1
    assert "Neither 'main' nor 'dev' has a table 'db.or.ders'" in capsys.readouterr().err


def test_the_store_can_be_named_in_a_file(
    spark: SparkSession,
    lake: Lake,
    origin: Origin,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    lake.make("db.orders")
    (tmp_path / "store").write_text(f"{origin.store}\n")
    read = ["spark", "read", "entries", "--columns", "key", "--quiet"]
    assert main([*read, "--store-file", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.splitlines() == ["key", "db", "db.orders"]
    assert main([*read, "--store-file", str(tmp_path / "absent")]) == 1
    assert "'store_file' cannot be read" in capsys.readouterr().err


def test_long_values_are_cut_except_paths() -> None:
    path, message = f"s3://lake/{'x' * 80}/1.parquet", "y" * 80
    head, line = table_text([{"path": path, "message": message}]).splitlines()
    assert head.split() == ["path", "message"]
    assert line == f"{path}  {'y' * 59}…"
