"""Large responses are made in small pieces and short steps, whatever makes them large."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from morag import IcebergTable, Namespace, Put, Repository, Settings
from morag.api.app import Api
from morag.api.http import Client, Request, Response
from morag.api.later import ClientGone, InPieces
from morag.backend.memory import MemoryBackend
from morag.errors import BadRequest
from morag.service import paging
from morag.service.service import Service
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.rules.operations import delete, key, namespace, put
from tests.spawners import ManualSpawner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.model.operations import Operation

LARGE = 300_000
MOST_BYTES = 256 * 1024
"""The limit of a piece that is not a single large item."""


class Scene:
    def __init__(self, **world: Any) -> None:
        self.backend = CountingBackend(MemoryBackend())
        self.repo = Repository(self.backend, Settings(), World(**world))
        self.api = Api(self.repo)

    def commit(self, operations: Iterable[Operation], message: str = "c") -> None:
        self.repo.commit("main", list(operations), message)

    def pieces(self, path: str, query: str = "") -> list[bytes]:
        answer = self.api.answer(Request("GET", f"/api/{path}", query))
        assert isinstance(answer, InPieces)
        return list(answer.work().bodies)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def large(name: str) -> Put:
    return Put(key(name), Namespace(elements=(name,), properties={"p": "x" * LARGE}))


def shown(pieces: list[bytes], field: str) -> list[Any]:
    found: list[Any] = json.loads(b"".join(pieces))[field]
    return found


@pytest.mark.parametrize("filter", ["", "&filter=entry.key!='n7'"])
def test_large_contents_are_sent_one_by_one(scene: Scene, filter: str) -> None:
    scene.commit([large(f"n{number}") for number in range(30)])
    pieces = scene.pieces("v2/trees/main/entries", f"content=true{filter}")
    assert max(map(len, pieces)) < 2 * LARGE
    names = [entry["name"]["elements"][0] for entry in shown(pieces, "entries")]
    assert names == sorted({f"n{number}" for number in range(30)} - ({"n7"} if filter else set()))


def test_many_small_contents_are_sent_together(scene: Scene) -> None:
    scene.commit([put(f"t{number:04}", "x") for number in range(1_000)])
    pieces = scene.pieces("v2/trees/main/entries", "content=true")
    assert len(pieces) < 100
    assert len(shown(pieces, "entries")) == 1_000


def test_a_filter_keeps_contents_from_being_read(scene: Scene) -> None:
    scene.commit([large(f"n{number}") for number in range(30)])
    scene.backend.reset()
    pieces = scene.pieces("v2/trees/main/entries", "content=true&filter=entry.key=='n7'")
    assert len(shown(pieces, "entries")) == 1
    assert scene.backend.rows["read_rows"] == 1


def test_differences_of_large_contents_are_sent_one_by_one(scene: Scene) -> None:
    scene.repo.references.create_branch("old", "main")
    scene.commit([large(f"n{number}") for number in range(30)])
    pieces = scene.pieces("v2/trees/old/diff/main")
    assert max(map(len, pieces)) < 2 * LARGE
    assert len(shown(pieces, "diffs")) == 30


@pytest.mark.parametrize("path", ["v2/trees/main/history", "v1/trees/tree/main/log"])
def test_a_commit_with_very_many_operations_is_sent_in_pieces(scene: Scene, path: str) -> None:
    scene.commit(put(f"t{number:05}", "x" * 100) for number in range(5_000))
    scene.commit([put("a", "x"), delete("t00000"), delete("t00003"), put("b", "x")])
    scene.repo.commit("main", [put("c", "x")], "last")
    pieces = scene.pieces(path, "fetch=ALL")
    assert max(map(len, pieces)) < MOST_BYTES
    last, middle, first = shown(pieces, "logEntries")
    assert list(first) == ["commitMeta", "parentCommitHash", "operations"]
    assert len(first["operations"]) == 5_000
    done = [(op["type"], op["key"]["elements"][0]) for op in middle["operations"]]
    assert done == [("DELETE", "t00000"), ("DELETE", "t00003"), ("PUT", "a"), ("PUT", "b")]
    assert len(last["operations"]) == 1


def test_a_history_with_long_messages_is_sent_in_pieces(scene: Scene) -> None:
    for number in range(10):
        scene.commit([put(f"t{number}", "x")], message="m" * LARGE)
    assert max(map(len, scene.pieces("v2/trees/main/history"))) < 2 * LARGE
    references = scene.pieces("v2/trees", "fetch=ALL")
    assert max(map(len, references)) < 2 * LARGE


def test_implicit_namespaces_are_sent_in_batches(scene: Scene) -> None:
    scene.repo = Repository(MemoryBackend(), Settings(namespace_validation=False), World())
    scene.api = Api(scene.repo)
    scene.commit(put(f"n{number:04}.t", "x") for number in range(2_000))
    scene.commit([Put(key("n0007"), namespace("n0007"))])
    pieces = scene.pieces("v1/namespaces/main")
    assert max(map(len, pieces)) < MOST_BYTES / 2
    assert sum(map(bool, pieces)) > 4
    names = [found["elements"][0] for found in shown(pieces, "namespaces")]
    assert names == ["n0007", *(f"n{n:04}" for n in range(2_000) if n != 7)]


def test_several_large_contents_are_not_read_on_the_event_loop(
    scene: Scene,
) -> None:
    scene.commit([large(f"n{number}") for number in range(20)])
    for path, query in (
        ("/api/v2/trees/main/contents", "key=n1&key=n2"),
        ("/api/v2/trees/main/contents/n1", ""),
        ("/api/v1/contents/n1", "ref=main"),
    ):
        assert not isinstance(scene.api.answer(Request("GET", path, query)), Response)
    pieces = scene.pieces("v2/trees/main/contents", "&".join(f"key=n{n}" for n in range(20)))
    assert max(map(len, pieces)) < 2 * LARGE
    assert len(shown(pieces, "contents")) == 20


def test_a_few_small_contents_are_read_at_once(scene: Scene) -> None:
    scene.commit(put(name, name) for name in "ab")
    few = scene.api.answer(Request("GET", "/api/v2/trees/main/contents", "key=a&key=x&key=b"))
    assert isinstance(few, Response)
    found = json.loads(few.body)["contents"]
    assert [each["content"]["metadataLocation"] for each in found] == ["a", "b"]
    assert isinstance(scene.api.answer(Request("GET", "/api/v1/contents/a", "ref=main")), Response)


def test_created_namespaces_come_first_and_implicit_ones_once(scene: Scene) -> None:
    tables = [put(name, name) for name in ("a.b.c.t", "a.b.t", "a.b.u", "a.t", "b.c.t", "d.t", "t")]
    created = [Put(key(name), namespace(name)) for name in "ad"]
    without_checks = Settings(namespace_validation=False)
    scene.repo = Repository(scene.backend, without_checks, World())
    scene.api = Api(scene.repo)
    scene.commit([*created, *tables])
    pieces = scene.pieces("v1/namespaces/main", "")
    names = [".".join(found["elements"]) for found in shown(pieces, "namespaces")]
    assert names == ["a", "d", "a.b.c", "a.b", "b.c"]


def test_a_namespace_is_identified_by_its_name_and_not_by_its_key(scene: Scene) -> None:
    scene.repo = Repository(scene.backend, Settings(namespace_validation=False), World())
    scene.api = Api(scene.repo)
    tables = [put(name, name) for name in ("a.t", "b.t", "c.t")]
    scene.commit([Put(key("a"), namespace("b")), Put(key("c"), namespace("c")), *tables])
    pieces = scene.pieces("v1/namespaces/main", "")
    names = [".".join(found["elements"]) for found in shown(pieces, "namespaces")]
    assert names == ["b", "c", "a"]


def test_a_diff_of_two_keys_reads_only_their_rows(scene: Scene) -> None:
    scene.commit(put(f"t{number:05}", "x") for number in range(10_000))
    scene.commit([put("u", "x")])
    scene.repo.references.create_branch("old", "main")
    found = scene.repo.contents.get_all("main", [key(f"t{n:05}") for n in range(10_000)])
    scene.commit(
        Put(name, IcebergTable(**{**_fields(content), "metadata_location": "y"}))
        for name, content in found.items()
    )
    scene.commit([put("v", "x")])
    cold = Repository(scene.backend, Settings(), World())
    scene.backend.reset()
    differing = list(cold.contents.diff("old", "main", keys=[key("t00000"), key("t09999")]))
    assert [str(item.key) for item in differing] == ["t00000", "t09999"]
    assert scene.backend.rows["read_rows"] < 20


def _fields(content: Any) -> dict[str, Any]:
    return {name: getattr(content, name) for name in content.__struct_fields__}


def test_recent_changes_are_checked_in_steps(scene: Scene) -> None:
    scene.commit(put(f"t{number:05}", "x") for number in range(2_000))
    scene.commit([put("u", "x")])
    pieces = scene.pieces("v2/trees/main/recent-changes", "scan-commits=2")
    assert len(pieces) > 60
    assert not any(pieces[:-1])
    assert json.loads(pieces[-1])["commitLogConsistency"] == "COMMIT_CONSISTENT"


def test_checking_recent_changes_stops_when_the_client_disconnects(scene: Scene) -> None:
    scene.commit(put(f"t{number:05}", "x") for number in range(2_000))
    works, client, outcomes = ManualSpawner(), Client("gone"), list[object]()
    later = scene.api.answer(
        Request("GET", "/api/v2/trees/main/recent-changes", "scan-commits=2000", client=client)
    )
    assert isinstance(later, InPieces)
    later.start(works.spawn, outcomes.append)
    client.gone = True
    scene.backend.reset()
    works.run_one()
    assert [type(outcome) for outcome in outcomes] == [ClientGone]
    assert scene.backend.rows["read_rows"] < 10


def test_recent_changes_that_take_too_long_are_refused_with_a_message() -> None:
    """Each call of the clock advances it by ten seconds."""
    scene = Scene()
    scene.commit(put(f"t{number:05}", "x") for number in range(2_000))
    seconds = iter(range(0, 10**9, 10))
    references = Service(scene.repo, lambda: float(next(seconds))).references
    with pytest.raises(BadRequest, match="request fewer 'scan-commits'"):
        for _ in references.history("main", 100):
            pass
    assert next(seconds) < 4 * paging.WHOLE_CPU_SECONDS
