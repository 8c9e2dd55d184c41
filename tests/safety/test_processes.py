"""Several processes on one store: SQLite lets them all in, RocksDB only one at a time."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import morag
from morag.errors import StoreLocked
from tests.safety.committer import commit_message
from tests.safety.sound import (
    ROOT,
    check_linear,
    check_once,
    check_readable,
    check_whole,
    child_environment,
    log_of,
)

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES, THREADS = 2, 4


def start(url: str, name: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.safety.committer", url, name, *options]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=child_environment(), text=True
    )


def commit_from_all(url: str, commits: int) -> None:
    """They also open the store at once, while it is new."""
    options = ("--threads", str(THREADS), "--commits", str(commits))
    children = [start(url, f"p{n}", *options) for n in range(PROCESSES)]
    lines = [line for child in children for line in child.communicate(timeout=600)[0].splitlines()]
    assert [child.returncode for child in children] == [0] * PROCESSES, "somebody failed"
    done = [line.split() for line in lines if line.startswith("done ")]
    acknowledged = {commit_message(name): hash for _, name, hash in done}
    assert len(acknowledged) == PROCESSES * THREADS * commits
    with morag.open(url) as repo:
        log = log_of(repo, "main")
        check_linear(log)
        check_once(log, acknowledged, acknowledged)
        assert len(log) == len(acknowledged)
        check_whole(repo, log, 100)
        check_readable(repo, "main")


def test_two_processes_commit_to_one_branch_of_one_file(tmp_path: Path) -> None:
    commit_from_all(f"sqlite:{tmp_path / 'morag.db'}", commits=20)


@pytest.mark.long
@pytest.mark.parametrize("round", range(5))
def test_two_processes_commit_to_one_branch_for_longer(tmp_path: Path, round: int) -> None:
    commit_from_all(f"sqlite:{tmp_path / 'morag.db'}", commits=200)


def test_a_second_process_is_kept_out_of_rocksdb_until_the_first_is_gone(tmp_path: Path) -> None:
    url = f"rocksdb:{tmp_path / 'store'}"
    child = start(url, "first")
    assert child.stdout is not None
    with child.stdout as out:
        assert out.readline() == "ready\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            morag.open(url)
        child.kill()
        out.read()
    child.wait(timeout=30)
    with morag.open(url) as repo:
        check_linear(log_of(repo, "main"))
