"""With a store on another machine, the thread that accepts requests never waits for it."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from morag import Repository, Settings
from morag.api.app import Api
from morag.api.fair_queue import Job
from morag.api.http import Client, Request, Response
from morag.api.later import Queues, run
from morag.backend.base import ObjId, Ref, RefSwap
from morag.backend.memory import MemoryBackend
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.rules.operations import create
from tests.spawners import ManualSpawner
from tests.wire.api_calls import api_caller
from tests.wire.transcripts import Scenario, SentRequest, replay, scenarios

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.transcripts import Reply


class RemoteBackend(CountingBackend):
    """Fails if the thread that calls the API calls it."""

    calling_thread = 0

    def __init__(self) -> None:
        super().__init__(MemoryBackend())
        del self.try_apply, self.try_apply_all, self.sync  # A call to another machine always waits.

    def _count(self, method: str, *rest: Any, **more: Any) -> None:
        assert get_ident() != self.calling_thread, (
            f"{method} was called in the thread that accepts requests"
        )
        super()._count(method, *rest, **more)


class RemoteApi:
    def __init__(self) -> None:
        self.backend = RemoteBackend()
        self.repository = Repository(self.backend, Settings(), World())
        self._ask = api_caller(self.repository, store_is_remote=True)

    def ask(self, sent: SentRequest) -> Reply:
        self.backend.calling_thread = get_ident()
        try:
            return self._ask(sent)
        finally:
            self.backend.calling_thread = 0


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_answer_of_a_remote_store_comes_from_a_thread(scenario: Scenario) -> None:
    replay(scenario, RemoteApi().ask)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_commit_after_the_first_reads_no_reference(version: str) -> None:
    remote = RemoteApi()
    commit = _COMMITS[version]
    assert remote.ask(commit(remote.repository.references.get("main").hash, "first")).status == 200
    head = remote.repository.references.get("main").hash
    remote.backend.reset()
    assert remote.ask(commit(head, "second")).status == 200
    assert remote.backend.counts == {"apply": 1}


def test_a_read_of_cached_objects_reads_only_its_reference() -> None:
    remote = RemoteApi()
    create(remote.repository, "main", one="x")
    read = SentRequest("GET", "/api/v2/trees/main/contents/one", "", [], b"")
    first = remote.ask(read)
    remote.backend.reset()
    assert remote.ask(read) == first
    assert remote.backend.counts == {"read_refs": 1}


def test_a_read_of_other_objects_reads_its_reference_once() -> None:
    remote = RemoteApi()
    create(remote.repository, "main", one="x")
    remote.backend.reset()
    read = SentRequest("GET", "/api/v2/trees/main/contents/one", "", [], b"")
    assert remote.ask(read).status == 200
    assert remote.backend.counts == {"read_refs": 1, "read_rows": 1}  # The row of the value.


@pytest.mark.parametrize("path", ["entries", "history", "entries?prefix-key=one"])
def test_a_listing_of_cached_objects_reads_only_its_reference(path: str) -> None:
    remote = RemoteApi()
    create(remote.repository, "main", one="x")
    path, _, query = path.partition("?")
    read = SentRequest("GET", f"/api/v2/trees/main/{path}", query, [], b"")
    first = remote.ask(read)
    assert first.status == 200
    remote.backend.reset()
    assert remote.ask(read) == first
    assert remote.backend.counts == {"read_refs": 1}


def test_a_listing_of_a_missing_reference_is_refused() -> None:
    read = SentRequest("GET", "/api/v2/trees/nope/entries", "", [], b"")
    reply = RemoteApi().ask(read)
    assert (reply.status, b"Named reference 'nope' not found" in reply.body) == (404, True)


def test_a_damaged_reference_does_not_disturb_the_readers_of_others() -> None:
    memory = MemoryBackend()
    repository = Repository(memory, Settings(), World())
    damaged = Ref("refs/heads/bad", ObjId(b"short"))
    assert memory.swap_ref("", RefSwap(damaged.name, None, damaged))
    api, works = Api(repository, store_is_remote=True), ManualSpawner()
    statuses: dict[str, int] = {}
    for name in ("bad", "main"):
        request = Request("GET", f"/api/v2/trees/{name}", client=Client("one"))
        answer = api.answer(request)
        assert not isinstance(answer, Response)

        def done(response: Response, name: str = name) -> None:
            statuses[name] = response.status

        run(answer, works.spawn, done, partial(api.failure, request))
    while works.waiting:
        works.run_one()
    assert statuses["main"] == 200
    assert statuses["bad"] >= 500


def _commit(path: str, query: str, table: str) -> SentRequest:
    content = f'{{"type": "ICEBERG_TABLE", "metadataLocation": "{table}", "snapshotId": 1,'
    content += ' "schemaId": 1, "specId": 1, "sortOrderId": 1}'
    key = f'{{"elements": ["{table}"]}}'
    body = (
        f'{{"commitMeta": {{"message": "{table}"}}, "operations":'
        f' [{{"type": "PUT", "key": {key}, "content": {content}}}]}}'
    )
    return SentRequest("POST", path, query, [("Content-Type", "application/json")], body.encode())


_COMMITS: dict[str, Callable[[str, str], SentRequest]] = {
    "v1": lambda head, table: _commit(
        "/api/v1/trees/branch/main/commit", f"expectedHash={head}", table
    ),
    "v2": lambda head, table: _commit(f"/api/v2/trees/main@{head}/history/commit", "", table),
}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("nope@aabbccdd", "Named reference 'nope' not found"),
        ("v1@aabbccdd", "Reference to commit into must be a branch."),
        ("v1@HEAD", "Reference to commit into must be a branch."),
        ("nope@HEAD", "Named reference 'nope' not found"),
        ("main@aabbccdd", "Could not find commit 'aabbccdd' in reference 'main'."),
    ],
)
def test_the_first_mistake_is_reported_although_it_needs_the_store(
    place: str, expected: str
) -> None:
    remote = RemoteApi()
    remote.repository.references.create_tag("v1", "main")
    place = place.replace("HEAD", remote.repository.references.get("main").hash)
    reply = remote.ask(_commit(f"/api/v2/trees/{place}/history/commit", "", "t"))
    assert expected in reply.body.decode()


def test_reads_and_listings_together_leave_threads_to_the_lanes() -> None:
    queues = Queues(16, store_is_remote=True, monotonic=monotonic)
    works = ManualSpawner()
    for queue in (queues.long_work, queues.references, queues.reads):
        assert queue is not None
        for number in range(100):
            queue.add(Job(Client(str(number)), works.spawn, lambda: None))
    assert len(works.waiting) == 11


def test_one_client_may_use_all_slots_for_reads_but_not_for_listings() -> None:
    queues = Queues(16, store_is_remote=True, monotonic=monotonic)
    assert queues.reads is not None
    for queue, slots in ((queues.reads, 5), (queues.long_work, 4)):
        works = ManualSpawner()
        for _ in range(100):
            queue.add(Job(Client("one"), works.spawn, lambda: None))
        assert len(works.waiting) == slots


COMMIT = _commit("", "", "t").body or b""
MERGE = b'{"fromRefName": "dev", "fromHash": "SOURCE"}'
STEPS = b'{"fromRefName": "dev", "fromHash": "SOURCE~1"}'


@pytest.mark.parametrize(
    ("store_is_remote", "path", "query", "body"),
    [
        (True, "/api/v2/trees/main@HEAD/history/merge", "", MERGE),
        (True, "/api/v2/trees/main@HEAD/history/merge", "", STEPS),
        (False, "/api/v2/trees/main@HEAD/history/merge", "", STEPS),
        (True, "/api/v1/trees/branch/main/merge", "expectedHash=HEAD", MERGE),
        (True, "/api/v2/trees/main@HEAD~1/history/commit", "", COMMIT),
        (False, "/api/v2/trees/main@HEAD~1/history/commit", "", COMMIT),
    ],
)
def test_a_change_is_made_although_its_client_disconnects_before_its_turn(
    store_is_remote: bool, path: str, query: str, body: bytes
) -> None:
    repository = Repository(MemoryBackend(), Settings(), World())
    for table in ("one", "two"):
        create(repository, "main", **{table: "x"})
    repository.references.create_branch("dev", "main")
    for table in ("three", "four"):
        create(repository, "dev", **{table: "x"})
    head, source = (repository.references.get(name).hash for name in ("main", "dev"))

    api, works, client = (
        Api(repository, store_is_remote=store_is_remote),
        ManualSpawner(),
        Client("gone"),
    )
    for number in range(20):
        for place in ("main", "main~1"):  # All slots are taken, for short reads and for long ones.
            path_of_read = f"/api/v2/trees/{place}/contents/one"
            start(api, Request("GET", path_of_read, client=Client(str(number))), works)
    path, query = path.replace("HEAD", head), query.replace("HEAD", head)
    body = body.replace(b"SOURCE", source.encode())
    start(api, Request("POST", path, query, body=body, client=client), works)
    client.gone = True
    while works.waiting:
        works.run_one()
    assert repository.references.get("main").hash != head


def start(api: Api, request: Request, works: ManualSpawner) -> None:
    answer = api.answer(request)
    if not isinstance(answer, Response):
        answer.start(works.spawn, lambda response: None)
