"""Many clients at once, some slow or broken: no correct request fails, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.load.misbehaving import be_broken, be_slow
from tests.load.working import EVERYTHING, NAMESPACE, READS, Record, Worker
from tests.server_process import Served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.load.working import Steps

BRANCHES: Final = ("main", "first", "second", "third")
CACHE_BYTES: Final = 8 << 20
"""Small enough to be full within the first third, so that it does not look like a leak."""
GROWTH_BYTES: Final = (3 * 16 + 32) << 20
"""The limit of RocksDB's memtables and block cache (`backend/rocksdb/opening.py`). How much of it
the first third uses depends on the speed of the machine."""
READ_GROWTH_BYTES: Final = 8 << 20
"""The growth that reads may cause: only memory that the allocator cannot release."""
RELEASE_SECONDS: Final = 20
SAMPLE_SECONDS: Final = 0.5


def test_a_mixed_load_for_seconds(tmp_path: Path) -> None:
    with loaded(tmp_path, clients=30, seconds=10, seed=1):
        pass


@pytest.mark.long
def test_a_mixed_load_of_two_hundred_clients_for_a_minute(tmp_path: Path) -> None:
    with loaded(tmp_path, clients=200, seconds=60, seed=2) as load:
        assert growth(load.resident) <= GROWTH_BYTES, megabytes(load.resident)
        reading = asyncio.run(load.run(30, READS))
        assert not load.record.failures
        assert growth(reading) <= READ_GROWTH_BYTES, megabytes(reading)


@contextmanager
def loaded(folder: Path, clients: int, seconds: float, seed: int) -> Iterator[Load]:
    """A server after the load, which must have lost neither commits nor memory."""
    cache = ("--cache-bytes", str(CACHE_BYTES))
    with Served(folder, *cache, store=f"rocksdb:{folder / 'store'}", quiet=True) as server:
        load = Load(server, clients, seed)
        idle = server.resources()
        load.resident = asyncio.run(load.run(seconds, EVERYTHING))
        failures = load.record.failures
        assert not failures, "\n".join([f"{len(failures)} failures", *failures[:20]])
        assert server.becomes_idle(idle, RELEASE_SECONDS), (server.resources(), idle)
        for branch in BRANCHES:
            check_log(server, branch, load.record)
            check_tables(server, branch, load.record)
        left = {reference["name"] for reference in get(server, "trees")["references"]}
        assert left == set(BRANCHES)
        done = load.record.counts
        assert not EVERYTHING.keys() - done.keys(), "some steps were never made"
        assert done["slow"]
        assert sum(times for what, times in done.items() if what.startswith("broken")) > 10
        yield load


class Load:
    """The clients of one server: one of a hundred is slow, and one is broken."""

    def __init__(self, server: Served, clients: int, seed: int) -> None:
        self.record = Record()
        self.resident: list[int] = []
        self._server = server
        self._misbehaving = max(1, clients // 100)
        prepare(server, self.record)
        self._randoms = [Random(seed * 1000 + number) for number in range(clients)]
        self._workers = {
            number: Worker(server.address, f"w{number:03}", branch_of(number), self.record, random)
            for number, random in enumerate(self._randoms)
            if number >= 2 * self._misbehaving
        }

    async def run(self, seconds: float, steps: Steps) -> list[int]:
        """Let all clients work; returns the server's memory at regular intervals."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds

        def turns() -> Iterator[None]:
            while loop.time() < end:
                yield

        async with asyncio.TaskGroup() as tasks:
            for number, random in enumerate(self._randoms):
                if number in self._workers:
                    tasks.create_task(self._workers[number].work(turns(), steps))
                else:
                    be = be_slow if number < self._misbehaving else be_broken
                    about = (self._server.address, branch_of(number), self.record, random)
                    tasks.create_task(be(*about, turns()))
            resident = []
            for _ in turns():
                resident.append(self._server.resident_bytes())
                await asyncio.sleep(SAMPLE_SECONDS)
        return resident


def branch_of(number: int) -> str:
    return BRANCHES[number % len(BRANCHES)]


def growth(resident: list[int]) -> int:
    """The growth of the maximum from the first third to the last."""
    third = len(resident) // 3
    return max(resident[-third:]) - max(resident[:third])


def megabytes(resident: list[int]) -> str:
    return " ".join(str(size >> 20) for size in resident)


def prepare(server: Served, record: Record) -> None:
    head = get(server, "trees/main")["reference"]["hash"]
    namespace = {"type": "NAMESPACE", "elements": [NAMESPACE]}
    body = {
        "commitMeta": {"message": "namespace"},
        "operations": [{"type": "PUT", "key": {"elements": [NAMESPACE]}, "content": namespace}],
    }
    main = post(server, f"trees/main@{head}/history/commit", body)["targetBranch"]
    record.tried.add("namespace")
    for branch in BRANCHES:
        if branch != "main":
            post(server, f"trees?name={branch}&type=BRANCH", main)
        record.acknowledged[branch] = {main["hash"]: "namespace"}
        record.tables[branch] = {}


def check_log(server: Served, branch: str, record: Record) -> None:
    """The log has every acknowledged commit once, and none that no client sent."""
    log = list(paged(server, f"trees/{branch}/history?", "logEntries"))
    for newer, older in pairwise(log):
        assert newer["parentCommitHash"] == older["commitMeta"]["hash"]
    hashes = Counter(entry["commitMeta"]["hash"] for entry in log)
    assert set(hashes.values()) == {1}
    messages = {entry["commitMeta"]["hash"]: entry["commitMeta"]["message"] for entry in log}
    for hash, message in record.acknowledged[branch].items():
        assert hash in messages, f"{branch} lost {hash} ({message})"
        assert message is None or messages[hash] == message
    unknown = messages.keys() - record.acknowledged[branch].keys()
    assert {messages[hash] for hash in unknown} <= record.tried
    counted = Counter(messages.values())
    assert not [message for message, times in counted.items() if times > 1]


def check_tables(server: Served, branch: str, record: Record) -> None:
    """Each table has the last snapshot of its owner."""
    entries = paged(server, f"trees/{branch}/entries?content=true&max-records=500&", "entries")
    found = {
        entry["name"]["elements"][1]: entry["content"]["snapshotId"]
        for entry in entries
        if entry["type"] == "ICEBERG_TABLE"
    }
    broken = {name for name in found if name.startswith("broken-")}
    assert {name: found[name] for name in found.keys() - broken} == record.tables[branch]


def paged(server: Served, path: str, what: str) -> Iterator[Any]:
    token = ""
    while True:
        page = get(server, f"{path}page-token={token}" if token else path)
        yield from page[what]
        if not page["hasMore"]:
            return
        token = page["token"]


def get(server: Served, path: str) -> Any:
    return _ask(server, urllib.request.Request(_url(server, path)))


def post(server: Served, path: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    return _ask(
        server, urllib.request.Request(_url(server, path), json.dumps(body).encode(), headers)
    )


def _ask(server: Served, request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _url(server: Served, path: str) -> str:
    return f"{server.url}/api/v2/{path}"
