"""A generated history in a store, and its export."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import morag
from tests.sampling import hypothesis_seed
from tests.transfer.generated_history import generate

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_SECONDS: Final = 1800


class ExportedHistory:
    """Of this many commits, other ones each day."""

    def __init__(self, directory: Path, commits: int) -> None:
        self.store = f"rocksdb:{directory / 'source'}"
        self.path = directory / "export"
        with morag.open(f"{self.store}?sync=off") as repo:
            generate(repo, commits, hypothesis_seed())
        command("export", str(self.path), "--store", self.store, directory=directory)


def chosen_commits(usual: int) -> int:
    """How many commits to generate: another number if the variable `LARGE_HISTORY` sets it."""
    return int(os.environ.get("LARGE_HISTORY", usual))


def command(*arguments: str, directory: Path) -> None:
    """Run a command of `morag`, which must succeed."""
    whole = [sys.executable, "-m", "morag", *arguments, "--quiet"]
    subprocess.run(whole, cwd=directory, check=True, timeout=_PATIENCE_SECONDS)
