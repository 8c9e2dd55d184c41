"""Jobs that are killed while files move: whoever comes next goes on, and can undo it all."""

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
from tests.spark.scene import Scene, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

_ROOT: Final = Path(__file__).parents[2]
_LITTER: Final = 20_000
"""So many that they take a while, and a job dies in the middle."""


def test_a_killed_sweep_is_swept_again_and_undone(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene = Scene(spark, tmp_path)
    scene.lake.make("db.t")
    scene.lake.make("db.gone")
    scene.lake.drop("db.gone")
    data = scene.warehouse / "db" / "t" / "data"
    for number in range(_LITTER):
        (data / f"litter-{number}.parquet").write_bytes(b"%d" % number)
    before, live = _contents(scene), scene.live(lambda name: 1)
    run = scene.collect(cutoff="1", grace="PT0S")
    orphans = paths(run.orphans)
    assert orphans == scene.files() - live
    assert len(orphans) > _LITTER
    waiting = data / ".morag-quarantine" / run.plan.id
    catalog = ["--store", f"sqlite:{tmp_path}/catalog.db"]
    sweep = ["spark", "gc", "sweep", run.path, "--no-dry-run", *catalog]
    undo = ["spark", "gc", "undo", run.path]

    def refuses_until_unlocked(job: list[str]) -> None:
        assert main(job) == 1
        assert "morag spark gc unlock" in capsys.readouterr().err
        assert main(["spark", "gc", "unlock", run.path]) == 0

    _kill(sweep, "doomed", at=lambda: True)
    assert scene.files() == orphans | live
    refuses_until_unlocked(sweep)

    _kill(sweep, "removed", at=lambda: any(each.is_file() for each in waiting.rglob("*")))
    assert live < scene.files() < orphans | live, "some have moved, and some have not"
    assert not Run(spark, run.path).has("removed")
    refuses_until_unlocked(sweep)

    assert main(sweep) == 0
    assert f"removed: quarantined {len(orphans)} files" in capsys.readouterr().out
    assert scene.files() == live
    assert paths(Run(spark, run.path).removed) == orphans

    _kill(undo, "undone", at=lambda: any(data.glob("litter-*")))
    assert live < scene.files() < orphans | live, "some are back, and some are not"
    refuses_until_unlocked(undo)

    assert main(undo) == 0
    assert _contents(scene) == before
    assert not list(scene.warehouse.rglob(".morag-quarantine"))
    scene.close()


def _contents(scene: Scene) -> dict[str, bytes]:
    names = (Path(each.removeprefix("file://")) for each in scene.files())
    return {str(path): path.read_bytes() for path in names}


def _kill(job: Sequence[str], stage: str, at: Callable[[], bool]) -> None:
    """Run a job until it is in that stage, and then until the moment `at`, when all of it dies."""
    process = subprocess.Popen(
        [sys.executable, "-m", "morag", *job, "--master", "local[2]"],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if line.startswith(f"{stage}: "):
                break
        else:
            pytest.fail(f"it was to be in the stage '{stage}', but said {said}")
        while not at():
            assert process.poll() is None, "it is to be killed at work"
            sleep(0.001)  # Nobody tells of a file that moves.
    finally:
        while alive := _processes(session=process.pid):
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def _processes(session: int) -> list[int]:
    """Its JVM and, in a group of their own, its workers, which would go on for a moment."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # After the name, which may be anything: state, parent, group, session.
            state, _, _, sid = (directory / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.append(int(directory.name))
    return found
