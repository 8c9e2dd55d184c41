"""Stores as a killed process leaves them: all that was committed is in the log.

python -m tests.safety.killed URL COMMITS
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import morag
from tests.safety.sound import ROOT, child_environment, put

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 4


def make(url: str) -> None:
    command = [sys.executable, "-m", "tests.safety.killed", url, str(COMMITS)]
    subprocess.run(command, check=True, cwd=ROOT, env=child_environment(), timeout=60)


def copied(store: Path, to: Path) -> Path:
    """A copy of the store in another directory, in place of what was there."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(store.parent, to)
    return to / store.name


def flip(path: Path, offset: int, bit: int = 0) -> None:
    held = bytearray(path.read_bytes())
    held[offset] ^= 1 << bit
    path.write_bytes(held)


def committed(url: str) -> list[str]:
    """The messages on the branch main, oldest first."""
    with morag.open(url) as repo:
        return [entry.meta.message for entry in repo.history.log("main")][::-1]


def messages(count: int = COMMITS) -> list[str]:
    return [f"commit {n}" for n in range(count)]


def main() -> None:
    repo = morag.open(sys.argv[1])
    for n, message in enumerate(messages(int(sys.argv[2]))):
        repo.commit("main", [put(f"key-{n}")], message)
    os._exit(0)


if __name__ == "__main__":
    main()
