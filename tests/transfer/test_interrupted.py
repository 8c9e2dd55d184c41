"""An import that stops at any moment is resumed, and gives what an undisturbed one gives."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import pytest

import morag
from morag.backend.memory import MemoryBackend
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.versions.repository import Repository
from morag.versions.transfer import commit_writer, imported_references, importing
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.world import World
from tests.backend.faulty import (
    POSSIBLE,
    Fault,
    FaultyBackend,
    InjectedFault,
    Script,
    TogetherBackend,
)
from tests.safety.faulty_stores import BusyBackend
from tests.safety.full_repository import SMALL, fill
from tests.safety.history_checks import ROOT, child_environment
from tests.transfer.copies import assert_intact, export_to, import_from, rows, state
from tests.transfer.written_archive import write_archive

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from morag.backend.base import Backend

WRITES = ("insert_rows", "swap_ref", "apply", "apply_all", "append_log")
STOPS = (Fault.BEFORE, Fault.AFTER, Fault.BETWEEN)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many steps, so that there are many moments to stop at."""
    monkeypatch.setattr(importing, "COMMITS_AT_ONCE", 8)
    monkeypatch.setattr(commit_writer, "COMMITS_AT_ONCE", 8)
    monkeypatch.setattr(importing, "_ROWS_AT_ONCE", 20)
    monkeypatch.setattr(imported_references, "_AT_ONCE", 2)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    backend = MemoryBackend()
    fill(Repository(backend, SMALL, World()))
    export_to(tmp_path / "files", backend, SMALL)
    return tmp_path / "files"


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("kind", [FaultyBackend, TogetherBackend])
def test_an_import_is_resumed_after_a_failure_of_any_write(
    export: Path, kind: type[FaultyBackend]
) -> None:
    undisturbed = MemoryBackend()
    counting = kind(undisturbed, Script({}))
    import_from(export, counting, SMALL)
    expected = shown(undisturbed)
    calls = {method: counting._calls[method] for method in WRITES}
    assert sum(calls.values()) > 15
    for method, count in calls.items():
        for call in range(1, count + 1):
            for fault in {*POSSIBLE[method]} & {*STOPS}:
                stored, plan = MemoryBackend(), Script({(method, call): fault})
                try:
                    import_from(export, kind(stored, plan), SMALL)
                except InjectedFault:
                    has_begun = bool(stored.read_refs("", ["int/repo"]))
                    import_from(export, stored, SMALL, resume=has_begun)
                assert shown(stored) == expected, (method, call, fault)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("fault", STOPS)
def test_a_busy_database_does_not_end_an_import(export: Path, fault: Fault) -> None:
    undisturbed, stored = MemoryBackend(), MemoryBackend()
    import_from(export, undisturbed, SMALL)
    methods = [method for method in ("insert_rows", "swap_ref") if fault in POSSIBLE[method]]
    plan = Script({(method, call): fault for method in methods for call in range(4, 30, 2)})
    import_from(export, BusyBackend(stored, plan), SMALL)
    assert shown(stored) == shown(undisturbed)


def shown(backend: Backend) -> dict[str, Any]:
    return state(Repository(backend, SMALL, World()))


@pytest.mark.parametrize("engine", ["rocksdb", "sqlite"])
def test_a_killed_import_is_resumed(tmp_path: Path, engine: str) -> None:
    check_killed(tmp_path, engine, 600, Random(engine), most_kills=1)


@pytest.mark.long
@pytest.mark.parametrize("engine", ["rocksdb", "sqlite"])
@pytest.mark.parametrize("seed", range(3))
def test_an_import_that_is_killed_many_times_is_resumed(
    tmp_path: Path, engine: str, seed: int
) -> None:
    check_killed(tmp_path, engine, 5_000, Random(f"{engine} {seed}"), most_kills=10)


def check_killed(
    directory: Path, engine: str, commits: int, random: Random, most_kills: int
) -> None:
    """Kill an import without notice at random moments, until it ends or was killed enough."""
    write_archive(directory / "files", commits, 50)
    url = f"{engine}:{directory}/store"
    arguments = [str(directory / "files"), "--quiet", "--store", url]
    for _ in range(most_kills):
        if run_import([*arguments, *resumed(url)], random.uniform(0.3, 2.5)):
            break
    else:
        run_import([*arguments, *resumed(url)])
    whole = MemoryBackend()
    import_from(directory / "files", whole)
    expected = Repository(whole, Settings(), World())
    with morag.open(url) as found:
        assert state(found) == state(expected)
        assert_intact(found, 20)
        stored = rows(found._backend)
        lost = [row.kind for id, row in rows(whole).items() if id not in stored]
        # Commits of internal references and records of references have the time of the import.
        assert set(lost) <= {"c", "r", "s"}
        assert len(lost) <= 8


def resumed(url: str) -> list[str]:
    """`--resume`, once the import has begun."""
    try:
        morag.open(url, read_only=True).close()
    except morag.errors.ImportUnderWay:
        return ["--resume"]
    except morag.MoragError:
        return []
    return ["--resume"]


def run_import(arguments: list[str], kill_after_seconds: float | None = None) -> bool:
    """Whether it ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-m", "morag", "import", *arguments],
        cwd=ROOT,
        env=child_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, errors = process.communicate(timeout=kill_after_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return False
    # A run that is killed after its last step leaves nothing to resume.
    assert process.returncode == 0 or b"has this repository already" in errors, errors
    return True


@pytest.mark.parametrize("name", ["killed", "killed.zip"])
def test_a_killed_export_leaves_nothing_that_looks_complete(tmp_path: Path, name: str) -> None:
    write_archive(tmp_path / "files", 2_000, 50)
    url = f"sqlite:{tmp_path}/store"
    backend = open_backend(url)
    import_from(tmp_path / "files", backend)
    backend.close()
    path = tmp_path / name
    command = [sys.executable, "-m", "morag", "export", str(path), "--store", url, "--quiet"]
    process = subprocess.Popen(command, cwd=ROOT, env=child_environment())
    is_zip = name.endswith(".zip")
    begun = path.with_name(f"{name}.part") if is_zip else path
    while process.poll() is None and not begun.exists():
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert begun.exists()
    assert not (path if is_zip else path / "export-metadata").exists()
    if is_zip or any(path.iterdir()):
        with pytest.raises(morag.BadRequest, match="export that did not end"):
            new_archive(path)
