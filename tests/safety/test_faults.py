"""A store that fails in every way it can: what was acknowledged is there, once and whole."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING, TypeVar

import pytest
from msgspec import Struct, field

from morag.backend.memory import MemoryBackend
from morag.backend.sqlite import SQLiteBackend
from morag.config import Settings
from morag.errors import (
    BadRequest,
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
    RetriesExhausted,
    ServiceUnavailable,
    StoreBusy,
    StoreThrottled,
)
from morag.logic.retry import Retries
from morag.model.meta import CommitMeta
from morag.testing.faults import Dice, Fault, FaultyBackend, InjectedFault, Script
from morag.versions.repository import Repository
from morag.versions.tickets import Waiter
from morag.versions.world import World
from tests.safety.sound import (
    check_once,
    check_sound,
    found_names,
    in_threads,
    key,
    log_of,
    messages,
    put,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from morag.backend.base import Backend
    from morag.logic.retry import Attempt
    from morag.model.listed import LogEntry
    from morag.model.operations import Put

T = TypeVar("T")

QUICK = Settings(
    retry_sleep_lower_ms=0,
    retry_sleep_upper_ms=1,
    retry_sleep_max_ms=2,
    max_incremental_index_bytes=400,  # Small, so that indexes spill and commits need many rows.
    min_index_segment_bytes=200,
    max_inlined_stripes=2,
)
THREADS, STEPS = 4, 12
NO_FAULTS = Script({})
CURRENT = [fault for fault in Fault if fault is not Fault.STALE]
SEEDS = range(4)
MANY_SEEDS = range(100, 200)


class BusyBackend(FaultyBackend):
    """Fails with the error that asks to be tried again; the outcome is as unknown as ever."""

    error: type[ServiceUnavailable] = StoreBusy

    def _do(self, fault: Fault | None, work: Callable[[], T]) -> T:
        try:
            return super()._do(fault, work)
        except InjectedFault as failure:
            raise self.error(str(failure)) from failure


# Anything may fail at any time


class Tried(Struct):
    """What one thread did to one branch, and what it was told."""

    keys: dict[str, set[str]] = field(default_factory=dict)
    """By message, what the commit changes."""
    acknowledged: dict[str, str] = field(default_factory=dict)
    merges: set[str] = field(default_factory=set)
    newest: dict[str, int | None] = field(default_factory=dict)
    """By key, the number that its content must have; None if only the store knows."""


class Worker:
    """Commits, merges, creates, assigns and drops references. Its keys and names are its own.

    So it knows what must become of each, but for those where an error left it in the dark. While
    refs can be stale, it may also be told that something is there, or not, when it is not, or is.
    """

    def __init__(self, repo: Repository, seed: int, number: int, stale: bool) -> None:
        self._repo = repo
        self._random = Random(f"{seed} {number}")
        self._me = f"t{number}"
        self._stale = stale
        self._ids: dict[str, str] = {}
        self.tried = {"main": Tried(), "side": Tried()}
        self.names: dict[str, bool | None] = {f"{self._me}-{n}": False for n in range(3)}
        self.at: dict[str, str] = {}
        """By name, the hash it was last known to be assigned to."""

    def run(self) -> None:
        often = [self._create, self._name]
        doing = [*often, *often, self._assign, self._update, self._merge, self._list]
        for step in range(STEPS):
            self._random.choice(doing)(step)

    def _create(self, step: int) -> None:
        branch = self._random.choice(["main", "side"])
        names = [f"{branch}-{self._me}-{step}-{part}" for part in "abc"]
        self._commit(branch, step, [put(name, step) for name in names])

    def _update(self, step: int) -> None:
        if not self._ids:
            return
        name = self._random.choice(sorted(self._ids))
        self._commit(name.partition("-")[0], step, [put(name, step, self._ids[name])])

    def _commit(self, branch: str, step: int, puts: Sequence[Put]) -> None:
        tried, message = self.tried[branch], f"{self._me}-{step}"
        names = {str(each.key) for each in puts}
        tried.keys[message] = names
        tried.newest.update(dict.fromkeys(names))
        try:
            result = self._repo.commit(branch, puts, message)
        except (InjectedFault, ServiceUnavailable):
            return
        except (ReferenceConflict, ReferenceNotFound, BadRequest):
            assert self._stale
            return
        tried.acknowledged[message] = result.hash
        tried.newest.update(dict.fromkeys(names, step))
        self._ids.update((str(key), id) for key, id in result.added.items())

    def _merge(self, step: int) -> None:
        tried, message = self.tried["main"], f"{self._me}-{step}"
        tried.merges.add(message)
        try:
            result = self._repo.merge("side", "main", meta=CommitMeta(message=message))
        except (InjectedFault, ServiceUnavailable):
            return
        except (ReferenceConflict, ReferenceNotFound):
            assert self._stale
            return
        if result.was_applied:
            assert result.resultant_target_hash is not None
            tried.acknowledged[message] = result.resultant_target_hash

    def _name(self, step: int) -> None:
        name = self._random.choice(sorted(self.names))
        known = self.names[name]
        self.names[name] = None
        self.at.pop(name, None)
        try:
            if known or (known is None and self._random.random() < 0.5):
                self._repo.references.delete(name)
                self.names[name] = False
            else:
                self._repo.references.create_branch(name, "main")
                self.names[name] = True
        except (InjectedFault, ServiceUnavailable):
            return
        except ReferenceConflict:
            assert self._stale
        except ReferenceAlreadyExists:
            assert self._stale or known is not False
            self.names[name] = None if self._stale else True
        except ReferenceNotFound:
            assert self._stale or known is not True
            self.names[name] = None if self._stale else False

    def _assign(self, step: int) -> None:
        name = self._random.choice(sorted(self.names))
        self.at.pop(name, None)
        try:
            to = self._random.choice(["main", "side"])
            self.at[name] = self._repo.references.assign(name, to).hash or ""
        except (InjectedFault, ServiceUnavailable):
            return
        except ReferenceConflict:
            assert self._stale
        except ReferenceNotFound:
            assert self._stale or self.names[name] is not True
        else:
            assert self._stale or self.names[name] is not False

    def _list(self, step: int) -> None:
        """Meets the half done work of others, and mends it."""
        with suppress(InjectedFault, ServiceUnavailable):
            there = {reference.name for reference in self._repo.references.list()}
            for name, known in self.names.items():
                assert self._stale or known is None or known == (name in there)


def work_and_check(
    backend: FaultyBackend, under: Backend, seed: int, plan: Dice, stale: bool
) -> None:
    repo = Repository(backend, QUICK, World())
    repo.commit("main", [put("first")], "first")
    repo.references.create_branch("side", "main")
    servers = repo, Repository(backend, QUICK, World())
    workers = [Worker(servers[n % 2], seed, n, stale) for n in range(THREADS)]
    backend.plan = plan
    in_threads(worker.run for worker in workers)
    backend.plan = NO_FAULTS
    assert backend.injected

    for worker in workers:
        assert {name: repo.references.get(name).hash for name in worker.at} == worker.at
    for each in (repo, Repository(under, QUICK, World())):  # With a warm cache, and a cold one.
        for branch in ("main", "side"):
            check_branch(each, branch, [worker.tried[branch] for worker in workers])
        check_names(each, {name: known for w in workers for name, known in w.names.items()})


def check_branch(repo: Repository, branch: str, tried: Sequence[Tried]) -> None:
    log = check_sound(repo, branch)
    keys = {message: keys for each in tried for message, keys in each.keys.items()}
    merges = {message for each in tried for message in each.merges}
    acknowledged = {m: hash for each in tried for m, hash in each.acknowledged.items()}
    check_once(log, acknowledged, ["first", *keys, *merges])
    for entry in log:
        if entry.meta.message in keys:
            assert changed(entry) == keys[entry.meta.message]
    newest = {key(name): n for each in tried for name, n in each.newest.items() if n is not None}
    contents = repo.contents.get_all(branch, list(newest))
    assert {key: table(n, contents[key].id) for key, n in newest.items()} == contents


def changed(entry: LogEntry) -> set[str]:
    return {str(operation.key) for operation in entry.operations or ()}


def check_names(repo: Repository, names: dict[str, bool | None]) -> None:
    there = found_names(repo, names)
    assert {n for n, known in names.items() if known} <= there
    assert not {n for n, known in names.items() if known is False} & there
    for name in names:
        if name in there:
            repo.references.delete(name)
        repo.references.create_branch(name, "main")
        repo.references.delete(name)
        if name in there:
            repo.references.create_branch(name, "main")
    assert found_names(repo, names) == there


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faults", [CURRENT, list(Fault)], ids=["current", "stale"])
@pytest.mark.parametrize("weak", [False, True], ids=["apply", "weak"])
@pytest.mark.parametrize("faulty", [FaultyBackend, BusyBackend])
def test_what_was_acknowledged_is_there_once_and_whole(
    faulty: type[FaultyBackend], weak: bool, faults: list[Fault], seed: int
) -> None:
    memory = MemoryBackend()
    plan = Dice(seed, rate=0.15, faults=faults)
    backend = faulty(memory, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    work_and_check(backend, memory, seed, plan, Fault.STALE in faults)


@pytest.mark.long
@pytest.mark.parametrize("seed", MANY_SEEDS)
@pytest.mark.parametrize("faults", [CURRENT, list(Fault)], ids=["current", "stale"])
@pytest.mark.parametrize("weak", [False, True], ids=["apply", "weak"])
@pytest.mark.parametrize("faulty", [FaultyBackend, BusyBackend])
def test_what_was_acknowledged_is_there_once_and_whole_whatever_the_seed(
    faulty: type[FaultyBackend], weak: bool, faults: list[Fault], seed: int
) -> None:
    rate = Random(seed).choice([0.05, 0.1, 0.2, 0.4])
    memory = MemoryBackend()
    backend = faulty(memory, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    plan = Dice(seed, rate, faults=faults)
    work_and_check(backend, memory, seed, plan, Fault.STALE in faults)


@pytest.mark.parametrize("weak", [False, True], ids=["apply", "weak"])
def test_the_same_over_sqlite(weak: bool, tmp_path: Path) -> None:
    sqlite = SQLiteBackend(tmp_path / "morag.db", sync=False)
    backend = BusyBackend(sqlite, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    work_and_check(backend, sqlite, 1, Dice(1, rate=0.15, faults=CURRENT), stale=False)
    sqlite.close()


# One fault at a time


class Upcoming:
    """The faults of the next calls, by method: None lets one pass."""

    def __init__(self, faults: Mapping[str, Sequence[Fault | None]]) -> None:
        self._faults = {method: list(upcoming) for method, upcoming in faults.items()}

    def fault(self, method: str, call: int) -> Fault | None:
        upcoming = self._faults.get(method)
        return upcoming.pop(0) if upcoming else None

    @property
    def is_over(self) -> bool:
        return not any(self._faults.values())


class Time:
    """Stands still but for sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps_ms: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps_ms.append(seconds * 1000)
        self.now += seconds

    def world(self) -> World:
        return World(monotonic=lambda: self.now, sleep=self.sleep, random=Random(1))


class Store:
    """A memory store, seen through faults and directly."""

    def __init__(
        self, faulty: type[FaultyBackend], weak: bool, settings: Settings, world: World
    ) -> None:
        self.memory = MemoryBackend()
        self.backend = faulty(self.memory, NO_FAULTS, weak=weak)
        self.repo = Repository(self.backend, settings, world)
        self.weak = weak
        self._before = 0

    @property
    def swap(self) -> str:
        """The method that makes a commit visible."""
        return "swap_ref" if self.weak else "apply"

    def other(self) -> Repository:
        """Another server on the same store, without faults."""
        return Repository(self.memory, QUICK, World())

    def lose_a_race(self) -> None:
        """Have the next commit start from a head that is no longer one."""
        self.repo.commit("main", [put("first")], "first")
        self.other().commit("main", [put("theirs")], "theirs")
        self.backend.plan = Upcoming({"read_refs": [Fault.STALE]})
        self._before = self.backend._calls[self.swap]

    def swaps(self) -> int:
        """How many there were since then."""
        return self.backend._calls[self.swap] - self._before

    def rows(self, kind: str) -> int:
        return sum(1 for _ in self.memory.scan_rows("", frozenset({kind})))


@pytest.fixture(params=[False, True], ids=["apply", "weak"])
def weak(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def faulty(weak: bool) -> Store:
    return Store(FaultyBackend, weak, QUICK, World())


@pytest.fixture
def busy(weak: bool) -> Store:
    return Store(BusyBackend, weak, QUICK, World())


@pytest.fixture(params=[FaultyBackend, BusyBackend])
def either(request: pytest.FixtureRequest, weak: bool) -> Store:
    return Store(request.param, weak, QUICK, World())


def test_a_lost_reply_is_no_failure(either: Store) -> None:
    plan = either.backend.plan = Upcoming({either.swap: [Fault.AFTER]})
    result = either.repo.commit("main", [put("a")], "a")
    assert plan.is_over
    (entry,) = check_sound(either.other(), "main")
    assert entry.meta.hash == result.hash


class OthersOnTop:
    """Loses the reply of a swap, and lets others commit before the caller looks again."""

    def __init__(self, swap: str, others: Callable[[], None]) -> None:
        self._swap = swap
        self._others = others
        self._lost = self._looked = False

    def fault(self, method: str, call: int) -> Fault | None:
        if method == self._swap and not self._lost:
            self._lost = True
            return Fault.AFTER
        if method == "read_refs" and self._lost and not self._looked:
            self._looked = True
            self._others()
        return None


@pytest.mark.parametrize("others", [1, 19, 20, 21, 45])
def test_a_lost_reply_is_no_failure_with_others_on_top(either: Store, others: int) -> None:
    other = either.other()

    def commit() -> None:
        for n in range(others):
            other.commit("main", [put(f"other-{n}")], f"other-{n}")

    either.backend.plan = OthersOnTop(either.swap, commit)
    result = either.repo.commit("main", [put("a")], "a")
    log = check_sound(either.other(), "main")
    assert log[0].meta.hash == result.hash
    assert [e.meta.message for e in log] == ["a", *(f"other-{n}" for n in range(others))]


def test_a_commit_that_was_never_made_is_a_failure(faulty: Store) -> None:
    plan = faulty.backend.plan = Upcoming({faulty.swap: [Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        faulty.repo.commit("main", [put("a")], "a")
    assert plan.is_over
    assert log_of(faulty.other(), "main") == []
    faulty.repo.commit("main", [put("a")], "a")
    assert messages(faulty.other(), "main") == ["a"]


def test_a_batch_whose_reply_is_lost_is_found_as_a_whole(either: Store) -> None:
    """Nobody looks for each commit; the last one stands for all of them."""
    lane = either.repo._lanes.lane("main")
    requests = [either.repo.commit_request("main", [put(f"{n}")], f"{n}") for n in range(5)]
    tickets = [Waiter(request) for request in requests]
    either.backend.plan = Upcoming({either.swap: [Fault.AFTER]})
    assert lane.join(tickets)
    lane.drive(tickets[-1])
    hashes = [ticket.result().hash for ticket in tickets]
    assert [entry.meta.hash for entry in check_sound(either.other(), "main")] == hashes


def test_a_lost_reply_and_a_lost_look_make_no_second_commit(busy: Store) -> None:
    """The retry meets its own commit on the branch, and must know it."""
    result = busy.repo.commit("main", [put("a")], "a")
    id = result.added[key("a")]
    plan = busy.backend.plan = Upcoming({busy.swap: [Fault.AFTER], "read_refs": [Fault.BEFORE]})
    created = busy.repo.commit("main", [put("b")], "b")
    assert plan.is_over
    plan = busy.backend.plan = Upcoming(
        {busy.swap: [Fault.AFTER], "read_refs": [None, Fault.BEFORE]}
    )
    updated = busy.repo.commit("main", [put("a", 7, id)], "c")
    assert plan.is_over
    log = check_sound(busy.other(), "main")
    assert [entry.meta.hash for entry in log] == [result.hash, created.hash, updated.hash]


def test_a_lost_reply_and_a_stale_look_make_no_second_commit(busy: Store) -> None:
    id = busy.repo.commit("main", [put("a")], "a").added[key("a")]
    busy.backend.plan = Upcoming({busy.swap: [Fault.AFTER], "read_refs": [None, Fault.STALE]})
    updated = busy.repo.commit("main", [put("a", 7, id)], "b")
    log = check_sound(busy.other(), "main")
    assert messages(busy.other(), "main") == ["a", "b"]
    assert log[-1].meta.hash == updated.hash


def test_a_lost_race_is_tried_again(faulty: Store) -> None:
    faulty.lose_a_race()
    faulty.repo.commit("main", [put("ours")], "ours")
    assert faulty.swaps() == 2
    check_sound(faulty.other(), "main")
    assert messages(faulty.other(), "main") == ["first", "theirs", "ours"]


@pytest.mark.parametrize("first", range(7))
@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_stale_names_bring_no_reference_back(faulty: Store, first: int, many: int) -> None:
    """Whichever reads of a drop are stale, or of a look at the dropped name afterwards."""
    stale = Upcoming({"read_refs": [None] * first + [Fault.STALE] * many})
    told = (ReferenceNotFound, ReferenceConflict)
    faulty.repo.references.create_branch("a", None)
    faulty.backend.plan = stale
    with suppress(*told):
        faulty.repo.references.delete("a")
        faulty.backend.plan = NO_FAULTS
        assert found_names(faulty.other(), ["a"]) == set()
    faulty.backend.plan = NO_FAULTS
    with suppress(*told):
        faulty.repo.references.delete("a")

    faulty.backend.plan = Upcoming({"read_refs": [None] * first + [Fault.STALE] * many})
    with suppress(*told):
        faulty.repo.references.get("a")
    faulty.backend.plan = NO_FAULTS
    assert found_names(faulty.other(), ["a"]) == set()
    faulty.repo.references.create_branch("a", None)
    assert found_names(faulty.other(), ["a"]) == {"a"}


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_start_that_was_cut_short_anywhere_is_finished_by_the_next(
    weak: bool, fault: Fault
) -> None:
    for step in count(1):
        memory = MemoryBackend()
        backend = FaultyBackend(memory, NthWrite(step, fault), weak=weak)
        with suppress(InjectedFault):
            Repository(backend, QUICK, World())
        repo = Repository(memory, QUICK, World())
        repo.commit("main", [put("a")], "a")
        assert found_names(repo, ["main"]) == {"main"}
        assert repo.describe().default_branch_name == "main"
        if not backend.injected:
            assert step > 4, "there are more steps than that"
            break


class NthWrite:
    """Lets the n-th of all writes fail."""

    def __init__(self, number: int, fault: Fault) -> None:
        self._left, self._fault = number, fault

    def fault(self, method: str, call: int) -> Fault | None:
        if method.startswith("read"):
            return None
        self._left -= 1
        return self._fault if self._left == 0 else None


# Trying again, within bounds


def test_a_busy_store_is_tried_again_until_the_retries_are_used_up(weak: bool) -> None:
    time = Time()
    settings = Settings(commit_retries=6, commit_timeout_ms=86_400_000)
    store = Store(BusyBackend, weak, settings, time.world())
    plan = store.backend.plan = Upcoming({store.swap: [Fault.BEFORE] * 7})
    with pytest.raises(StoreBusy):
        store.repo.commit("main", [put("a")], "a")
    assert plan.is_over
    bounds = [(5, 25), (10, 50), (20, 100), (40, 200), (80, 250), (160, 250)]
    assert len(time.sleeps_ms) == len(bounds)
    for slept, (lower, upper) in zip(time.sleeps_ms, bounds, strict=True):
        assert lower <= slept <= upper
    assert log_of(store.other(), "main") == []
    assert store.repo.commit("main", [put("a")], "a").hash  # And the lane is free again.


def test_a_busy_store_is_tried_again_until_the_time_is_up(weak: bool) -> None:
    time = Time()
    store = Store(BusyBackend, weak, Settings(commit_timeout_ms=700), time.world())
    store.backend.plan = Dice(1, rate=1.0, methods=[store.swap], faults=[Fault.BEFORE])
    with pytest.raises(StoreBusy):
        store.repo.commit("main", [put("a")], "a")
    assert sum(time.sleeps_ms) == pytest.approx(700)
    assert len(time.sleeps_ms) >= 5


def test_pauses_differ_by_chance_and_grow_to_the_limit(weak: bool) -> None:
    time = Time()
    settings = Settings(
        commit_retries=40,
        commit_timeout_ms=86_400_000,
        retry_sleep_lower_ms=3,
        retry_sleep_upper_ms=4,
        retry_sleep_max_ms=100,
    )
    store = Store(BusyBackend, weak, settings, time.world())
    store.backend.plan = Dice(1, rate=1.0, methods=[store.swap], faults=[Fault.BEFORE])
    with pytest.raises(StoreBusy):
        store.repo.commit("main", [put("a")], "a")
    lower, upper = 3.0, 4.0
    for slept in time.sleeps_ms:
        assert lower <= slept <= upper + 1e-6
        lower, upper = min(2 * lower, 100), min(2 * upper, 100)
    assert len(set(time.sleeps_ms[:5])) == 5
    assert time.sleeps_ms[-1] == pytest.approx(100)


def test_who_may_have_been_heard_is_told_that_nobody_knows(weak: bool) -> None:
    store = Store(BusyBackend, weak, Settings(commit_retries=0), Time().world())
    store.backend.plan = Upcoming({store.swap: [Fault.AFTER], "read_refs": [None, Fault.BEFORE]})
    with pytest.raises(StoreBusy, match="Nobody knows whether the change was made"):
        store.repo.commit("main", [put("a")], "a")
    assert messages(store.other(), "main") == ["a"]
    store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE]})
    with pytest.raises(StoreBusy) as refusal:
        store.repo.commit("main", [put("b")], "b")
    assert "knows" not in str(refusal.value)
    assert messages(store.other(), "main") == ["a"]


def test_who_waits_behind_a_busy_store_need_not_find_out_alone(weak: bool) -> None:
    settings = Settings(commit_retries=0, lane_batch=1)
    store = Store(BusyBackend, weak, settings, Time().world())
    requests = [store.repo.commit_request("main", [put(f"{n}")], f"{n}") for n in range(3)]
    tickets = [Waiter(request) for request in requests]
    plan = store.backend.plan = Upcoming(
        {store.swap: [Fault.AFTER], "read_refs": [None, Fault.BEFORE]}
    )
    lane = store.repo._lanes.lane("main")
    assert lane.join(tickets)
    lane.drive(tickets[0])
    assert plan.is_over
    told = [str(ticket.failure) for ticket in tickets]
    assert ["Nothing was changed" in text for text in told] == [False, True, True]
    assert ["Nobody knows" in text for text in told] == [True, False, False]
    assert messages(store.other(), "main") == ["0"]
    assert store.repo.commit("main", [put("a")], "a").hash  # And the lane is free again.


def attempts(time: Time, retries: int) -> Iterator[Attempt]:
    world, settings = time.world(), Settings(commit_retries=retries)
    return Retries(settings, world.monotonic, world.sleep, world.random).attempts("commit")


def test_who_lost_a_race_tries_again_at_once_and_then_with_pauses() -> None:
    time = Time()
    with pytest.raises(RetriesExhausted, match="after 3 retries"):
        for _ in attempts(time, 3):
            pass
    assert len(time.sleeps_ms) == 2


@pytest.mark.parametrize("busy", [StoreBusy("busy"), StoreThrottled("throttled")])
def test_the_last_attempt_tells_why_it_failed(busy: StoreBusy) -> None:
    for number, told in ((0, RetriesExhausted), (3, type(busy))):
        with pytest.raises(told) as failure:
            for at, attempt in enumerate(attempts(Time(), 3)):
                if at == number:
                    attempt.failure = busy
        assert (failure.value is busy) is (number == 3)


def test_a_busy_store_that_recovers_is_no_failure(busy: Store) -> None:
    busy.backend.plan = Upcoming({busy.swap: [Fault.BEFORE] * 5})
    busy.repo.commit("main", [put("a")], "a")
    assert len(check_sound(busy.other(), "main")) == 1


def test_a_name_is_committed_again_when_the_store_was_busy(busy: Store) -> None:
    busy.backend.plan = Upcoming({busy.swap: [Fault.BEFORE] * 3})
    busy.repo.references.create_branch("b", "main")
    assert found_names(busy.other(), ["b"]) == {"b"}


# Made-up content ids


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.BETWEEN, Fault.AFTER])
def test_a_retried_commit_keeps_its_content_ids(busy: Store, fault: Fault) -> None:
    """Otherwise each try would leave another value behind, and claim another id."""
    method = "insert_rows" if busy.weak else "apply"
    plan = busy.backend.plan = Upcoming({method: [fault] * 3})
    result = busy.repo.commit("main", [put("a"), put("b")], "a")
    assert plan.is_over or fault is Fault.AFTER
    assert (busy.rows("v"), busy.rows("u")) == (2, 2)
    contents = busy.other().contents.get_all("main", [key("a"), key("b")])
    assert {key: content.id for key, content in contents.items()} == result.added


def test_a_commit_that_lost_its_race_keeps_its_content_ids(faulty: Store) -> None:
    faulty.lose_a_race()
    values, claims = faulty.rows("v"), faulty.rows("u")
    result = faulty.repo.commit("main", [put("ours")], "ours")
    assert faulty.swaps() == 2
    assert (faulty.rows("v"), faulty.rows("u")) == (values + 1, claims + 1)
    assert faulty.other().contents.get("main", key("ours")).id == result.added[key("ours")]


@pytest.mark.parametrize("collisions", [1, 2, 3])
def test_a_content_id_that_is_taken_is_made_up_anew(weak: bool, collisions: int) -> None:
    ids = iter([bytes(16), *[bytes(16)] * collisions, bytes([1]) * 16])
    store = Store(FaultyBackend, weak, QUICK, World(new_uuid=lambda: next(ids)))
    first = store.repo.commit("main", [put("a")], "a")
    second = store.repo.commit("main", [put("b")], "b")
    assert first.added[key("a")] == "00000000-0000-0000-0000-000000000000"
    assert second.added[key("b")] == "01010101-0101-0101-0101-010101010101"
    listed = store.other().contents.entries("main")
    assert {e.key: e.content_id for e in listed} == {**first.added, **second.added}
