"""A store on another machine: nobody waits for it where the requests of all come in."""

from __future__ import annotations

from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from morag import Repository, Settings
from morag.api.app import Api
from morag.api.http import Client, Request, Response
from morag.api.later import Queues
from morag.api.turns import Turn
from morag.backend.memory import MemoryBackend
from morag.testing.counting import CountingBackend
from morag.versions.world import World
from tests.rules.scenes import create
from tests.spawning import Works
from tests.wire.asking import asking
from tests.wire.transcripts import Asked, Scenario, replay, scenarios

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.wire.transcripts import Reply


class FarBackend(CountingBackend):
    """Fails if the thread calls it that asks the API."""

    asking_thread = 0

    def _count(self, method: str, *rest: Any, **more: Any) -> None:
        assert get_ident() != self.asking_thread, f"{method} was called where requests come in"
        super()._count(method, *rest, **more)


class Far:
    def __init__(self) -> None:
        self.backend = FarBackend(MemoryBackend())
        self.repository = Repository(self.backend, Settings(), World())
        self._ask = asking(self.repository, store_is_far=True)

    def ask(self, asked: Asked) -> Reply:
        self.backend.asking_thread = get_ident()
        try:
            return self._ask(asked)
        finally:
            self.backend.asking_thread = 0


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario.name)
def test_every_answer_comes_from_elsewhere(scenario: Scenario) -> None:
    replay(scenario, Far().ask)


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_commit_after_the_first_asks_for_no_reference(version: str) -> None:
    far = Far()
    commit = _COMMITS[version]
    assert far.ask(commit(far.repository.references.get("main").hash, "first")).status == 200
    head = far.repository.references.get("main").hash
    far.backend.reset()
    assert far.ask(commit(head, "second")).status == 200
    assert far.backend.counts == {"apply": 1}


def _commit(path: str, query: str, table: str) -> Asked:
    content = f'{{"type": "ICEBERG_TABLE", "metadataLocation": "{table}", "snapshotId": 1,'
    content += ' "schemaId": 1, "specId": 1, "sortOrderId": 1}'
    key = f'{{"elements": ["{table}"]}}'
    body = (
        f'{{"commitMeta": {{"message": "{table}"}}, "operations":'
        f' [{{"type": "PUT", "key": {key}, "content": {content}}}]}}'
    )
    return Asked("POST", path, query, [("Content-Type", "application/json")], body.encode())


_COMMITS: dict[str, Callable[[str, str], Asked]] = {
    "v1": lambda head, table: _commit(
        "/api/v1/trees/branch/main/commit", f"expectedHash={head}", table
    ),
    "v2": lambda head, table: _commit(f"/api/v2/trees/main@{head}/history/commit", "", table),
}


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("nope@aabbccdd", "Named reference 'nope' not found"),
        ("v1@aabbccdd", "Reference to commit into must be a branch."),
        ("v1@HEAD", "Reference to commit into must be a branch."),
        ("nope@HEAD", "Named reference 'nope' not found"),
        ("main@aabbccdd", "Could not find commit 'aabbccdd' in reference 'main'."),
    ],
)
def test_the_mistake_that_counts_is_told_although_nobody_asked_beforehand(
    place: str, told: str
) -> None:
    far = Far()
    far.repository.references.create_tag("v1", "main")
    place = place.replace("HEAD", far.repository.references.get("main").hash)
    reply = far.ask(_commit(f"/api/v2/trees/{place}/history/commit", "", "t"))
    assert told in reply.body.decode()


def test_reads_and_listings_together_leave_threads_to_the_lanes() -> None:
    queues = Queues(16, store_is_far=True, monotonic=monotonic)
    works = Works()
    for turns in (queues.listings, queues.references, queues.reads):
        assert turns is not None
        for number in range(100):
            turns.take(Turn(Client(str(number)), works.spawn, lambda: None))
    assert len(works.waiting) == 12


def test_one_client_may_have_all_reads_but_not_all_listings() -> None:
    queues = Queues(16, store_is_far=True, monotonic=monotonic)
    assert queues.reads is not None
    for turns, places in ((queues.reads, 6), (queues.listings, 4)):
        works = Works()
        for _ in range(100):
            turns.take(Turn(Client("one"), works.spawn, lambda: None))
        assert len(works.waiting) == places


COMMIT = _commit("", "", "t").body or b""
MERGE = b'{"fromRefName": "dev", "fromHash": "SOURCE"}'
STEPS = b'{"fromRefName": "dev", "fromHash": "SOURCE~1"}'


@pytest.mark.parametrize(
    ("store_is_far", "path", "query", "body"),
    [
        (True, "/api/v2/trees/main@HEAD/history/merge", "", MERGE),
        (True, "/api/v2/trees/main@HEAD/history/merge", "", STEPS),
        (False, "/api/v2/trees/main@HEAD/history/merge", "", STEPS),
        (True, "/api/v1/trees/branch/main/merge", "expectedHash=HEAD", MERGE),
        (True, "/api/v2/trees/main@HEAD~1/history/commit", "", COMMIT),
        (False, "/api/v2/trees/main@HEAD~1/history/commit", "", COMMIT),
    ],
)
def test_a_change_is_made_although_its_client_hangs_up_before_its_turn(
    store_is_far: bool, path: str, query: str, body: bytes
) -> None:
    repository = Repository(MemoryBackend(), Settings(), World())
    for table in ("one", "two"):
        create(repository, "main", **{table: "x"})
    repository.references.create_branch("dev", "main")
    for table in ("three", "four"):
        create(repository, "dev", **{table: "x"})
    head, source = (repository.references.get(name).hash for name in ("main", "dev"))

    api, works, client = Api(repository, store_is_far=store_is_far), Works(), Client("gone")
    for number in range(20):
        for place in ("main", "main~1"):  # All places are taken, for short reads and for long ones.
            path_of_read = f"/api/v2/trees/{place}/contents/one"
            start(api, Request("GET", path_of_read, client=Client(str(number))), works)
    path, query = path.replace("HEAD", head), query.replace("HEAD", head)
    body = body.replace(b"SOURCE", source.encode())
    start(api, Request("POST", path, query, body=body, client=client), works)
    client.gone = True
    while works.waiting:
        works.run_one()
    assert repository.references.get("main").hash != head


def start(api: Api, request: Request, works: Works) -> None:
    answer = api.answer(request)
    if not isinstance(answer, Response):
        answer.start(works.spawn, lambda response: None)
