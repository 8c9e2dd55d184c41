"""Short listings are made where the request came in; the others are left to threads."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from morag import Repository, Settings
from morag.api.app import Api
from morag.api.http import Request, Response
from morag.api.later import InPieces, PiecesAfterLookUp, run
from morag.backend.memory import MemoryBackend
from morag.index.layered import index_of
from morag.versions.world import World
from tests.rules.operations import put
from tests.spawners import ManualSpawner

MOST_AT_ONCE = 8


class Scene:
    """An API whose clock stands still, and a spawner whose work the test runs."""

    def __init__(self, *, store_is_remote: bool = False) -> None:
        self.repo = Repository(MemoryBackend(), Settings(), World())
        self.repo.commit("main", [put("a", "x"), put("b", "x")], "tables")
        self.now = 0.0
        self.api = Api(self.repo, store_is_remote=store_is_remote, monotonic=lambda: self.now)
        self.spawner = ManualSpawner()
        self.responses: list[Response] = []

    def get(self, path: str, query: str = "") -> None:
        request = Request("GET", f"/api/{path}", query)
        answer = self.api.answer(request)
        assert isinstance(answer, InPieces | PiecesAfterLookUp)
        run(
            answer,
            self.spawner.spawn,
            self.responses.append,
            lambda e: self.api.failure(request, e),
        )

    @property
    def hash(self) -> str:
        return self.repo.references.get("main").hash

    def body(self, number: int = -1) -> Any:
        return json.loads(self.responses[number].body)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_short_listings_need_no_thread(scene: Scene, version: str) -> None:
    trees, log = ("trees/tree/main", "log") if version == "v1" else ("trees/main", "history")
    scene.get(f"{version}/trees")
    scene.get(f"{version}/{trees}/entries")
    scene.get(f"{version}/{trees}/{log}")
    assert [response.status for response in scene.responses] == [200] * 3
    assert [reference["name"] for reference in scene.body(0)["references"]] == ["main"]
    assert len(scene.body(1)["entries"]) == 2
    assert len(scene.body(2)["logEntries"]) == 1


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("trees", "filter=ref.name=='main'"),
        ("trees", "fetch=ALL"),
        ("trees/main/entries", "filter=entry.contentType=='ICEBERG_TABLE'"),
        ("trees/main/entries", "content=true"),
        ("trees/main~1/entries", ""),
        ("trees/main/history", "limit-hash=HASH~1"),
        ("trees/main/history", "fetch=ALL"),
        ("trees/main/history", "filter=commit.author=='x'"),
        ("trees/main/diff/main", ""),
    ],
)
def test_listings_that_may_take_long_are_left_to_a_thread(
    scene: Scene, path: str, query: str
) -> None:
    scene.get("v2/" + path.replace("HASH", scene.hash), query.replace("HASH", scene.hash))
    assert not scene.responses
    scene.spawner.run_all()
    assert [response.status for response in scene.responses] == [200]


def test_references_of_a_store_on_another_machine_are_listed_by_threads() -> None:
    """Their names are not known before."""
    scene = Scene(store_is_remote=True)
    scene.get("v2/trees")
    scene.spawner.run_all()
    assert len(scene.responses) == 1
    assert scene.spawner.were_near == [False]


def test_a_listing_of_cached_objects_needs_a_thread_only_for_its_look_up() -> None:
    scene = Scene(store_is_remote=True)
    for path in ("trees/main/entries", "trees/main/history"):
        for _ in range(2):  # The first one reads the objects.
            scene.spawner.were_near.clear()
            scene.get(f"v2/{path}")
            scene.spawner.run_all()
        assert scene.spawner.were_near.count(False) == 1
        assert scene.responses[-1] == scene.responses[-2]


def test_a_listing_that_finds_an_object_missing_in_the_cache_begins_again_in_a_thread() -> None:
    scene = Scene(store_is_remote=True)
    repo = scene.repo
    for number in range(3):  # Bulk commits, so that most keys are in stripes.
        puts = [put(f"t{number}-{n:04}", "x") for n in range(300)]
        repo.commit("main", puts, "many")
    scene.get("v2/trees/main/entries")
    scene.spawner.run_all()
    index = index_of(repo._persist, repo._resolver.resolve("main").commit)
    stripes = [stripe.segment for stripe in index.directory.stripes]
    cache = repo._persist._cache
    assert len(stripes) > 2
    for id in (stripes[0], stripes[-1]):
        _, weight = cache._objs.pop(id)
        cache._free(id, weight)
        scene.get("v2/trees/main/entries")
        scene.spawner.run_all()
        assert scene.body() == scene.body(0)
    assert len(scene.body()["entries"]) == 902


def test_only_a_few_are_begun_in_one_turn_of_the_event_loop(scene: Scene) -> None:
    for _ in range(MOST_AT_ONCE + 2):
        scene.get("v2/trees/main/entries")
    assert len(scene.responses) == MOST_AT_ONCE
    scene.spawner.run_all()  # The loop's next turn, and the threads.
    assert len(scene.responses) == MOST_AT_ONCE + 2
    scene.get("v2/trees/main/entries")
    assert len(scene.responses) == MOST_AT_ONCE + 3


def test_a_listing_that_takes_longer_is_continued_by_a_thread(scene: Scene) -> None:
    times = itertools.count(step=0.002)
    scene.api = Api(scene.repo, monotonic=lambda: next(times))
    scene.get("v2/trees/main/entries")
    assert not scene.responses
    scene.spawner.run_all()
    assert len(scene.body()["entries"]) == 2


def test_a_large_listing_is_continued_by_a_thread(scene: Scene) -> None:
    """Compressing more than 64 KiB would take the event loop milliseconds."""
    scene.repo.commit("main", [put(f"t{number:05}", "x") for number in range(1_500)], "many")
    scene.get("v2/trees/main/entries")
    assert not scene.responses
    scene.spawner.run_all()
    assert len(scene.responses[0].body) > 64 * 1024
    assert len(scene.body()["entries"]) == 1_502


def test_an_error_is_reported_at_once(scene: Scene) -> None:
    scene.get("v2/trees/nowhere/entries")
    assert [response.status for response in scene.responses] == [404]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_a_reference_that_moved_is_listed_at_its_new_commit(scene: Scene, version: str) -> None:
    for message in ("one", "two"):
        scene.get(f"{version}/trees")
        assert scene.body()["references"][0]["hash"] == scene.hash
        scene.repo.commit("main", [put(message, "x")], message)
    scene.repo.references.create_tag("main-tag", "main")
    scene.get(f"{version}/trees")
    listed = [(each["type"], each["hash"]) for each in scene.body()["references"]]
    assert listed == [("BRANCH", scene.hash), ("TAG", scene.hash)]
