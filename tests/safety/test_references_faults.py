"""Creates, assigns and drops of references with lost replies: each is done once."""

from __future__ import annotations

import time
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING

import pytest

from morag.backend.base import Ref, RefSwap
from morag.errors import ReferenceConflict, ReferenceNotFound, StoreBusy, StoreCannotWrite
from morag.format.ids import NO_ANCESTOR
from morag.versions.world import World
from tests.backend.faulty import Fault, FaultyBackend, InjectedFault
from tests.safety.faulty_stores import (
    NO_FAULTS,
    QUICK,
    BeforeSwap,
    BusyBackend,
    OthersOnTop,
    Store,
    Time,
    Upcoming,
)
from tests.safety.history_checks import found_names, in_thread, put

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.repository import Repository
    from tests.backend.faulty import Plan

LOST = [Fault.AFTER, Fault.FALSE_AFTER]


@pytest.fixture(params=[FaultyBackend, BusyBackend])
def store(request: pytest.FixtureRequest, weak: bool) -> Store:
    """A store with a branch `dev` that is one commit behind `main`."""
    store = Store(request.param, weak, QUICK, World())
    store.repo.commit("main", [put("a")], "a")
    store.repo.references.create_branch("dev", "main")
    store.repo.commit("main", [put("b")], "b")
    return store


def authors(repo: Repository, name: str, operation: str) -> list[str]:
    """The authors of an operation on a reference, one for each line of the ref-log."""
    return [
        move.who
        for move in repo.references.moves().items
        if (move.reference.name, move.operation) == (name, f"{operation}_REFERENCE")
    ]


@pytest.mark.parametrize("fault", LOST)
def test_an_assign_whose_reply_is_lost_succeeds(store: Store, fault: Fault) -> None:
    plan = store.backend.plan = Upcoming({store.swap: [fault]})
    hash = store.repo.references.assign("dev", "main", who="ann").hash
    assert plan.is_over
    assert store.other().references.get("dev").hash == hash
    if fault is Fault.AFTER or not store.weak:
        assert authors(store.other(), "dev", "ASSIGN") == ["ann"]


def test_an_assign_whose_reply_is_lost_succeeds_with_other_commits_on_top(store: Store) -> None:
    other = store.other()
    main = store.repo.references.get("main").hash

    def commit() -> None:
        other.commit("dev", [put("c")], "c")

    store.backend.plan = OthersOnTop(store.swap, commit)
    assert store.repo.references.assign("dev", "main").hash == main
    assert [entry.meta.message for entry in other.history.log("dev")] == ["c", "b", "a"]


def test_an_assign_whose_reply_is_lost_is_not_repeated_after_a_reset(store: Store) -> None:
    other = store.other()
    before, after = other.references.get("dev").hash, other.references.get("main").hash

    def reset() -> None:
        other.references.assign("dev", f"@{before}", after)

    store.backend.plan = OthersOnTop(store.swap, reset)
    store.repo.references.assign("dev", "main", before)
    assert other.references.get("dev").hash == before


def test_an_assign_that_lost_a_race_fails(store: Store) -> None:
    other = store.other()
    store.backend.plan = BeforeSwap(store, lambda: other.commit("dev", [put("c")], "c"))
    with pytest.raises(ReferenceConflict):
        store.repo.references.assign("dev", "main")
    assert authors(other, "dev", "ASSIGN") == []


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("passed", range(3))
def test_a_drop_whose_reply_is_lost_succeeds(store: Store, fault: Fault, passed: int) -> None:
    """The lost reply is that of marking the ref, of the commit, or of removing the ref."""
    swaps = [*[None] * passed, fault]
    if store.weak:
        plan = Upcoming({"swap_ref": swaps})
    else:  # A plain swap removes the ref.
        plan = Upcoming({"swap_ref": [fault]} if passed == 2 else {"apply": swaps})
    store.backend.plan = plan
    store.repo.references.delete("dev", who="ann")
    assert plan.is_over
    assert found_names(store.other(), ["dev"]) == set()
    if fault is Fault.AFTER or not store.weak:
        assert authors(store.other(), "dev", "DELETE") == ["ann"]


def test_a_drop_that_another_server_finished_succeeds(store: Store) -> None:
    other = store.other()

    def finish_and_create() -> None:
        other.references.create_branch("dev", "main")

    store.backend.plan = OthersOnTop(store.swap, finish_and_create)
    store.repo.references.delete("dev")
    assert found_names(other, ["dev"]) == {"dev"}  # The one created after the drop.


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("passed", range(2))
def test_a_create_whose_reply_is_lost_succeeds(store: Store, fault: Fault, passed: int) -> None:
    """The lost reply is that of the commit, or of inserting the ref."""
    plan = store.backend.plan = Upcoming({store.swap: [*[None] * passed, fault]})
    store.repo.references.create_branch("new", "main", who="ann")
    assert plan.is_over
    assert found_names(store.other(), ["new"]) == {"new"}
    assert authors(store.other(), "new", "CREATE") == ["ann"]


def check_recognised(store: Store, read: Fault) -> None:
    """Create a branch; lose the reply of its commit, then fail the read that looks for it."""
    store.backend.plan = NO_FAULTS
    reads = store.backend._calls["read_refs"]
    store.repo.references.create_branch("counted", "main")
    before = store.backend._calls["read_refs"] - reads
    lost = Fault.AFTER if type(store.backend) is BusyBackend else Fault.FALSE_AFTER
    # Without faults, the last read is that of the names after the ref was inserted. If the reply
    # is lost, the read that looks for the commit comes before it.
    plan = Upcoming({store.swap: [lost], "read_refs": [*[None] * (before - 1), read]})
    store.backend.plan = plan
    store.repo.references.create_branch("new", "main")
    assert plan.is_over
    assert found_names(store.other(), ["new"]) == {"new"}


def test_a_create_recognises_its_own_commit_after_a_stale_read(store: Store) -> None:
    check_recognised(store, Fault.STALE)


def test_a_create_recognises_its_own_commit_after_a_failed_read(weak: bool) -> None:
    check_recognised(Store(BusyBackend, weak, QUICK, World()), Fault.BEFORE)


def test_an_interrupted_create_is_in_the_ref_log_once(weak: bool) -> None:
    store = Store(FaultyBackend, weak, QUICK, World())
    store.backend.plan = Upcoming({store.swap: [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        store.repo.references.create_branch("new", "main", who="ann")
    assert authors(store.other(), "new", "CREATE") == []
    store.other().commit("new", [put("a")], "a")
    assert authors(store.other(), "new", "CREATE") == [""]


def test_a_create_that_another_server_completed_is_in_the_ref_log_once(store: Store) -> None:
    other = store.other()
    store.backend.plan = BeforeSwap(store, lambda: other.commit("new", [put("c")], "c"), swap=2)
    store.repo.references.create_branch("new", "main", who="ann")
    assert authors(other, "new", "CREATE") == ["ann"]


def swap_of_insert(store: Store) -> int:
    """The number of the swap by which a server completes a creation.

    Without `apply`, the first swap only verifies that the names are current.
    """
    return 2 if store.weak else 1


def test_completing_a_creation_too_late_keeps_its_author_in_the_ref_log(store: Store) -> None:
    reached, released = Event(), Event()
    completing = Store(type(store.backend), store.weak, QUICK, World(), store.memory)
    commits = []

    def hold() -> None:
        reached.set()
        assert released.wait(10)

    def start_commit() -> None:
        completing.backend.plan = BeforeSwap(completing, hold, swap_of_insert(completing))
        commits.append(in_thread(lambda: completing.repo.commit("new", [put("c")], "c")))
        assert reached.wait(10)

    store.backend.plan = BeforeSwap(store, start_commit, swap=2)
    store.repo.references.create_branch("new", "main", who="ann")
    released.set()
    commits[0].result(10)
    assert authors(store.other(), "new", "CREATE") == ["ann"]


def test_a_commit_waits_for_a_creation_in_its_own_process(store: Store) -> None:
    commits = []

    def start_commit(_: float) -> None:
        commits.append(in_thread(lambda: store.repo.commit("new", [put("c")], "c")))
        with pytest.raises(TimeoutError):
            commits[0].result(0.05)

    store.backend._sleep = start_commit
    store.backend.plan = Upcoming({store.swap: [None, Fault.DELAY]})
    store.repo.references.create_branch("new", "main", who="ann")
    commits[0].result(10)
    assert authors(store.other(), "new", "CREATE") == ["ann"]


def test_a_completed_creation_is_logged_when_its_reply_is_lost(weak: bool) -> None:
    store = half_created(weak)
    passed = [None] if weak else []
    plan = store.backend.plan = Upcoming({store.swap: [*passed, Fault.AFTER]})
    store.repo.commit("new", [put("b")], "b")
    assert plan.is_over
    assert authors(store.other(), "new", "CREATE") == [""]


def half_created(weak: bool) -> Store:
    """A store with a branch `new` whose name is stored, but whose ref is not."""
    store = Store(FaultyBackend, weak, QUICK, World())
    store.repo.commit("main", [put("a")], "a")
    store.repo.references.create_branch("dropped", "main")
    store.backend.plan = Upcoming({store.swap: [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        store.repo.references.create_branch("new", "main")
    return store


CHANGES: dict[str, Callable[[Repository], object]] = {
    "assign": lambda repo: repo.references.assign("new", "other"),
    "commit": lambda repo: repo.commit("new", [put("b")], "b"),
    "delete": lambda repo: repo.references.delete("new"),
    "merge": lambda repo: repo.merge("other", "new"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_reference_whose_creation_was_interrupted_can_be_changed(weak: bool, change: str) -> None:
    store = half_created(weak)
    other = store.other()
    other.references.create_branch("other", "main")
    other.commit("other", [put("c")], "c")
    CHANGES[change](other)
    assert found_names(other, ["new"]) == (set() if change == "delete" else {"new"})


def test_reading_completes_no_interrupted_change(weak: bool) -> None:
    """A slow reader could complete a creation after the reference was dropped."""
    store = half_created(weak)
    names = [f"refs/heads/{name}" for name in ("new", "dropped")]
    store.backend.plan = Upcoming({store.swap: [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        store.repo.references.delete("dropped")
    before = store.memory.read_refs("", names)
    assert [ref.deleted for ref in before.values()] == [True]
    assert found_names(store.other(), ["new", "dropped"]) == {"new"}
    assert store.memory.read_refs("", names) == before


def dropped_before_insert(store: Store, swap: int, insert: Fault | None, then: Plan) -> BeforeSwap:
    """Has another server drop `new` just before its ref is inserted, with the fault `insert`."""
    return BeforeSwap(store, lambda: store.other().references.delete("new"), swap, insert, then)


FAILURES: list[dict[str, list[Fault | None]]] = [
    {"read_refs": [Fault.BEFORE]},
    {"read_refs": [Fault.BEFORE] * 5},
    {"read_refs": [Fault.STALE]},
    {"swap_ref": [Fault.BEFORE]},
    {"swap_ref": [None, Fault.BEFORE]},
    {"swap_ref": [None, Fault.AFTER]},
]


@pytest.mark.parametrize("insert", [None, Fault.AFTER, Fault.FALSE_AFTER])
@pytest.mark.parametrize("failures", FAILURES, ids=str)
def test_a_dropped_reference_stays_dropped_when_its_creation_is_completed_late(
    weak: bool, failures: dict[str, list[Fault | None]], insert: Fault | None
) -> None:
    store, upcoming = half_created(weak), Upcoming(failures)
    store.backend.plan = dropped_before_insert(store, swap_of_insert(store), insert, upcoming)
    with suppress(InjectedFault, ReferenceNotFound):
        store.repo.commit("new", [put("b")], "b")
    assert upcoming.is_over
    assert found_names(store.other(), ["new"]) == set()


class MovedBeforeCheck:
    """Has another server commit to a ref before its writer reads any ref.

    `second` is the fault of the second read.
    """

    def __init__(self, store: Store, second: Fault | None = None) -> None:
        self._store, self._second = store, second
        self.reads = 0

    def fault(self, method: str, call: int) -> Fault | None:
        self.reads += method == "read_refs"
        if method == "read_refs" and self.reads == 1:
            self._store.other().commit("new", [put("c")], "c")
        return self._second if method == "read_refs" and self.reads == 2 else None


def test_a_dropped_reference_stays_dropped_when_its_late_ref_is_moved(weak: bool) -> None:
    store = half_created(weak)
    moved = MovedBeforeCheck(store)
    store.backend.plan = dropped_before_insert(store, swap_of_insert(store), None, moved)
    with pytest.raises(ReferenceNotFound):
        store.repo.commit("new", [put("b")], "b")
    assert moved.reads
    assert found_names(store.other(), ["new"]) == set()
    assert store.other().references.moves(1).items[0].operation == "DELETE_REFERENCE"


@pytest.mark.parametrize("second", [None, Fault.BEFORE])
def test_a_dropped_reference_stays_dropped_when_its_creator_is_late(
    weak: bool, second: Fault | None
) -> None:
    """Another server completes and drops it before the insert, and commits to it after that."""
    store = Store(BusyBackend, weak, QUICK, World())
    moved = MovedBeforeCheck(store, second)
    store.backend.plan = dropped_before_insert(store, 2, Fault.AFTER, moved)
    with suppress(StoreBusy):
        store.repo.references.create_branch("new", "main")
    assert moved.reads >= 2
    assert found_names(store.other(), ["new"]) == set()


def test_a_creator_returns_when_others_dropped_and_created_the_name(weak: bool) -> None:
    time = Time()
    store = Store(BusyBackend, weak, QUICK, time.world())
    other = store.other()

    def drop_and_create() -> None:
        other.references.delete("new")
        other.references.create_branch("new", "main")

    store.backend.plan = BeforeSwap(store, drop_and_create, swap=2)
    store.repo.references.create_branch("new", "main")
    assert time.sleeps_ms == []
    assert found_names(other, ["new"]) == {"new"}


def test_a_ref_without_a_name_does_not_block_its_name(store: Store) -> None:
    """A server that stops after a late insert leaves such a ref."""
    ref = Ref("refs/heads/new", NO_ANCESTOR, created_micros=1)
    assert store.memory.swap_ref("", RefSwap(ref.name, None, ref))
    created = store.repo.references.create_branch("new", "main")
    assert store.other().references.get("new") == created
    assert found_names(store.other(), ["new"]) == {"new"}


class FullBackend(BusyBackend):
    """Fails with the error of a store that wrote nothing and cannot write."""

    error = StoreCannotWrite


def test_a_full_disk_ends_a_create_at_once(weak: bool) -> None:
    time = Time()
    store = Store(FullBackend, weak, QUICK, time.world())
    store.backend.plan = Upcoming({store.swap: [None] + [Fault.BEFORE] * 100})
    with pytest.raises(StoreCannotWrite):
        store.repo.references.create_branch("new", "main")
    assert time.sleeps_ms == []


def test_a_late_ref_is_removed_when_its_line_of_the_ref_log_cannot_be_written() -> None:
    """Without `apply`, the ref is inserted before the line."""
    store = Store(FullBackend, True, QUICK, World())
    upcoming = Upcoming({"append_log": [Fault.BEFORE] * 2})
    store.backend.plan = dropped_before_insert(store, 2, None, upcoming)
    with pytest.raises(StoreCannotWrite):
        store.repo.references.create_branch("new", "main")
    assert upcoming.is_over
    assert found_names(store.other(), ["new"]) == set()


def test_a_create_that_waits_for_a_drop_takes_effect_after_it(store: Store) -> None:
    dropping, waiting = Event(), Event()

    def sleep(_: float) -> None:
        dropping.set()
        waiting.wait(10)

    store.backend._sleep = sleep
    store.backend.plan = Upcoming({store.swap: [Fault.DELAY]})
    drop = in_thread(lambda: store.repo.references.delete("dev"))
    assert dropping.wait(10)
    create = in_thread(lambda: store.repo.references.create_branch("dev", "main"))
    time.sleep(0.05)  # Let the create reach the lock.
    dropped_before = store.repo._persist.now_micros()
    waiting.set()
    drop.result(10)
    create.result(10)
    ref = store.repo._persist.ref("refs/heads/dev")
    assert ref is not None
    assert ref.created_micros > dropped_before
    newest = store.other().references.moves(1).items[0]
    assert newest.operation == "CREATE_REFERENCE"


def test_the_error_for_a_missing_reference_has_its_short_name(store: Store) -> None:
    with pytest.raises(ReferenceNotFound, match=r"^Named reference 'nope' not found$"):
        store.repo.references.note("nope")
