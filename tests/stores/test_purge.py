"""A purge beside real servers on PostgreSQL, whose clients build on what it is about to remove."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

from morag import ContentKey, Put
from morag.backend.urls import open_backend
from morag.client import Client
from morag.config import Settings
from morag.errors import MoragError, RepositoryCorrupt
from morag.versions.maintenance.checking import WholeCheck
from morag.versions.maintenance.purge import purge
from morag.versions.maintenance.purge_report import PurgeRequest
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.maintenance.purge_scenario import SMALL, a_table
from tests.server_process import Served

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import Backend

pytestmark = pytest.mark.stores

SERVER: Final = "postgres"
DAYS_NANOS: Final = 3 * 86_400 * 10**9
BRANCHES: Final = [f"old-{n}" for n in range(25)]
CLIENTS: Final = 6
PURGE: Final = PurgeRequest(dry_run=False, rows_at_once=25, rows_per_second=80, settle_seconds=3)


def fill(backend: Backend) -> list[str]:
    """Commits of three days ago, on branches that were dropped then; their hashes."""
    world = World(clock_nanos=lambda: time.time_ns() - DAYS_NANOS)
    repo = Repository(backend, SMALL, world)
    hashes = []
    for branch in ("main", *BRANCHES):
        if branch != "main":
            repo.references.create_branch(branch, "main")
        for n in range(4):
            keys = [ContentKey.of(f"{branch}-{n}-{k}") for k in range(6)]
            hashes.append(repo.commit(branch, [Put(k, a_table(f"{k}")) for k in keys], "m").hash)
    for branch in BRANCHES:
        repo.references.delete(branch)
    return hashes


def use(client: Client, hashes: list[str], random: Random, end: Event) -> int:
    """Make old commits reachable in every way, and drop them again. How often that succeeded."""
    done = 0
    while not end.is_set():
        name = f"b{random.randrange(10)}"
        old = random.choice(hashes)
        key = ContentKey.of(f"new-{random.randrange(1 << 30)}")
        action = random.randrange(7)
        try:
            if action == 0:
                client.references.create_branch(name, f"@{old}")
            elif action == 1:
                client.references.assign(name, f"@{old}")
            elif action == 2:
                client.merge(f"@{old}", "main")
            elif action == 3:
                client.transplant([old], "main")
            elif action == 4:
                client.references.delete(name)
            else:
                client.commit(random.choice(["main", name]), [Put(key, a_table("new"))], "m")
            done += 1
        except RepositoryCorrupt:
            raise
        except MoragError:
            continue
    return done


def findings(backend: Backend) -> list[str]:
    found = WholeCheck(backend, Settings(), World()).findings()
    return [f"{each.kind} {each.id.hex()} {each.problem}" for each in found]


def test_a_purge_beside_servers_loses_nothing(url: str, tmp_path: Path) -> None:
    with closing(open_backend(url)) as backend:
        hashes = fill(backend)
        before = purge(backend, SMALL, World(), PurgeRequest()).removed_rows
        assert before > 500
        end = Event()
        with (
            Served(tmp_path, store=url) as one,
            Served(tmp_path, store=url) as other,
            ThreadPoolExecutor(CLIENTS) as pool,
        ):
            clients = [Client([one, other][n % 2].url) for n in range(CLIENTS)]
            using = [
                pool.submit(use, client, hashes, Random(n), end) for n, client in enumerate(clients)
            ]
            try:
                report = purge(backend, SMALL, World(), PURGE, tmp_path / "journal")
            finally:
                end.set()
            assert sum(each.result(timeout=60) for each in using) > 50
            for client in clients:
                client.close()
        assert report.removed_rows
        assert findings(backend) == []
        # Without servers, everything unreachable and old is removed.
        at_once = PurgeRequest(dry_run=False, settle_seconds=0)
        purge(backend, SMALL, World(), at_once, tmp_path / "journal")
        assert findings(backend) == []
        again = purge(backend, SMALL, World(), PurgeRequest())
        assert again.removed_rows == 0
