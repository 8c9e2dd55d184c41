"""Purges in processes that are killed at random moments."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from random import Random
from typing import TYPE_CHECKING

import pytest

from morag import ContentKey, Put
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.format.records import ObjId
from morag.versions.maintenance.checking import WholeCheck
from morag.versions.maintenance.purge import purge
from morag.versions.maintenance.purge_report import PurgeRequest
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.maintenance.purge_scenario import SMALL, a_table

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

DAYS_NANOS = 3 * 86_400 * 10**9
KILLS = 12


def fill(url: str) -> list[str]:
    """Garbage of three days ago; the hashes of its commits."""
    hashes = []
    with closing(open_backend(url)) as backend:
        repo = Repository(backend, SMALL, World(clock_nanos=lambda: time.time_ns() - DAYS_NANOS))
        for branch in ("main", *(f"old-{n}" for n in range(15))):
            if branch != "main":
                repo.references.create_branch(branch, "main")
            for n in range(4):
                keys = [ContentKey.of(f"{branch}-{n}-{k}") for k in range(6)]
                puts = [Put(key, a_table(f"{key}")) for key in keys]
                hashes.append(repo.commit(branch, puts, "m").hash)
            if branch != "main":
                repo.references.delete(branch)
    return hashes


@pytest.mark.parametrize("engine", ["sqlite", "rocksdb"])
def test_a_purge_can_be_killed_and_repeated_at_any_moment(engine: str, tmp_path: Path) -> None:
    url = f"{engine}:{tmp_path / 'store'}"
    hashes = fill(url)
    with closing(open_backend(url, read_only=True)) as backend:
        doomed = purge(backend, Settings(), World(), PurgeRequest()).removed_rows
    assert doomed > 300
    random = Random(engine)
    command = [sys.executable, "-m", "morag", "admin", "purge", "--store", url, "--no-dry-run"]
    command += ["--settle", "PT0S", "--journal", str(tmp_path / "journal"), "--quiet"]
    kept = []
    for number in range(KILLS):
        running = subprocess.Popen(
            [*command, "--rate", "400"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        try:
            running.wait(random.uniform(0.5, 2.5))
        except subprocess.TimeoutExpired:
            running.kill()
        _, errors = running.communicate(timeout=60)
        assert running.returncode in (0, -9), errors.decode()
        # Servers go on in between, also with commits that are about to be removed.
        with closing(open_backend(url)) as backend:
            repo = Repository(backend, SMALL, World())
            old = random.choice(hashes)
            if backend.read_rows("", [ObjId(bytes.fromhex(old))]):
                repo.references.create_branch(f"again-{number}", f"@{old}")
                kept.append(f"again-{number}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "journal").exists()
    with closing(open_backend(url)) as backend:
        found = [str(each) for each in WholeCheck(backend, Settings(), World()).findings()]
        assert found == []
        assert purge(backend, Settings(), World(), PurgeRequest()).removed_rows == 0
        repo = Repository(backend, SMALL, World())
        for name in kept:
            assert list(repo.contents.keys(name))
