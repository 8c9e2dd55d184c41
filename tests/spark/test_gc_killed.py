"""Jobs that are killed while they move files: the next job continues, and undo restores all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final

import pytest

from morag.cli.main import main
from morag.spark.gc import Run
from morag.spark.gc.steps import DOOMED, REMOVED
from tests.spark.gc_scenario import Scenario, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]  # Spark is slow on busy machines.

_ROOT: Final = Path(__file__).parents[2]
_LITTER: Final = 20_000
"""Enough files that a job can be killed while it moves them."""


def test_a_killed_sweep_is_swept_again_and_undone(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = Scenario(spark, tmp_path)
    scenario.lake.make("db.t")
    scenario.lake.make("db.gone")
    scenario.lake.drop("db.gone")
    data = scenario.warehouse / "db" / "t" / "data"
    for number in range(_LITTER):
        (data / f"litter-{number}.parquet").write_bytes(b"%d" % number)
    before, live = _contents(scenario), scenario.live(lambda name: 1)
    run = scenario.collect(cutoff="1", grace="PT0S")
    orphans = paths(run.orphans)
    assert orphans == scenario.files() - live
    assert len(orphans) > _LITTER
    waiting = data / ".morag-quarantine" / run.plan.id
    doomed = Path(run.path.removeprefix("file://")) / DOOMED.name
    catalog = ["--store", f"sqlite:{tmp_path}/catalog.db"]
    sweep = ["spark", "gc", "sweep", run.path, "--no-dry-run", *catalog]
    undo = ["spark", "gc", "undo", run.path]

    def is_refused_until_unlocked(job: list[str]) -> None:
        assert main(job) == 1
        assert "morag spark gc unlock" in capsys.readouterr().err
        assert main(["spark", "gc", "unlock", run.path]) == 0

    _kill(sweep, at=doomed.exists)
    assert scenario.files() == orphans | live
    is_refused_until_unlocked(sweep)

    _kill(sweep, at=lambda: any(each.is_file() for each in waiting.rglob("*")))
    assert live < scenario.files() < orphans | live, "some files were moved, and some were not"
    assert not Run(spark, run.path).has(REMOVED)
    is_refused_until_unlocked(sweep)

    assert main(sweep) == 0
    assert f"removed: quarantined {len(orphans)} files" in capsys.readouterr().out
    assert scenario.files() == live
    assert paths(Run(spark, run.path).removed) == orphans

    _kill(undo, at=lambda: any(data.glob("litter-*")))
    assert live < scenario.files() < orphans | live, "some files were restored, and some were not"
    is_refused_until_unlocked(undo)

    assert main(undo) == 0
    assert _contents(scenario) == before
    assert not list(scenario.warehouse.rglob(".morag-quarantine"))
    scenario.close()


def _contents(scenario: Scenario) -> dict[str, bytes]:
    names = (Path(each.removeprefix("file://")) for each in scenario.files())
    return {str(path): path.read_bytes() for path in names}


def _kill(job: Sequence[str], at: Callable[[], bool]) -> None:
    """Run a job until `at` is true, and kill all its processes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "morag", *job, "--master", "local[2]"],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not at():
            assert process.poll() is None, "the job ended before it was killed"
            sleep(0.001)  # Poll, because the job does not report single files.
    finally:
        while alive := _processes(session=process.pid):
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == -signal.SIGKILL


def _processes(session: int) -> list[int]:
    """All processes of the session: its JVM, and the workers, which end a moment after it."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The fields after the name are state, parent, group, session.
            state, _, _, sid = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.append(int(directory.name))
    return found
