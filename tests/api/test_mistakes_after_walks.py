"""The first mistake of a change may be found only by a walk along a long history: by a thread."""

from __future__ import annotations

import json
from typing import Any

import pytest

from morag import Repository, Settings
from morag.api.app import Api
from morag.api.http import Request, Response
from morag.api.later import run
from morag.backend.memory import MemoryBackend
from morag.versions.commit import NEAR_COMMITS
from morag.versions.world import World
from tests.rules.operations import put
from tests.spawners import ManualSpawner

KEY = {"elements": ["a"]}
TWICE = [{"type": "DELETE", "key": KEY}] * 2


class Scene:
    """A branch with a history that is a little too long to walk along on the event loop."""

    def __init__(self) -> None:
        self.repo = Repository(MemoryBackend(), Settings(), World())
        commits = range(NEAR_COMMITS + 2)
        self.hashes = [self.repo.commit("main", [put(f"t{n}", "x")], f"{n}").hash for n in commits]
        self.repo.references.create_branch("other", None)
        self.repo.commit("other", [put("a", "x")], "other")
        self.elsewhere = self.repo.references.get("other").hash
        self.bodies: dict[str, Any] = {
            "commit": {"commitMeta": {"message": "x"}, "operations": TWICE},
            "merge": {
                "fromRefName": "other",
                "fromHash": self.elsewhere,
                "keyMergeModes": [{"key": KEY, "mergeBehavior": "NORMAL"}] * 2,
            },
            "transplant": {
                "fromRefName": "main",
                "hashesToTransplant": [self.hashes[0], self.hashes[2]],
            },
        }
        self.api = Api(self.repo)

    def answer(self, verb: str, expected: str) -> tuple[Response, list[bool]]:
        """The response to a request with a mistake, and whether each piece of work was brief."""
        body = json.dumps(self.bodies[verb]).encode()
        headers = ((b"content-type", b"application/json"),)
        path = f"/api/v2/trees/main%40{expected}/history/{verb}"
        request = Request("POST", path, "", headers=headers, body=body)
        spawner, responses = ManualSpawner(), list[Response]()
        answer = self.api.answer(request)
        if isinstance(answer, Response):
            return answer, []
        run(answer, spawner.spawn, responses.append, lambda e: self.api.failure(request, e))
        spawner.run_all()
        (response,) = responses
        return response, spawner.were_brief


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize("verb", ["commit", "merge", "transplant"])
def test_a_mistake_is_reported_at_once_if_the_expected_commit_is_near(
    scene: Scene, verb: str
) -> None:
    response, threads = scene.answer(verb, scene.hashes[-2])
    assert (response.status, threads) == (400, [])


@pytest.mark.parametrize("verb", ["commit", "merge", "transplant"])
def test_a_thread_walks_along_a_long_history(scene: Scene, verb: str) -> None:
    near, _ = scene.answer(verb, scene.hashes[-2])
    response, threads = scene.answer(verb, scene.hashes[0])
    assert (response.status, threads) == (400, [False])
    assert response.body == near.body


@pytest.mark.parametrize("verb", ["commit", "merge", "transplant"])
def test_an_expected_commit_that_is_elsewhere_is_reported_first(scene: Scene, verb: str) -> None:
    response, threads = scene.answer(verb, scene.elsewhere)
    assert (response.status, threads) == (404, [False])
    assert scene.elsewhere.encode() in response.body
