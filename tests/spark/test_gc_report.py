"""A run tells why files stay, and recommends only what will work."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from morag import ContentKey, DeltaLakeTable, Put
from morag.cli.main import main
from morag.spark import gc
from morag.spark.gc.steps import DOOMED
from tests.spark.gc_scenario import paths, write_file
from tests.spark.reachable_files import path_of

if TYPE_CHECKING:
    from tests.spark.gc_scenario import Scenario

pytestmark = pytest.mark.timeout(600)  # Spark is slow on busy machines.

_FAR_FUTURE_SECONDS: Final = 4_000_000_000


def test_every_listed_file_is_an_orphan_or_has_a_reason_to_stay(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, home = scenario.lake, scenario.warehouse / "db" / "t"
    lake.make("db.t")
    lake.make("db.lost")
    path_of(lake.metadata_location("db.lost")).unlink()
    log = write_file(home / "delta" / "_delta_log" / "0.json")
    delta = DeltaLakeTable(metadata_location_history=(log.as_uri(),))
    scenario.catalog.commit("main", [Put(ContentKey.of("delta"), delta)], "a Delta table")
    write_file(home / "delta" / "0.parquet", b"12345")
    orphan = write_file(home / "data" / "orphan.parquet", b"123")
    young = write_file(home / "data" / "young.parquet", b"1234567")
    os.utime(young, (_FAR_FUTURE_SECONDS, _FAR_FUTURE_SECONDS))
    scenario.age()
    run = scenario.collect(cutoff="1")
    assert paths(run.orphans) == {orphan.as_uri()}
    kept = {row.reason: row for row in run.read("kept-files").collect()}
    assert kept.keys() == {"LIVE", "PROTECTED", "NOT UNDERSTOOD", "YOUNG"}
    assert sum(row.files for row in kept.values()) + 1 == run.read("listed").count()
    assert (kept["YOUNG"].files, kept["YOUNG"].size_bytes) == (1, 7)
    assert (kept["PROTECTED"].files, kept["PROTECTED"].size_bytes) == (1, 5)
    lost = {each for each in scenario.files() if "/db/lost/" in each}
    assert kept["NOT UNDERSTOOD"].files == len(lost) > 0

    assert main(["spark", "gc", "resume", run.path, "--store", scenario.origin.store or ""]) == 0
    printed = capsys.readouterr().out
    assert "  orphans: 1 files, 3 B\n" in printed
    assert f"  kept: {kept['LIVE'].files} files, " in printed
    assert "  kept: 1 files, 5 B: protected: in directories of contents that are" in printed
    assert f"  kept: {len(lost)} files, " in printed
    assert "  kept: 1 files, 7 B: younger than the grace period of P3D; the newest is" in printed
    assert "old enough at 2096-10-05T07:06:41Z\n" in printed
    assert "dry run: the run cannot be swept. Nothing is removed, because 1 metadata" in printed
    assert "gc sweep" not in printed


@pytest.mark.long
def test_sweep_and_purge_are_dry_runs_unless_told(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.lake.make("db.t")
    scenario.lake.make("db.gone")
    scenario.lake.drop("db.gone")
    young = scenario.collect(cutoff="1")
    resume = ["spark", "gc", "resume", young.path, "--store", scenario.origin.store or ""]
    assert main(resume) == 0
    printed = capsys.readouterr().out
    assert "there is nothing to sweep; collect again when the young files are old en" in printed
    assert "gc sweep" not in printed

    scenario.age()
    before = scenario.files()
    gone = {each for each in before if "/db/gone/" in each}
    run = scenario.collect(cutoff="1")
    swept = gc.sweep(scenario.spark, run.path, scenario.origin)
    assert scenario.files() == before
    assert paths(swept.orphans) == gone
    assert not swept.has(DOOMED)
    assert main([*resume[:3], run.path, *resume[4:]]) == 0
    catalog = f"--store {scenario.origin.store}"
    assert f"`morag spark gc sweep {run.path} {catalog} --no-dry-run` m" in capsys.readouterr().out

    scenario.sweep(run)
    assert scenario.files() == before - gone
    purged = gc.purge(scenario.spark, run.path, scenario.origin)
    assert paths(purged.quarantined) == gone
    waiting = {row.quarantined for row in purged.quarantined.collect()}
    assert all(path_of(each).exists() for each in waiting)
    assert main([*resume[:3], run.path, *resume[4:]]) == 0
    assert "files are in quarantine already: `morag spark gc undo" in capsys.readouterr().out

    scenario.purge(run)
    assert not any(path_of(each).exists() for each in waiting)
    assert paths(run.quarantined) == set()
    assert main(["spark", "gc", "purge", run.path, *resume[4:]]) == 0
    assert "there is nothing in quarantine to purge" in capsys.readouterr().out
