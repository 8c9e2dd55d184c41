"""A purge beside real servers on PostgreSQL, whose clients build on what it is about to remove."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeAlias

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
Request: TypeAlias = partial[Any]
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


def any_request(client: Client, hashes: list[str], random: Random) -> Request:
    """A request that makes an old commit reachable, drops it again, or builds on a branch."""
    name = f"b{random.randrange(10)}"
    old = random.choice(hashes)
    key = ContentKey.of(f"new-{random.randrange(1 << 30)}")
    references = client.references
    match random.randrange(7):
        case 0:
            return partial(references.create_branch, name, f"@{old}")
        case 1:
            return partial(references.assign, name, f"@{old}")
        case 2:
            return partial(client.merge, f"@{old}", "main")
        case 3:
            return partial(client.transplant, [old], "main")
        case 4:
            return partial(references.delete, name)
        case _:
            branch = random.choice(["main", name])
            return partial(client.commit, branch, [Put(key, a_table("new"))], "m")


def succeeds(request: Request) -> bool:
    """False if it is refused. `RepositoryCorrupt` means that an object is missing: an error."""
    try:
        request()
    except RepositoryCorrupt:
        raise
    except MoragError:
        return False
    return True


def use(client: Client, hashes: list[str], seed: int, end: Event) -> tuple[int, list[Request]]:
    """Send requests until the end: how many succeeded, and those that lacked an object."""
    random, done, torn = Random(seed), 0, []
    while not end.is_set():
        request = any_request(client, hashes, random)
        try:
            done += succeeds(request)
        except RepositoryCorrupt:
            torn.append(request)
    return done, torn


def findings(backend: Backend) -> list[str]:
    found = WholeCheck(backend, Settings(), World()).findings()
    return [f"{each.kind} {each.id.hex()} {each.problem}" for each in found]


def test_a_purge_beside_servers_loses_nothing(url: str, tmp_path: Path) -> None:
    with closing(open_backend(url)) as backend:
        hashes = fill(backend)
        before = purge(backend, SMALL, World(), PurgeRequest()).removed_rows
        assert before > 500
        end = Event()
        with ExitStack() as stack:
            servers = [stack.enter_context(Served(tmp_path, store=url)) for _ in range(2)]
            clients = [stack.enter_context(Client(servers[n % 2].url)) for n in range(CLIENTS)]
            pool = stack.enter_context(ThreadPoolExecutor(CLIENTS))
            stack.callback(end.set)
            using = [
                pool.submit(use, client, hashes, seed, end) for seed, client in enumerate(clients)
            ]
            report = purge(backend, SMALL, World(), PURGE, tmp_path / "journal")
            end.set()
            used = [each.result(timeout=60) for each in using]
            assert sum(done for done, _ in used) > 50
            # While a batch is removed, an old commit may lack what it needs, but never later.
            # Commits to main never lack anything.
            for request in (each for _, torn in used for each in torn):
                assert request.args[0] != "main"
                succeeds(request)
        assert report.removed_rows
        assert findings(backend) == []
        # Without servers, everything unreachable and old is removed.
        at_once = PurgeRequest(dry_run=False, settle_seconds=0)
        purge(backend, SMALL, World(), at_once, tmp_path / "journal")
        assert findings(backend) == []
        again = purge(backend, SMALL, World(), PurgeRequest())
        assert again.removed_rows == 0
