"""Lanes that an event loop drives: it never waits, and no result is delivered before its sync."""

from __future__ import annotations

from collections import Counter
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from morag.backend.memory import MemoryBackend
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.config import Settings
from morag.errors import (
    ReferenceConflict,
    ReferenceNotFound,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
)
from morag.format.records import ObjId, Row
from morag.model.merging import MergeBehavior, MergeKey, MergeOptions
from morag.model.operations import Delete
from morag.versions.lanes import Lane
from morag.versions.repository import Repository
from morag.versions.syncs import Syncs
from morag.versions.tickets import Caller, Waiter
from morag.versions.world import World
from tests import spawners
from tests.backend.counting import CountingBackend
from tests.backend.faulty import Fault, FaultyBackend
from tests.backend.slow_disk import SlowDisk
from tests.safety.faulty_stores import NO_FAULTS, QUICK, BusyBackend, Store, Time, Upcoming
from tests.safety.history_checks import (
    check_sound,
    in_thread,
    in_threads,
    key,
    messages,
    put,
)
from tests.safety.stepped_server import SteppedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from morag.versions.tickets import Spawn, Ticket

pytestmark = pytest.mark.timeout(60)

FAR = 401


class Server(SteppedServer):
    """Commits; the outcomes are hashes by message."""

    def start(self, message: str, branch: str = "main", expected: str | None = None) -> None:
        """Start a commit that creates the key `message`."""
        request = self.repo.commit_request(branch, [put(message)], message, expected=expected)
        self.repo.start(request, self._spawner.spawn, partial(self._finished, message))

    def _finished(self, message: str, ticket: Ticket) -> None:
        kind = type(ticket.failure).__name__
        self.outcomes[message] = ticket.result().hash if ticket.failure is None else kind

    def head(self, branch: str = "main") -> str | None:
        return self.repo.references.get(branch).hash


@pytest.fixture
def rocksdb(tmp_path: Path) -> Iterator[RocksDBBackend]:
    backend = RocksDBBackend(tmp_path / "store")
    yield backend
    backend.close()


@pytest.fixture
def store() -> Store:
    """Its server shares the store with others, and its faults are planned."""
    return Store(FaultyBackend, False, QUICK, World())


# Syncs


def test_no_result_is_delivered_before_its_sync(rocksdb: RocksDBBackend) -> None:
    server = Server(rocksdb)
    before = server.head()
    server.start("a")
    server.start("b", expected=before)
    server.run("loop")
    assert server.outcomes == {}
    assert server.head() == before
    server.run("thread")
    assert server.outcomes == {}, "the loop delivers results"
    server.run("loop")
    assert server.head() == server.outcomes["b"]
    assert messages(server.repo, "main") == ["a", "b"]
    assert server.waiting == []


def test_a_store_without_syncs_needs_no_thread(tmp_path: Path) -> None:
    rocksdb = RocksDBBackend(tmp_path, sync=False)
    for backend in (MemoryBackend(), rocksdb):
        server = Server(backend)
        server.start("a")
        assert server.run_all() == ["loop"]
        assert server.outcomes == {"a": server.head()}
    rocksdb.close()


def test_a_batch_that_fails_alone_needs_no_sync(rocksdb: RocksDBBackend) -> None:
    server = Server(rocksdb)
    server.start("a")
    server.run_all()
    server.start("a")
    assert server.run_all() == ["loop"]
    assert server.outcomes == {"a": "BadRequest"}


def test_requests_during_a_sync_are_in_the_next_batch(rocksdb: RocksDBBackend) -> None:
    backend = CountingBackend(rocksdb)
    server = Server(backend)
    server.start("a")
    server.run("loop")
    for message in "bcd":
        server.start(message)
    assert server.waiting == ["thread"], "the lane is driven already"
    assert server.run_all() == ["thread", "loop", "loop", "thread", "loop"]
    assert messages(server.repo, "main") == list("abcd")
    assert backend.counts["try_apply"] == backend.counts["sync"] == 2


def test_one_sync_is_enough_for_several_lanes(rocksdb: RocksDBBackend) -> None:
    backend = CountingBackend(rocksdb)
    server = Server(backend)
    branches = [f"b{n}" for n in range(5)]
    for branch in branches:
        server.repo.references.create_branch(branch, "main")
        server.start(branch, branch)
    backend.reset()
    server.run_all()
    assert backend.counts["try_apply"] == 5
    assert backend.counts["sync"] == 1
    assert server.outcomes == {branch: server.head(branch) for branch in branches}


def test_a_write_during_a_sync_waits_for_the_next_one() -> None:
    spawner = spawners.ManualSpawner()
    events: list[str] = []

    def sync() -> None:
        events.append("sync")
        if len(events) == 1:
            syncs.then(spawner.spawn, lambda _: events.append("late"))

    syncs = Syncs(sync)
    syncs.then(spawner.spawn, lambda _: events.append("early"))
    spawner.run_all()
    assert events == ["sync", "sync", "early", "late"]
    assert spawner.were_brief == [False, True, True]
    syncs.then(spawner.spawn, lambda _: events.append("again"))
    spawner.run_all()
    assert events[4:] == ["sync", "again"]


def test_a_failed_sync_fails_its_whole_batch_and_later_writes(
    rocksdb: RocksDBBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(rocksdb)
    server.repo.references.create_branch("side", "main")
    server.start("good")
    server.run_all()
    before = server.head()
    disk = SlowDisk(rocksdb._db)
    disk.go.set()
    disk.fail_at, disk.error = 1, OSError("no space left")
    monkeypatch.setattr(rocksdb, "_db", disk)
    server.start("a")
    server.start("a", expected=before)  # A conflict, but with a commit that may be lost.
    server.start("b")
    waiter = Waiter(server.repo.commit_request("main", [put("c")], "c"))
    assert not server.repo._writers().lanes.lane("main").join([waiter])
    server.start("side", "side")
    server.run_all()
    refused = StoreCannotWrite.__name__
    assert server.outcomes == {"good": before, "a": refused, "b": refused, "side": refused}
    assert isinstance(waiter.failure, StoreCannotWrite)
    assert server.head() == before
    disk.error = None
    for branch in ("main", "side"):
        server.start("late", branch)
        server.run_all()
        assert server.outcomes.pop("late") == refused
    assert server.head() == server.head("main") == before
    assert messages(server.repo, "main") == ["good"]


def test_after_an_unknown_outcome_of_a_sync_the_branch_continues(rocksdb: RocksDBBackend) -> None:
    """A sync that fails without breaking the store: what was written appears with the next one."""
    backend = FaultyBackend(rocksdb, NO_FAULTS)
    server = Server(backend)
    backend.plan = Upcoming({"sync": [Fault.BEFORE]})
    server.start("unknown")
    server.run_all()
    assert server.outcomes == {"unknown": "InjectedFault"}
    assert messages(server.repo, "main") == []
    server.start("next")
    assert server.run_all() == ["loop", "thread"], "the newest write of the branch is not durable"
    assert server.outcomes["next"] == server.head()
    assert messages(server.repo, "main") == ["unknown", "next"]


def test_closing_a_store_keeps_what_waits_for_a_sync(tmp_path: Path) -> None:
    server = Server(RocksDBBackend(tmp_path))
    server.start("a")
    server.run("loop")
    server.repo.close()
    assert server.run_all() == ["thread", "loop"]
    reopened = Repository(RocksDBBackend(tmp_path), QUICK, World())
    assert server.outcomes == {"a": reopened.references.get("main").hash}
    reopened.close()


# Work that would hold up the loop


def test_a_batch_that_would_have_to_wait_gets_a_thread_and_keeps_its_order(store: Store) -> None:
    server = Server(store.backend)
    store.backend.plan = Upcoming({"try_apply": [Fault.WOULD_WAIT]})
    for message in "abc":
        server.start(message)
    server.run("loop")
    server.start("d")
    assert server.outcomes == {}
    assert server.run_all() == ["thread"]
    assert messages(server.repo, "main") == list("abcd")
    server.start("e")
    assert server.run_all() == ["loop"]
    assert messages(server.repo, "main") == list("abcde")


def test_a_request_that_a_thread_waits_for_is_in_the_batch_of_the_loop(store: Store) -> None:
    server = Server(store.backend)
    store.backend.plan = Upcoming({"try_apply": [Fault.WOULD_WAIT]})
    server.start("a")
    lane = server.repo._writers().lanes.lane("main")
    waiters = [Waiter(server.repo.commit_request("main", [put(m)], m)) for m in "bc"]
    assert not lane.join(waiters)
    server.start("d")
    server.run("loop")
    assert not any(waiter.done for waiter in waiters)
    assert server.run_all() == ["thread"]
    assert all(waiter.result() for waiter in waiters)
    assert messages(server.repo, "main") == list("abcd")


@pytest.mark.parametrize(("distance", "places"), [(FAR - 1, ["loop"]), (FAR, ["loop", "thread"])])
def test_a_request_that_walks_a_long_history_gets_a_thread(
    distance: int, places: list[str]
) -> None:
    server = Server(MemoryBackend())
    first = server.repo.commit("main", [put("first")], "first").hash
    content = server.repo.contents.get("main", key("first"))
    for n in range(distance):
        server.repo.commit("main", [put("first", n, content.id)], f"{n}")
    server.start("far", expected=first)
    server.start("near")
    assert server.run_all() == places
    assert server.outcomes["near"] == server.head()
    assert messages(server.repo, "main")[-2:] == ["far", "near"]


def test_an_expected_commit_that_is_unknown_or_damaged_fails_one_request() -> None:
    memory = MemoryBackend()
    repo = Repository(memory, QUICK, World())
    damaged = repo.commit("main", [put("damaged")], "damaged").hash
    for n in range(25):  # More than the head has in its tail.
        repo.commit("main", [put(f"{n}")], f"{n}")
    id = ObjId(bytes.fromhex(damaged))
    rows = memory._repos[""].rows
    rows[id] = Row(id, rows[id].kind, rows[id].data[:-5], None, 0)
    server = Server(memory)
    server.start("damaged", expected=damaged)
    server.start("unknown", expected="00" * 31 + "01")
    server.start("good")
    assert server.run_all() == ["loop"]
    assert server.outcomes == {
        "damaged": RepositoryCorrupt.__name__,
        "unknown": ReferenceNotFound.__name__,
        "good": server.head(),
    }


def test_a_lost_race_is_repeated_by_a_thread(store: Store) -> None:
    """It searches the history for its commit, which may take long."""
    server = Server(store.backend)
    server.repo.commit("main", [put("first")], "first")
    store.other().commit("main", [put("theirs")], "theirs")
    server.start("ours")
    assert server.run_all() == ["loop", "thread"]
    assert messages(server.repo, "main") == ["first", "theirs", "ours"]
    server.start("first", expected=server.outcomes["ours"])
    assert server.run_all() == ["loop"]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_branch_that_is_being_created_or_removed_is_left_to_a_thread(is_deleted: bool) -> None:
    """Its change is completed under a lock, which another thread holds while it syncs."""
    server = Server(MemoryBackend())
    server.repo.references.create_branch("b", "main")
    persist = server.repo._persist
    ref = persist.ref("refs/heads/b")
    assert ref is not None
    deleted = type(ref)(ref.name, ref.pointer, True, ref.created_micros)
    assert persist.swap_ref(ref.name, ref, deleted if is_deleted else None)
    held, release = Event(), Event()

    def hold() -> None:
        with server.repo._writers().references._lock:
            held.set()
            assert release.wait(timeout=30)

    holding = in_thread(hold)
    assert held.wait(timeout=30)
    server.start("a", "b")
    in_thread(partial(server.run, "loop")).result(timeout=10)
    assert server.outcomes == {}
    release.set()
    holding.result(timeout=10)
    assert server.run_all() == ["thread"]
    expected = ReferenceNotFound.__name__ if is_deleted else server.head("b")
    assert server.outcomes == {"a": expected}


def test_a_missing_branch_is_reported(store: Store) -> None:
    server = Server(store.backend)
    server.start("a", "missing")
    server.run_all()
    assert server.outcomes == {"a": ReferenceNotFound.__name__}


def test_the_loop_does_not_let_other_servers_go_first() -> None:
    """A thread does that: it is a pause."""
    time = Time()
    server = Server(CountingBackend(MemoryBackend()), time.world())
    for message in "ab":
        server.start(message)
        server.run_all()
        time.now += 2  # It is time to find out whether there are other servers.
    server.start("c")
    server.run_all()
    server.start("d")
    server.run("loop")
    assert time.sleeps_ms == []
    assert server.run_all() == ["thread"]
    assert len(time.sleeps_ms) == 1
    assert messages(server.repo, "main") == list("abcd")


# Merges and transplants


class Merging(Server):
    """It also merges and transplants; the outcomes have the name of the source."""

    def merge(self, source: str, **options: Any) -> None:
        request = self.repo.merge_request(source, "main", MergeOptions(**options))
        self._bring(source, request)

    def transplant(self, source: str, *hashes: str, **options: Any) -> None:
        options = {"squash": False} | options
        self._bring(source, self.repo.transplant_request(hashes, "main", MergeOptions(**options)))

    def _bring(self, source: str, request: Any) -> None:
        def finished(ticket: Ticket) -> None:
            assert ticket.failure is None
            self.outcomes[source] = ticket.result().resultant_target_hash

        self.repo.start(request, self._spawner.spawn, finished)

    def branch(self, name: str, commits: int = 1, puts: int = 1) -> list[str]:
        """Create a branch and commit to it."""
        self.repo.references.create_branch(name, "main")
        return [
            self.repo.commit(name, [put(f"{name}-{n}-{m}") for m in range(puts)], f"{n}").hash
            for n in range(commits)
        ]


@pytest.fixture
def merging() -> Merging:
    server = Merging(MemoryBackend(), settings=Settings())
    server.repo.commit("main", [put("first")], "first")
    return server


def test_a_small_merge_and_a_small_transplant_need_no_thread(merging: Merging) -> None:
    merging.branch("one", 3)
    hashes = merging.branch("two", 2)
    merging.start("meanwhile")
    merging.merge("one")
    merging.transplant("two", *hashes)
    merging.start("after")
    assert merging.run_all() == ["loop"] * 4
    assert len(messages(merging.repo, "main")) == 6
    assert merging.outcomes["after"] == merging.head()
    check_sound(merging.repo, "main")


def test_a_merge_that_cannot_be_made_fails_on_the_loop(merging: Merging) -> None:
    merging.repo.references.create_branch("unrelated", None)
    merging.repo.commit("unrelated", [put("other")], "other")
    request = merging.repo.merge_request("unrelated", "main", MergeOptions())
    failures: list[BaseException | None] = []
    merging.repo.start(request, merging._spawner.spawn, lambda t: failures.append(t.failure))
    assert merging.run_all() == ["loop"]
    assert isinstance(failures[0], ReferenceNotFound)


@pytest.mark.parametrize(
    ("commits", "puts", "options"),
    [
        (40, 1, {}),  # The merge base is far,
        (1, 400, {}),  # there are many changes,
        (1, 1, {"squash": False}),  # merged commits have to be found,
        (1, 1, {"default": MergeBehavior.DROP}),  # all keys are compared,
        (1, 1, {"default": MergeBehavior.FORCE}),
        (1, 1, {"keys": (MergeKey(key("one-0-0"), MergeBehavior.NORMAL),)}),  # rules may be many.
    ],
)
def test_a_merge_that_may_take_long_gets_a_thread(
    merging: Merging, commits: int, puts: int, options: dict[str, Any]
) -> None:
    merging.branch("one", commits, puts)
    # Otherwise the target is the merge base, which is found at once.
    merging.repo.commit("main", [put("main")], "main")
    merging.merge("one", **options)
    assert merging.run_all() == ["loop", "thread"]
    assert merging.outcomes["one"] == merging.head()


@pytest.mark.parametrize(
    ("commits", "puts", "options"),
    [
        (5, 1, {}),
        (1, 400, {}),
        (1, 1, {"squash": True}),
        (1, 1, {"default": MergeBehavior.FORCE}),
    ],
)
def test_a_transplant_that_may_take_long_gets_a_thread(
    merging: Merging, commits: int, puts: int, options: dict[str, Any]
) -> None:
    hashes = merging.branch("one", commits, puts)
    merging.transplant("one", *hashes, **options)
    assert merging.run_all() == ["loop", "thread"]
    assert merging.outcomes["one"] == merging.head()


def test_a_merge_is_made_on_the_head_that_it_finds() -> None:
    """Its base was searched on another head before, when it had to wait."""
    store = Store(FaultyBackend, False, QUICK, World())
    server = Merging(store.backend)
    server.repo.commit("main", [put("first")], "first")
    (source,) = server.branch("one")
    store.backend.plan = Upcoming({"try_apply": [Fault.WOULD_WAIT]})
    request = server.repo.merge_request("one", "main", MergeOptions())
    results: list[Any] = []
    server.repo.start(request, server._spawner.spawn, lambda t: results.append(t.result()))
    server.run("loop")
    merged = store.other().merge("one", "main").resultant_target_hash
    assert server.run_all() == ["thread"]
    (result,) = results
    assert result.common_ancestor == source, "the other server merged it already"
    assert (result.was_applied, result.resultant_target_hash) == (False, merged)


@pytest.mark.parametrize("change", ["commit", "merge", "transplant"])
@pytest.mark.parametrize(("puts", "places"), [(900, ["loop"]), (1200, ["loop", "thread"])])
def test_a_change_on_top_of_a_large_commit_gets_a_thread(
    merging: Merging, change: str, puts: int, places: list[str]
) -> None:
    """It moves all entries of that commit to stripes."""
    hashes = merging.branch("one")
    merging.repo.commit("main", [put(f"many-{n:04}") for n in range(puts)], "many")
    match change:
        case "commit":
            merging.start("one")
        case "merge":
            merging.merge("one")
        case _:
            merging.transplant("one", *hashes)
    assert merging.run_all() == places
    assert merging.outcomes["one"] == merging.head()


@pytest.mark.parametrize(("puts", "places"), [(100, ["loop"]), (300, ["loop", "thread"])])
def test_a_merge_of_many_keys_that_are_in_no_stripe_gets_a_thread(
    puts: int, places: list[str]
) -> None:
    server = Merging(MemoryBackend(), settings=Settings(max_incremental_index_bytes=60_000))
    server.repo.commit("main", [put("first")], "first")
    server.branch("one", 1, puts)
    server.repo.commit("main", [put("main")], "main")
    server.merge("one")
    assert server.run_all() == places


def test_a_merge_with_several_bases_gets_a_thread(merging: Merging) -> None:
    repo = merging.repo
    merging.branch("one")
    repo.commit("main", [put("main")], "main")
    heads = {name: repo.references.get(name).hash for name in ("main", "one")}
    repo.merge(f"one@{heads['one']}", "main")
    repo.merge(f"main@{heads['main']}", "one")
    repo.commit("one", [put("more")], "more")
    repo.commit("main", [put("else")], "else")
    merging.merge("one")
    assert merging.run_all() == ["loop", "thread"]
    assert merging.outcomes["one"] == merging.head()


# Failures of the store


def test_a_busy_store_is_retried_by_a_thread() -> None:
    store = Store(BusyBackend, False, QUICK, World())
    server = Server(store.backend)
    store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE] * 3})
    server.start("a")
    assert server.run_all() == ["loop", "thread"]
    assert server.outcomes == {"a": server.head()}


def test_a_write_whose_reply_is_lost_succeeds() -> None:
    for faulty in (FaultyBackend, BusyBackend):
        store = Store(faulty, False, QUICK, World())
        server = Server(store.backend)
        plan = store.backend.plan = Upcoming({"try_apply": [Fault.AFTER]})
        server.start("a")
        assert server.run_all() == ["loop"]
        assert plan.is_over
        assert server.outcomes == {"a": server.head()}
        assert messages(store.other(), "main") == ["a"]


def test_a_write_that_may_have_succeeded_is_not_repeated() -> None:
    store = Store(BusyBackend, False, QUICK, World())
    server = Server(store.backend)
    store.backend.plan = Upcoming({"try_apply": [Fault.AFTER], "read_refs": [None, Fault.BEFORE]})
    server.start("a")
    assert server.run_all() == ["loop"]
    assert server.outcomes == {"a": StoreBusy.__name__}
    assert messages(store.other(), "main") == ["a"]


def test_a_content_id_that_is_taken_is_generated_again() -> None:
    ids = iter([bytes(16), bytes(16), bytes([1]) * 16])
    server = Server(MemoryBackend(), World(new_uuid=lambda: next(ids)))
    server.start("a")
    server.run_all()
    server.start("b")
    assert server.run_all() == ["loop", "thread"]
    listed = {entry.key: entry.content_id for entry in server.repo.contents.entries("main")}
    assert listed[key("b")] == "01010101-0101-0101-0101-010101010101"


# Drivers that fail


class Request:
    shares_batch = True
    operations = 1


class Writer:
    """Writes a batch, and then fails as planned."""

    def __init__(self, *failures: BaseException | None) -> None:
        self._failures = list(failures)
        self.syncs = Syncs(lambda: None)

    def write(self, branch: str, batch: Sequence[Ticket], *, may_wait: bool) -> bool:
        for ticket in batch:
            ticket.succeed("done")
        failure = self._failures.pop(0) if self._failures else None
        if failure is not None:
            raise failure
        return True


def start(lane: Lane, spawn: Spawn) -> list[Ticket]:
    """Start a request; the list has its ticket when it is finished."""
    finished: list[Ticket] = []
    request: Any = Request()
    lane.start(request, spawn, finished.append)
    return finished


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupted_batch_is_not_acknowledged(interrupt: BaseException) -> None:
    spawner, writer = spawners.ManualSpawner(), Writer(interrupt)
    lane = Lane(writer, "main", 1)
    one, other = start(lane, spawner.spawn), start(lane, spawner.spawn)
    with pytest.raises(type(interrupt)):
        spawner.run_one()
    assert isinstance(one[0].failure, ServiceUnavailable)
    spawner.run_all()
    assert other[0].result() == "done"


def test_a_batch_whose_sync_cannot_be_started_is_not_acknowledged() -> None:
    spawner = spawners.ManualSpawner()
    lane = Lane(Writer(), "main", 10)

    def spawn(work: Any, *, brief: bool = False, near: bool = False) -> None:
        if not brief:
            raise RuntimeError("can't start new thread")
        spawner.spawn(work, brief=brief)

    finished = start(lane, spawn)
    with pytest.raises(RuntimeError):
        spawner.run_one()
    assert isinstance(finished[0].failure, ServiceUnavailable)


def test_a_request_that_cannot_be_answered_does_not_stop_the_others(
    rocksdb: RocksDBBackend,
) -> None:
    server = Server(rocksdb)
    request = server.repo.commit_request("main", [put("bad")], "bad")
    lane = server.repo._writers().lanes.lane("main")

    def finished(ticket: Ticket) -> None:
        raise RuntimeError("the connection is broken")

    caller = Caller(request, lane, server._spawner.spawn, finished)
    assert lane.join([caller])
    server.start("good")
    caller.wake()
    server.run_all()
    server.start("better")
    server.run_all()
    assert server.outcomes["better"] == server.head()
    assert messages(server.repo, "main") == ["bad", "good", "better"]


# All at once


@pytest.mark.parametrize("sync", [True, False])
def test_loop_and_threads_share_lanes(sync: bool, tmp_path: Path) -> None:
    """Some threads commit through the loop, some themselves, and some move the branches away."""
    repo = Repository(RocksDBBackend(tmp_path, sync=sync), Settings(lane_batch=4), World())
    loop = spawners.LoopSpawner()
    branches = ["main", "side"]
    repo.references.create_branch("side", "main")
    acknowledged: Counter[str] = Counter()

    def commit(me: int) -> None:
        for n in range(12):
            message, branch = f"{me}-{n}", branches[n % 2]
            request = repo.commit_request(branch, [put(message)], message)
            if (me + n) % 3:
                spawners.result(repo, request, loop.spawn)
            else:
                repo.commit(branch, [put(message)], message)
            acknowledged[message] += 1

    def change_references() -> None:
        for n in range(12):
            repo.references.create_branch(f"x{n}", "main")
            repo.references.assign(f"x{n}", "side")
            gone = repo.commit_request(f"x{n}", [Delete(key("nothing"))], "gone")
            with pytest.raises(ReferenceConflict):
                spawners.result(repo, gone, loop.spawn)
            repo.references.delete(f"x{n}")

    work: list[Callable[[], None]] = [partial(commit, me) for me in range(6)]
    in_threads([*work, change_references])
    found = Counter(message for branch in branches for message in messages(repo, branch))
    assert found == acknowledged
    for branch in branches:
        check_sound(repo, branch)
    loop.close()
    repo.close()


def test_commits_to_a_branch_that_is_moved_and_dropped_are_all_answered(tmp_path: Path) -> None:
    repo = Repository(RocksDBBackend(tmp_path), QUICK, World())
    loop = spawners.LoopSpawner()
    repo.references.create_branch("b", "main")
    repo.commit("main", [put("first")], "first")

    def commit(me: int) -> None:
        for n in range(15):
            request = repo.commit_request("b", [put(f"{me}-{n}")], f"{me}-{n}")
            try:
                hash = spawners.result(repo, request, loop.spawn).hash
            except ReferenceNotFound:
                continue
            assert repo.resolve(f"@{hash}").hash == hash

    def move() -> None:
        for n in range(10):
            try:
                if n % 2:
                    repo.references.assign("b", "main")
                else:
                    repo.references.delete("b")
                    repo.references.create_branch("b", "main")
            except ReferenceConflict:
                continue  # A commit was faster.

    work: list[Callable[[], None]] = [partial(commit, me) for me in range(4)]
    in_threads([*work, move])
    check_sound(repo, "b")
    loop.close()
    repo.close()


def test_a_commit_of_large_contents_is_not_brief() -> None:
    """A commit of megabytes would hold the event loop for tens of milliseconds."""
    repo = Repository(MemoryBackend(), Settings(), World())
    spawner = spawners.ManualSpawner()
    for size_bytes in (100_000, 1_000_000):
        request = repo.commit_request(f"size-{size_bytes}", [put("a")], "a")
        request.weigh(size_bytes)
        repo.start(request, spawner.spawn, lambda ticket: None)
    assert spawner.were_brief == [True, False]


def test_a_commit_that_may_rewrite_many_stripes_is_left_to_a_thread() -> None:
    settings = Settings(max_incremental_index_bytes=1000, min_index_segment_bytes=200)
    repo = Repository(MemoryBackend(), settings, World())
    repo.commit("main", [put(f"t{number:03}") for number in range(300)], "many")
    repo.commit("main", [put("another")], "spills")
    cases = ((5, 1, [True]), (5, 20, [True, False]), (10_000, 20, [True]))
    for number, (most_stripes, puts, was_brief) in enumerate(cases):
        spawner = spawners.ManualSpawner()
        changes = [put(f"x{number}-{n}") for n in range(puts)]
        request = repo.commit_request("main", changes, "x")
        with patch("morag.index.spill._MANY_STRIPES", most_stripes):
            repo.start(request, spawner.spawn, lambda ticket: None)
            spawner.run_all()
        assert spawner.were_brief == was_brief
