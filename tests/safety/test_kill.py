"""Killed at any moment, the store opens again and has everything that was acknowledged, once."""

from __future__ import annotations

import subprocess
import sys
from random import Random
from threading import Timer
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct

import morag
from tests.safety.committer import commit_message
from tests.safety.sound import (
    ROOT,
    check_linear,
    check_once,
    check_readable,
    check_whole,
    child_environment,
    found_names,
    log_of,
)

if TYPE_CHECKING:
    from pathlib import Path

NEWEST = 60  # Of each branch so many commits are checked to the last byte.


class Told(Struct):
    """What the child said before it died: all it tried, and the hashes of what was done."""

    tried: set[str]
    done: dict[str, str]

    def commits(self, words: set[str]) -> dict[str, str]:
        """Message and hash of the commits on main among them."""
        return {commit_message(w): self.done.get(w, "") for w in words if ":" not in w}

    def names(self) -> dict[str, bool | None]:
        """Whether a branch must be there; None where the child died in between."""
        names: dict[str, bool | None] = {}
        for name in {word.partition(":")[2] for word in self.tried if ":" in word}:
            if f"delete:{name}" in self.tried:
                names[name] = False if f"delete:{name}" in self.done else None
            else:
                names[name] = True if f"create:{name}" in self.done else None
        return names


def run_and_kill(url: str, name: str, after_seconds: float, *options: str) -> Told:
    command = [sys.executable, "-m", "tests.safety.committer", url, name, *options]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env=child_environment())
    assert child.stdout is not None
    with child.stdout as out:
        assert out.readline() == b"ready\n", "the child did not start"
        timer = Timer(after_seconds, child.kill)
        timer.start()
        lines = out.read().decode().splitlines(keepends=True)
    timer.join()
    assert child.wait() == -9, "the child ended before it was killed"
    told = Told(set(), {})
    for line in lines:
        if line.endswith("\n"):
            verb, what, *hash = line.split()
            if verb == "try":
                told.tried.add(what)
            else:
                told.done[what] = hash[0]
    return told


def kill_again_and_again(url: str, rounds: int, seed: int) -> None:
    """All rounds on one store, so that each starts from what a killed one left behind."""
    random = Random(seed)
    told = Told(set(), {})
    for round in range(rounds):
        one = run_and_kill(url, f"r{round}", random.uniform(0.0, 0.35), "--references")
        told.tried |= one.tried
        told.done |= one.done
        with morag.open(url) as repo:
            log = log_of(repo, "main")
            check_linear(log)
            check_once(log, told.commits(set(told.done)), told.commits(told.tried))
            check_whole(repo, log, NEWEST)
            check_readable(repo, "main")
            names = told.names()
            there = found_names(repo, names)
            assert {name for name, known in names.items() if known} <= there
            assert not {name for name, known in names.items() if known is False} & there
    assert len(told.done) > rounds, "too little was done to prove anything"


@pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    scheme: str, tmp_path: Path
) -> None:
    kill_again_and_again(f"{scheme}:{tmp_path / 'store'}", rounds=5, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])
def test_nothing_acknowledged_is_lost_however_often_the_process_is_killed(
    scheme: str, seed: int, tmp_path: Path
) -> None:
    kill_again_and_again(f"{scheme}:{tmp_path / 'store'}", rounds=12, seed=100 + seed)
