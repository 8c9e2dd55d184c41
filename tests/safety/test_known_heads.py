"""What a process remembers of its branches saves a question, and never decides anything."""

from __future__ import annotations

import pytest

from morag import (
    BadRequest,
    ContentKey,
    Delete,
    ReferenceConflict,
    ReferenceNotFound,
    Repository,
    Settings,
)
from morag.backend.base import Private, Ref
from morag.backend.memory import MemoryBackend
from morag.logic.retry import LONGEST_RACE_PAUSE_MS
from morag.persist.ids import NO_ANCESTOR
from morag.testing.counting import CountingBackend
from morag.versions.known_heads import KnownHeads
from morag.versions.world import World
from tests.safety.sound import key, put

REF = Ref("refs/heads/main", NO_ANCESTOR)


class Servers:
    """Two on one store, each with a memory of its own."""

    def __init__(self) -> None:
        self.backend = CountingBackend(MemoryBackend())
        self.one, self.other = (Repository(self.backend, Settings(), World()) for _ in range(2))
        self.one.commit("main", [put("shared")], "both know it")

    def reads(self) -> int:
        """How often a reference was read since the last time."""
        reads = self.backend.counts["read_refs"]
        self.backend.reset()
        return reads


@pytest.fixture
def servers() -> Servers:
    return Servers()


def tables(repo: Repository, branch: str = "main") -> set[str]:
    return {str(key) for key in repo.contents.keys(branch)}


def test_who_goes_on_from_its_own_commit_asks_for_no_reference(servers: Servers) -> None:
    servers.reads()
    servers.one.commit("main", [put("a")], "a")
    assert servers.reads() == 0


def test_who_was_overtaken_goes_on_from_the_others_commit(servers: Servers) -> None:
    servers.other.commit("main", [put("theirs")], "overtakes")
    servers.one.commit("main", [put("ours")], "behind")
    assert tables(servers.other) == {"shared", "theirs", "ours"}


def test_a_commit_on_what_only_the_other_made_is_not_refused(servers: Servers) -> None:
    """Where this server left the branch, the expected commit is not there."""
    seen = servers.other.commit("main", [put("theirs")], "overtakes").hash
    servers.one.commit("main", [put("ours")], "on that", expected=seen)
    assert tables(servers.one) == {"shared", "theirs", "ours"}


def test_a_conflict_that_the_other_resolved_is_none(servers: Servers) -> None:
    servers.other.commit("main", [Delete(key("shared"))], "gone")
    servers.one.commit("main", [put("shared")], "anew")
    assert tables(servers.one) == {"shared"}


def test_a_conflict_that_the_other_made_is_one(servers: Servers) -> None:
    seen = servers.one.references.get("main").hash
    servers.other.commit("main", [put("a")], "first")
    with pytest.raises(ReferenceConflict):
        servers.one.commit("main", [put("a")], "second", expected=seen)


def test_what_needs_no_commit_is_decided_by_the_store(servers: Servers) -> None:
    """Where this server left the branch, it has all of `dev`."""
    first = servers.one.references.get("main").hash
    second = servers.one.commit("main", [put("a")], "a").hash
    servers.one.references.create_branch("dev", "main")
    servers.other.references.assign("main", f"@{first}", second)
    result = servers.one.merge("dev", "main")
    assert result.was_applied
    assert tables(servers.one) == {"shared", "a"}


def test_a_branch_that_the_other_dropped_is_gone(servers: Servers) -> None:
    servers.one.references.create_branch("dev", "main")
    servers.one.commit("dev", [put("a")], "a")
    servers.other.references.delete("dev")
    with pytest.raises(ReferenceNotFound):
        servers.one.commit("dev", [put("b")], "b")


def test_who_was_wrong_asks_for_a_while(servers: Servers) -> None:
    servers.other.commit("main", [put("theirs")], "overtakes")
    servers.one.commit("main", [put("ours")], "behind")
    servers.reads()
    asked = []
    for number in range(40):
        servers.one.commit("main", [put(f"t{number}")], "t")
        asked.append(servers.reads())
    assert asked == [1] * 32 + [0] * 8


def test_a_refusal_is_no_reason_for_doubts(servers: Servers) -> None:
    for _ in range(3):
        with pytest.raises(BadRequest, match="no content ID"):
            servers.one.commit("main", [put("shared")], "it is there")
        servers.one.commit("main", [Delete(ContentKey.of("shared"))], "so it goes")
        servers.one.commit("main", [put("shared")], "and comes")
    servers.reads()
    servers.one.commit("main", [put("a")], "a")
    assert servers.reads() == 0


def test_who_lost_a_race_lets_the_other_go_first_after_it_won() -> None:
    heads = KnownHeads(is_shared=True)
    heads.left(REF, now=1.0, took_seconds=0.01)
    assert heads.courtesy_seconds(REF.name, 1.0) == 0
    heads.lost(REF.name)
    assert heads.courtesy_seconds(REF.name, 1.1) == 0
    heads.left(REF, now=3.0, took_seconds=0.01)
    assert heads.courtesy_seconds(REF.name, 3.0) == pytest.approx(0.015)
    assert heads.courtesy_seconds(REF.name, 3.01) == pytest.approx(0.005)
    assert heads.courtesy_seconds(REF.name, 4.0) == 0
    heads.left(REF, now=5.0, took_seconds=60)
    assert heads.courtesy_seconds(REF.name, 5.0) == pytest.approx(0.1)


def test_who_wins_all_races_waits_now_and_then_for_those_it_does_not_know() -> None:
    """For longer than those pause who lose, and rarely if there is nobody."""
    heads = KnownHeads(is_shared=True)
    waits, now = [], 0.0
    while now < 20:
        heads.left(REF, now, took_seconds=0.005)
        pause = heads.courtesy_seconds(REF.name, now)
        if pause:
            waits.append(round(now))
            assert pause * 1000 > LONGEST_RACE_PAUSE_MS
        now += 0.01 + pause
    assert waits == [1, 3, 7, 11, 15, 19]


def test_where_nobody_else_can_be_nobody_waits(servers: Servers) -> None:
    heads = KnownHeads(is_shared=False)
    heads.lost(REF.name)
    for now in range(10):
        heads.left(REF, now, took_seconds=1)
        assert heads.courtesy_seconds(REF.name, now) == 0
    assert isinstance(MemoryBackend(), Private)
    assert not isinstance(servers.backend, Private)


def test_a_branch_that_we_assign_is_not_taken_for_anothers(servers: Servers) -> None:
    before = servers.one.references.get("main").hash
    servers.one.commit("main", [put("a")], "a")
    servers.one.references.assign("main", f"@{before}")
    servers.one.commit("main", [put("b")], "b")
    assert tables(servers.one) == {"shared", "b"}
    servers.reads()
    servers.one.commit("main", [put("c")], "c")
    assert servers.reads() == 0


def test_it_forgets_rather_than_grows() -> None:
    heads = KnownHeads(is_shared=True)
    for number in range(3000):
        heads.left(Ref(f"refs/heads/{number}", NO_ANCESTOR), 0, 0)
        heads.lost(f"refs/heads/{-number}")
    assert len(heads._branches) <= 1000
    heads.left(REF, 0, 0)
    assert heads.take(REF.name) == REF
    assert heads.take(REF.name) is None
