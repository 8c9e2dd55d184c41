"""Several processes on one store: SQLite admits all of them, RocksDB one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from morag.errors import StoreLocked
from tests.safety import committer
from tests.safety.history_checks import check_acknowledged, check_linear, log_of
from tests.sampling import seeds

if TYPE_CHECKING:
    from pathlib import Path

PROCESSES, THREADS = 2, 4


def commit_from_all(url: str, commits: int) -> None:
    """Start all processes at the same time, so that they also race to create the store."""
    options = ("--threads", str(THREADS), "--commits", str(commits))
    children = [committer.start(url, f"p{n}", *options) for n in range(PROCESSES)]
    output = b"".join(child.communicate(timeout=600)[0] for child in children).decode()
    assert [child.returncode for child in children] == [0] * PROCESSES
    done = [line.split() for line in output.splitlines() if line.startswith("done ")]
    acknowledged = {committer.commit_message(name): hash for _, name, hash in done}
    assert len(acknowledged) == PROCESSES * THREADS * commits
    with morag.open(url) as repo:
        log = check_acknowledged(repo, acknowledged, acknowledged, newest=100)
        assert len(log) == len(acknowledged)


def test_two_processes_commit_to_one_branch_of_one_file(tmp_path: Path) -> None:
    commit_from_all(f"sqlite:{tmp_path / 'morag.db'}", commits=20)


@pytest.mark.long
@pytest.mark.parametrize("round", seeds("process rounds"))
def test_two_processes_commit_to_one_branch_for_longer(tmp_path: Path, round: int) -> None:
    commit_from_all(f"sqlite:{tmp_path / 'morag.db'}", commits=200)


def test_rocksdb_refuses_a_second_process_until_the_first_has_ended(tmp_path: Path) -> None:
    url = f"rocksdb:{tmp_path / 'store'}"
    child = committer.start(url, "first")
    assert child.stdout is not None
    with child.stdout as out:
        assert out.readline() == b"ready\n"
        with pytest.raises(StoreLocked, match="in use by another process"):
            morag.open(url)
        child.kill()
        out.read()
    child.wait(timeout=30)
    with morag.open(url) as repo:
        check_linear(log_of(repo, "main"))
