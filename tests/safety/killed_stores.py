"""Stores as a killed process leaves them: all commits are in the log of the engine.

python -m tests.safety.killed_stores URL COMMITS
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import morag
from tests.safety.history_checks import ROOT, child_environment, put

if TYPE_CHECKING:
    from pathlib import Path

COMMITS = 4


def make(url: str) -> None:
    command = [sys.executable, "-m", "tests.safety.killed_stores", url, str(COMMITS)]
    subprocess.run(command, check=True, cwd=ROOT, env=child_environment(), timeout=60)


def copied(store: Path, to: Path) -> Path:
    """Replace the directory `to` by a copy of the store's directory; return the copied store."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(store.parent, to)
    return to / store.name


def flip(path: Path, offset: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1 << bit
    path.write_bytes(data)


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
