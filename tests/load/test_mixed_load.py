"""Many clients at once, some of them slow or broken: no good request fails, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.load.misbehaving import be_broken, be_slow
from tests.load.serving import Morag
from tests.load.working import NAMESPACE, Record, Worker

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

BRANCHES: Final = ("main", "first", "second", "third")
CACHE_BYTES: Final = 8 << 20
"""Full long before the first third is over, or the cache would look like a leak."""
LET_GO_SECONDS: Final = 20
SAMPLE_SECONDS: Final = 0.5


def test_a_mixed_load_for_seconds(tmp_path: Path) -> None:
    run_mixed_load(tmp_path, clients=30, seconds=10, seed=1)


@pytest.mark.long
def test_a_mixed_load_of_two_hundred_clients_for_a_minute(tmp_path: Path) -> None:
    resident = run_mixed_load(tmp_path, clients=200, seconds=60, seed=2)
    third = len(resident) // 3
    early, late = max(resident[:third]), max(resident[-third:])
    assert late <= early * 1.10 + (8 << 20), [f"{size >> 20} MB" for size in resident]


def run_mixed_load(folder: Path, clients: int, seconds: float, seed: int) -> list[int]:
    """Returns the server's memory while it worked, in samples of equal distance."""
    cache = ("--cache-bytes", str(CACHE_BYTES))
    with Morag(f"rocksdb:{folder / 'store'}", folder, *cache) as server:
        record = Record()
        prepare(server, record)
        idle = server.held()
        resident = asyncio.run(load(server, record, clients, seconds, seed))
        assert not record.failures, "\n".join(
            [f"{len(record.failures)} failures", *record.failures[:20]]
        )
        assert server.held_when_left_alone(idle, LET_GO_SECONDS) == idle
        for branch in BRANCHES:
            check_log(server, branch, record)
            check_tables(server, branch, record)
        left = {reference["name"] for reference in get(server, "trees")["references"]}
        assert left == set(BRANCHES)
    expected = {step for step in dir(Worker) if not step.startswith("_") and step != "work"}
    assert not expected - record.counts.keys(), "not everything was tried"
    assert record.counts["slow"]
    assert any(what.startswith("broken") for what in record.counts)
    return resident


async def load(server: Morag, record: Record, clients: int, seconds: float, seed: int) -> list[int]:
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds

    def turns() -> Iterator[None]:
        while loop.time() < end:
            yield

    def client(number: int) -> Coroutine[Any, Any, None]:
        branch, random = BRANCHES[number % len(BRANCHES)], Random(seed * 1000 + number)
        misbehaving = max(1, clients // 100)
        if number < misbehaving:
            return be_slow(server.address, branch, record, random, turns())
        if number < 2 * misbehaving:
            return be_broken(server.address, branch, record, random, turns())
        return Worker(server.address, f"w{number:03}", branch, record, random).work(turns())

    resident: list[int] = []

    async def watch() -> None:
        for _ in turns():
            resident.append(server.resident_bytes())
            await asyncio.sleep(SAMPLE_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        for number in range(clients):
            tasks.create_task(client(number))
        tasks.create_task(watch())
    return resident


def prepare(server: Morag, record: Record) -> None:
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


def check_log(server: Morag, branch: str, record: Record) -> None:
    """Everything acknowledged is there once, and nothing that nobody tried."""
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


def check_tables(server: Morag, branch: str, record: Record) -> None:
    """Each table has the snapshot that its owner gave it last."""
    entries = paged(server, f"trees/{branch}/entries?content=true&max-records=500&", "entries")
    found = {
        entry["name"]["elements"][1]: entry["content"]["snapshotId"]
        for entry in entries
        if entry["type"] == "ICEBERG_TABLE"
    }
    broken = {name for name in found if name.startswith("broken-")}
    assert {name: found[name] for name in found.keys() - broken} == record.tables[branch]


def paged(server: Morag, path: str, what: str) -> Iterator[Any]:
    token = ""
    while True:
        page = get(server, f"{path}page-token={token}" if token else path)
        yield from page[what]
        if not page["hasMore"]:
            return
        token = page["token"]


def get(server: Morag, path: str) -> Any:
    return _ask(server, urllib.request.Request(_url(server, path)))


def post(server: Morag, path: str, body: object) -> Any:
    headers = {"Content-Type": "application/json"}
    return _ask(
        server, urllib.request.Request(_url(server, path), json.dumps(body).encode(), headers)
    )


def _ask(server: Morag, request: urllib.request.Request) -> Any:
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _url(server: Morag, path: str) -> str:
    return f"http://{server.address[0]}:{server.address[1]}/api/v2/{path}"
