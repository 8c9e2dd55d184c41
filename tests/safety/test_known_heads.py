"""A cached head saves a read of the reference, and never changes an outcome."""

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
from morag.format.ids import NO_ANCESTOR
from morag.logic.retry import LONGEST_RACE_PAUSE_MS
from morag.versions.known_heads import KnownHeads
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.safety.history_checks import key, put

REF = Ref("refs/heads/main", NO_ANCESTOR)


class Servers:
    """Two servers on one store, each with its own cached heads."""

    def __init__(self) -> None:
        self.backend = CountingBackend(MemoryBackend())
        self.one, self.other = (Repository(self.backend, Settings(), World()) for _ in range(2))
        self.one.commit("main", [put("shared")], "both have it")

    def reads(self) -> int:
        """The number of reads of references since the last call."""
        reads = self.backend.counts["read_refs"]
        self.backend.reset()
        return reads


@pytest.fixture
def servers() -> Servers:
    return Servers()


def tables(repo: Repository, branch: str = "main") -> set[str]:
    return {str(key) for key in repo.contents.keys(branch)}


def test_a_server_that_made_the_last_commit_reads_no_reference(servers: Servers) -> None:
    servers.reads()
    servers.one.commit("main", [put("a")], "a")
    assert servers.reads() == 0


def test_a_server_that_lost_a_race_continues_from_the_other_commit(servers: Servers) -> None:
    servers.other.commit("main", [put("theirs")], "overtakes")
    servers.one.commit("main", [put("ours")], "behind")
    assert tables(servers.other) == {"shared", "theirs", "ours"}


def test_a_commit_on_content_of_another_server_is_not_refused(servers: Servers) -> None:
    """The expected commit is not in the history of this server's cached head."""
    expected = servers.other.commit("main", [put("theirs")], "overtakes").hash
    servers.one.commit("main", [put("ours")], "on that", expected=expected)
    assert tables(servers.one) == {"shared", "theirs", "ours"}


def test_a_conflict_that_the_other_server_resolved_is_not_raised(servers: Servers) -> None:
    servers.other.commit("main", [Delete(key("shared"))], "gone")
    servers.one.commit("main", [put("shared")], "anew")
    assert tables(servers.one) == {"shared"}


def test_a_conflict_with_the_other_server_is_raised(servers: Servers) -> None:
    expected = servers.one.references.get("main").hash
    servers.other.commit("main", [put("a")], "first")
    with pytest.raises(ReferenceConflict):
        servers.one.commit("main", [put("a")], "second", expected=expected)


def test_a_merge_that_seems_empty_is_decided_by_the_stored_head(servers: Servers) -> None:
    """This server's cached head of `main` already holds all of `dev`."""
    first = servers.one.references.get("main").hash
    second = servers.one.commit("main", [put("a")], "a").hash
    servers.one.references.create_branch("dev", "main")
    servers.other.references.assign("main", f"@{first}", second)
    result = servers.one.merge("dev", "main")
    assert result.was_applied
    assert tables(servers.one) == {"shared", "a"}


def test_a_branch_that_the_other_server_dropped_is_not_found(servers: Servers) -> None:
    servers.one.references.create_branch("dev", "main")
    servers.one.commit("dev", [put("a")], "a")
    servers.other.references.delete("dev")
    with pytest.raises(ReferenceNotFound):
        servers.one.commit("dev", [put("b")], "b")


def test_a_server_with_a_stale_head_reads_the_reference_for_a_while(servers: Servers) -> None:
    servers.other.commit("main", [put("theirs")], "overtakes")
    servers.one.commit("main", [put("ours")], "behind")
    servers.reads()
    reads = []
    for number in range(40):
        servers.one.commit("main", [put(f"t{number}")], "t")
        reads.append(servers.reads())
    assert reads == [1] * 32 + [0] * 8


def test_a_rejected_commit_keeps_the_cached_head(servers: Servers) -> None:
    for _ in range(3):
        with pytest.raises(BadRequest, match="no content ID"):
            servers.one.commit("main", [put("shared")], "exists")
        servers.one.commit("main", [Delete(ContentKey.of("shared"))], "delete")
        servers.one.commit("main", [put("shared")], "create")
    servers.reads()
    servers.one.commit("main", [put("a")], "a")
    assert servers.reads() == 0


def test_a_server_that_lost_a_race_yields_after_its_next_win() -> None:
    heads = KnownHeads(is_shared=True)
    heads.moved_by_us(REF, now=1.0, took_seconds=0.01)
    assert heads.courtesy_seconds(REF.name, 1.0) == 0
    heads.moved_by_others(REF.name)
    assert heads.courtesy_seconds(REF.name, 1.1) == 0
    heads.moved_by_us(REF, now=3.0, took_seconds=0.01)
    assert heads.courtesy_seconds(REF.name, 3.0) == pytest.approx(0.015)
    assert heads.courtesy_seconds(REF.name, 3.01) == pytest.approx(0.005)
    assert heads.courtesy_seconds(REF.name, 4.0) == 0
    heads.moved_by_us(REF, now=5.0, took_seconds=60)
    assert heads.courtesy_seconds(REF.name, 5.0) == pytest.approx(0.1)


def test_a_server_that_wins_all_races_pauses_sometimes() -> None:
    """The pause is longer than that of a loser, and pauses get rare without competitors."""
    heads = KnownHeads(is_shared=True)
    waits, now = [], 0.0
    while now < 20:
        heads.moved_by_us(REF, now, took_seconds=0.005)
        pause = heads.courtesy_seconds(REF.name, now)
        if pause:
            waits.append(round(now))
            assert pause * 1000 > LONGEST_RACE_PAUSE_MS
        now += 0.01 + pause
    assert waits == [1, 3, 7, 11, 15, 19]


def test_a_private_store_makes_no_server_wait(servers: Servers) -> None:
    heads = KnownHeads(is_shared=False)
    heads.moved_by_others(REF.name)
    for now in range(10):
        heads.moved_by_us(REF, now, took_seconds=1)
        assert heads.courtesy_seconds(REF.name, now) == 0
    assert isinstance(MemoryBackend(), Private)
    assert not isinstance(servers.backend, Private)


def test_an_assign_by_the_same_server_updates_the_cached_head(servers: Servers) -> None:
    before = servers.one.references.get("main").hash
    servers.one.commit("main", [put("a")], "a")
    servers.one.references.assign("main", f"@{before}")
    servers.one.commit("main", [put("b")], "b")
    assert tables(servers.one) == {"shared", "b"}
    servers.reads()
    servers.one.commit("main", [put("c")], "c")
    assert servers.reads() == 0


def test_the_number_of_cached_heads_is_limited() -> None:
    heads = KnownHeads(is_shared=True)
    for number in range(3000):
        heads.moved_by_us(Ref(f"refs/heads/{number}", NO_ANCESTOR), 0, 0)
        heads.moved_by_others(f"refs/heads/{-number}")
    assert len(heads._branches) <= 1000
    heads.moved_by_us(REF, 0, 0)
    assert heads.take(REF.name) == REF
    assert heads.take(REF.name) is None
