"""Refs that are looked up for many readers at once: never older than an acknowledged change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.errors import StoreBusy
from morag.versions.ref_look_ups import LookedUp, NotNear, RefLookUps, concerns_all
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.safety.history_checks import key, put
from tests.spawners import ManualSpawner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import Ref

MAIN = "refs/heads/main"


class Watched(CountingBackend):
    """Calls a function after each read of refs, before the caller gets them."""

    after_read: Callable[[], object] = staticmethod(lambda: None)

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        found = super().read_refs(repo, names)
        self.after_read()
        return found


class Scene:
    """Readers of one store, whose threads and event loop the test runs step by step."""

    def __init__(self) -> None:
        self.backend = Watched(MemoryBackend())
        self.repo = Repository(self.backend, Settings(), World())
        self.repo.commit("main", [put("a")], "a")
        self.works = ManualSpawner()
        self.outcomes: list[LookedUp | Exception] = []
        self._look_ups: RefLookUps = self.repo.look_ups
        self.backend.reset()

    def read(self, *names: str) -> None:
        self._look_ups.start(names, self.works.spawn, self.outcomes.append)

    def run(self) -> None:
        while self.works.waiting:
            self.works.run_one()

    def head(self, number: int, name: str = MAIN) -> str | None:
        """The commit that the reader with this number was told."""
        found = self.outcomes[number]
        assert isinstance(found, LookedUp)
        ref = found.refs[name]
        return None if ref is None else ref.pointer.hex()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_readers_that_wait_share_one_read(scene: Scene) -> None:
    for _ in range(5):
        scene.read(MAIN, "refs/tags/main")
    scene.read("refs/heads/nope")
    scene.run()
    assert scene.backend.counts == {"read_refs": 1}
    assert {scene.head(number) for number in range(5)} == {scene.repo.references.get("main").hash}
    assert scene.head(5, "refs/heads/nope") is None


def test_a_reader_is_not_given_what_was_read_before_it_arrived(scene: Scene) -> None:
    """The look-up has read the old head when a commit is acknowledged; then a reader arrives."""
    hashes = [scene.repo.references.get("main").hash]

    def commit_then_read() -> None:
        del scene.backend.after_read
        hashes.append(scene.repo.commit("main", [put("b")], "b").hash)
        scene.read(MAIN)

    scene.backend.after_read = commit_then_read
    scene.read(MAIN)
    scene.run()
    assert [scene.head(0), scene.head(1)] == hashes


def test_readers_that_arrive_during_a_read_share_the_next_one(scene: Scene) -> None:
    def more_readers() -> None:
        del scene.backend.after_read
        for _ in range(3):
            scene.read(MAIN)

    scene.backend.after_read = more_readers
    scene.read(MAIN)
    scene.run()
    assert len(scene.outcomes) == 4
    assert scene.backend.counts == {"read_refs": 2}


def test_a_reader_after_the_last_look_up_starts_another(scene: Scene) -> None:
    for number in range(3):
        scene.read(MAIN)
        scene.run()
        assert len(scene.outcomes) == number + 1


def test_every_reader_gets_the_error_of_a_failed_look_up(scene: Scene) -> None:
    def fail() -> None:
        del scene.backend.after_read
        raise StoreBusy("no answer")

    scene.backend.after_read = fail
    for _ in range(3):
        scene.read(MAIN)
    scene.run()
    assert [type(outcome) for outcome in scene.outcomes] == [StoreBusy] * 3
    scene.read(MAIN)
    scene.run()
    assert scene.head(3) == scene.repo.references.get("main").hash


def test_only_an_unavailable_store_concerns_the_readers_of_all_names() -> None:
    assert concerns_all(StoreBusy(""))
    assert not concerns_all(OSError())


def test_near_work_uses_the_looked_up_refs_and_no_store(scene: Scene) -> None:
    scene.repo.contents.get("main", key("a"))  # Now it is cached.
    scene.read(MAIN, "refs/tags/main")
    scene.run()
    found = scene.outcomes[0]
    assert isinstance(found, LookedUp)
    scene.backend.reset()
    content = found.run_near(lambda: scene.repo.contents.get("main", key("a")))
    assert content == scene.repo.contents.get("main", key("a"))
    assert scene.backend.counts == {"read_refs": 1}  # The one outside of `run_near`.


@pytest.mark.parametrize("what", ["an object", "another ref", "a missing ref"])
def test_near_work_that_needs_the_store_is_stopped(scene: Scene, what: str) -> None:
    scene.repo.references.create_branch("other", "main")
    scene.read(MAIN, "refs/tags/main", "refs/heads/nope", "refs/tags/nope")
    scene.run()
    found = scene.outcomes[0]
    assert isinstance(found, LookedUp)
    cold = Repository(scene.backend, Settings(), World())
    found = LookedUp(cold._persist, found.refs)
    scene.backend.reset()
    works: dict[str, Callable[[], object]] = {
        "an object": lambda: cold.contents.get("main", key("a")),
        "another ref": lambda: cold.references.get("other"),
        "a missing ref": lambda: cold.references.get("nope"),  # Its name may be committed.
    }
    with pytest.raises(NotNear):
        found.run_near(works[what])
    assert not scene.backend.counts
    works["an object"]()  # Nothing is limited afterwards.


def test_other_work_reads_the_looked_up_refs_only_once(scene: Scene) -> None:
    scene.read(MAIN, "refs/tags/main")
    scene.run()
    found = scene.outcomes[0]
    assert isinstance(found, LookedUp)
    cold = Repository(scene.backend, Settings(), World())
    found = LookedUp(cold._persist, found.refs)
    scene.backend.reset()
    found.run(lambda: cold.contents.get("main", key("a")))
    assert scene.backend.counts["read_refs"] == 0
    assert scene.backend.counts["read_rows"] > 0


def test_many_readers_are_continued_a_few_at_a_time(scene: Scene) -> None:
    """Other work of the event loop comes in between."""
    for _ in range(40):
        scene.read(MAIN)
    scene.works.run_one()
    scene.works.run_one()
    counts = []
    while scene.works.waiting:
        scene.works.run_one()
        counts.append(len(scene.outcomes))
    assert counts == [16, 32, 40]
