"""Drivers that are killed at random copy a branch, and every commit arrives once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest

from morag.client import Client
from morag.spark.source.exactly_once import BATCH
from tests.server_process import Served
from tests.spark.scratch_branch import Branch

pytestmark = pytest.mark.long

_ROOT: Final = Path(__file__).parents[2]
_LIVES: Final = 8
_PATIENCE_SECONDS: Final = 600


def test_every_commit_arrives_once_however_often_the_driver_is_killed(tmp_path: Path) -> None:
    random = Random(11)
    with Served(tmp_path) as served, Client(served.url) as client:
        source, target = (Branch(client, served.url, name) for name in ("source", "target"))
        arguments = [served.url, source.name, target.name, str(tmp_path / "checkpoint")]
        made: list[str] = []
        for _ in range(_LIVES):
            with _copier(arguments) as process:
                for _ in range(random.randint(3, 9)):
                    made.append(f"c{len(made)}")
                    source.commit(made[-1])
                # Some processes are killed after their first batch, others at any time.
                _await(process, *random.choice(([], ["batch"])))
                with suppress(subprocess.TimeoutExpired):
                    process.wait(random.uniform(0, 3))
                assert process.poll() is None, "the process ended before it was killed"
                os.killpg(process.pid, signal.SIGKILL)
        with _copier(arguments) as process:  # This one is not killed.
            process.communicate(timeout=_PATIENCE_SECONDS)
        assert process.returncode == 0
        log = target.log()
        arrived = [str(op.key) for entry in log for op in entry.operations or ()]
        assert sorted(arrived) == sorted(made)
        numbers = [int(entry.meta.properties[BATCH][0]) for entry in log]
        assert numbers == sorted(set(numbers))


def _copier(arguments: list[str]) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.copier_process", *arguments],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # So that its JVM and its workers can be killed with it.
        text=True,
    )
    _await(process, "started")
    return process


def _await(process: subprocess.Popen[str], *words: str) -> None:
    assert process.stdout is not None
    for word in words:
        assert process.stdout.readline() == f"{word}\n"
