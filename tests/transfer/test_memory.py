"""The memory of `morag import` does not grow with the number of commits."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.transfer.written_archive import write_archive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

_KEYS: Final = 100
_REPORTING: Final = """
import re, sys
from morag.cli.main import main
assert main(sys.argv[1:]) == 0
print(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
"""
_MARGIN_MB: Final = 60


def test_five_times_as_many_commits_need_no_more_memory(tmp_path: Path) -> None:
    """Caches are filled by the shorter history. Keeping all indexes would take 110 MB more."""
    few, many = (peak_mb(tmp_path, "rocksdb", commits) for commits in (5_000, 25_000))
    assert many < few + _MARGIN_MB


def peak_mb(directory: Path, engine: str, commits: int) -> float:
    archive = directory / f"{commits}"
    write_archive(archive, commits, _KEYS)
    store = f"{engine}:{directory / f'store-{commits}'}"
    return peak_mb_of("import", str(archive), "--store", store, "--quiet", directory=directory)


def peak_mb_of(*arguments: str, directory: Path) -> float:
    """The most memory that a command had.

    The process reports it itself: what `os.wait4` returns begins with the memory of this one.
    """
    command = [sys.executable, "-c", _REPORTING, *arguments]
    done = subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1]) / 1024
