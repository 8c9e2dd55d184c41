"""Exports and imports on Spark that are killed at random moments: none is taken for complete, and
imports are resumed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import morag
from morag.backend.rocksdb.synced_note import NAME as SYNCED_NOTE
from morag.cli.transfer_flags import EXISTS
from morag.errors import ArchiveInvalid
from morag.versions.transfer.archive import ArchiveReader
from tests.sampling import hypothesis_seed
from tests.transfer.comparing import assert_same
from tests.transfer.exported_history import ExportedHistory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]  # Spark is slow on busy machines.

_COMMITS: Final = 6_000
_GROUP: Final = "400"
_KILLS: Final = 3
_POLL_SECONDS: Final = 0.05


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ExportedHistory:
    return ExportedHistory(tmp_path_factory.mktemp("exported"), _COMMITS)


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_an_import_that_is_killed_is_resumed(
    exported: ExportedHistory, tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "store"
    store = f"{engine}:{path}"
    # RocksDB cannot open a directory whose creation was interrupted.
    created = path / SYNCED_NOTE if engine == "rocksdb" else path
    random = Random(hypothesis_seed())
    arguments = ["import", str(exported.path), "--store", store, "--group-commits", _GROUP]
    longest_seconds = 8.0
    kills = 0
    while kills < _KILLS:
        again = ["--resume"] if path.exists() and kills else []
        started = time.monotonic()
        if _run_and_kill(
            tmp_path, [*arguments, *again], created.exists, random.uniform(0, longest_seconds)
        ):
            kills += 1
        else:  # It was faster, and ended.
            longest_seconds = (time.monotonic() - started) / 2
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            kills = 0
    # The last kill may have come after the last write; then there is nothing to resume.
    resumed = subprocess.run([*_command([*arguments, "--resume"]), "--quiet"], cwd=tmp_path)
    assert resumed.returncode in (0, EXISTS)
    with (
        morag.open(store, read_only=True) as found,
        morag.open(exported.store, read_only=True) as expected,
    ):
        assert assert_same(found, expected) >= _COMMITS
    check = [sys.executable, "-m", "morag", "admin", "check", "--store", store]
    subprocess.run(check, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)


def test_an_export_that_is_killed_is_not_one(exported: ExportedHistory, tmp_path: Path) -> None:
    path = tmp_path / "files"
    arguments = ["export", str(path), "--store", exported.store, "--file-commits", _GROUP]
    files = path / "commits-00000003"
    assert _run_and_kill(tmp_path, arguments, files.exists, 0), "it ended before it was killed"
    with pytest.raises(ArchiveInvalid, match="one that did not end"):
        ArchiveReader(path)


def _command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "morag", "spark", *arguments, "--master", "local[2]"]


def _run_and_kill(
    directory: Path, arguments: list[str], has_begun: Callable[[], bool], seconds: float
) -> bool:
    """Kill the command, with Java and all workers, so many seconds after it has begun.

    Returns whether it was killed: it may end before that. One that is resumed may find that
    the one before had finished.
    """
    process = subprocess.Popen(
        [*_command(arguments), "--quiet"], cwd=directory, start_new_session=True
    )
    try:
        while process.poll() is None and not has_begun():
            time.sleep(_POLL_SECONDS)
        with suppress(subprocess.TimeoutExpired):
            assert process.wait(seconds) in ((0, EXISTS) if "--resume" in arguments else (0,))
            return False
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return True
