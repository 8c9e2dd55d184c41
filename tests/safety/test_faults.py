"""Stores that fail in every possible way: each acknowledged commit is stored once and whole."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec import Struct, field

from morag.backend.base import SyncsLater
from morag.backend.memory import MemoryBackend
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.backend.sqlite.backend import SQLiteBackend
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
from morag.model.merging import MergeOptions
from morag.model.meta import CommitMeta
from morag.versions.repository import Repository
from morag.versions.tickets import Waiter
from morag.versions.world import World
from tests import spawners
from tests.backend.faulty import (
    Dice,
    Fault,
    FaultyBackend,
    InjectedFault,
    QuickTogetherBackend,
    TogetherBackend,
)
from tests.safety.faulty_stores import (
    NO_FAULTS,
    QUICK,
    BusyBackend,
    BusyQuickTogetherBackend,
    BusyTogetherBackend,
    OthersOnTop,
    Store,
    Time,
    Upcoming,
)
from tests.safety.history_checks import (
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
from tests.sampling import seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from morag.backend.base import Backend
    from morag.logic.retry import Attempt
    from morag.model.operations import Put
    from morag.model.results import LogEntry
    from morag.versions.tickets import Spawn

THREADS, STEPS = 4, 12
CURRENT = [fault for fault in Fault if fault is not Fault.STALE]
SEEDS = range(4)
FAULTY = [
    *(FaultyBackend, TogetherBackend, QuickTogetherBackend),
    *(BusyBackend, BusyTogetherBackend, BusyQuickTogetherBackend),
]


# Random faults


class Tried(Struct):
    """The commits that one thread tried on one branch, and their outcomes."""

    keys: dict[str, set[str]] = field(default_factory=dict)
    """The keys that each commit changes, by message."""
    acknowledged: dict[str, str] = field(default_factory=dict)
    merges: set[str] = field(default_factory=set)
    newest: dict[str, int | None] = field(default_factory=dict)
    """The number in each key's content; None if the outcome of its last commit is unknown."""


class Worker:
    """Commits, merges, and creates, assigns and drops references, with keys and names of its own.

    It therefore knows the state of each, unless an error left an outcome unknown. If refs can be
    stale, the store may also report an existing reference as missing, or a missing one as present.
    """

    def __init__(self, repo: Repository, spawn: Spawn, seed: int, number: int, stale: bool) -> None:
        self._repo = repo
        self._spawn = spawn
        self._random = Random(f"{seed} {number}")
        self._me = f"t{number}"
        self._stale = stale
        self._ids: dict[str, str] = {}
        self.tried = {"main": Tried(), "side": Tried()}
        self.names: dict[str, bool | None] = {f"{self._me}-{n}": False for n in range(3)}
        self.at: dict[str, str] = {}
        """The hashes of assigned references by name, unless the outcome is unknown."""

    def run(self) -> None:
        frequent = [self._create, self._create_or_drop]
        steps = [*frequent, *frequent, self._assign, self._update, self._merge, self._list]
        for step in range(STEPS):
            self._random.choice(steps)(step)

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
            request = self._repo.commit_request(branch, puts, message)
            if self._is_server():
                result = spawners.result(self._repo, request, self._spawn)
            else:
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
            options = MergeOptions(meta=CommitMeta(message=message))
            request = self._repo.merge_request("side", "main", options)
            if self._is_server():
                result = spawners.result(self._repo, request, self._spawn)
            else:
                result = self._repo.merge("side", "main", meta=options.meta)
        except (InjectedFault, ServiceUnavailable):
            return
        except (ReferenceConflict, ReferenceNotFound):
            assert self._stale
            return
        if result.was_applied:
            assert result.resultant_target_hash is not None
            tried.acknowledged[message] = result.resultant_target_hash

    def _create_or_drop(self, step: int) -> None:
        name = self._random.choice(sorted(self.names))
        known = self.names[name]
        self.names[name] = None
        self.at.pop(name, None)
        try:
            if known or (known is None and self._random.random() < 0.5):
                self._drop(name)
                self.names[name] = False
            else:
                self._create_branch(name)
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

    def _create_branch(self, name: str) -> None:
        references = self._repo.references
        if self._is_server():
            creation = references.creation("BRANCH", name, "main")
            spawners.changed(self._repo, creation, self._spawn)
        else:
            references.create_branch(name, "main")

    def _drop(self, name: str) -> None:
        references = self._repo.references
        if self._is_server():
            deletion = references.deletion(references.get(name))
            spawners.changed(self._repo, deletion, self._spawn)
        else:
            references.delete(name)

    def _is_server(self) -> bool:
        """Work as in a server, or as in a script."""
        return self._random.random() < 0.5

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
        """List references, some of which other threads are creating or dropping."""
        with suppress(InjectedFault, ServiceUnavailable):
            found = {reference.name for reference in self._repo.references.list()}
            for name, known in self.names.items():
                assert self._stale or known is None or known == (name in found)


def work_and_check(
    backend: FaultyBackend, wrapped: Backend, seed: int, plan: Dice, stale: bool
) -> None:
    repo = Repository(backend, QUICK, World())
    repo.commit("main", [put("first")], "first")
    repo.references.create_branch("side", "main")
    servers = repo, Repository(backend, QUICK, World())
    loops = [spawners.LoopSpawner() for _ in servers]
    workers = [Worker(servers[n % 2], loops[n % 2].spawn, seed, n, stale) for n in range(THREADS)]
    backend.plan = plan
    in_threads(worker.run for worker in workers)
    backend.plan = NO_FAULTS
    for loop in loops:
        loop.close()
    if isinstance(backend, SyncsLater):
        # A change whose sync failed is shown by the next sync. It must not be shown during checks.
        backend.sync()
    assert backend.injected

    for worker in workers:
        assert {name: repo.references.get(name).hash for name in worker.at} == worker.at
    for each in (repo, Repository(wrapped, QUICK, World())):  # A warm cache, and a cold one.
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
    found = found_names(repo, names)
    assert {n for n, known in names.items() if known} <= found
    assert not {n for n, known in names.items() if known is False} & found
    for name in names:
        if name in found:
            repo.references.delete(name)
        repo.references.create_branch(name, "main")
        repo.references.delete(name)
        if name in found:
            repo.references.create_branch(name, "main")
    assert found_names(repo, names) == found


def fail_at_random(
    faulty: type[FaultyBackend], weak: bool, faults: list[Fault], seed: int, rate: float
) -> None:
    memory = MemoryBackend()
    backend = faulty(memory, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    plan = Dice(seed, rate, faults=faults)
    work_and_check(backend, memory, seed, plan, Fault.STALE in faults)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faults", [CURRENT, list(Fault)], ids=["current", "stale"])
@pytest.mark.parametrize("faulty", FAULTY)
def test_acknowledged_commits_are_stored_once_and_whole(
    faulty: type[FaultyBackend], weak: bool, faults: list[Fault], seed: int
) -> None:
    fail_at_random(faulty, weak, faults, seed, rate=0.15)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("fault seeds"))
@pytest.mark.parametrize("faults", [CURRENT, list(Fault)], ids=["current", "stale"])
@pytest.mark.parametrize("faulty", FAULTY)
def test_acknowledged_commits_are_stored_once_and_whole_for_any_seed(
    faulty: type[FaultyBackend], weak: bool, faults: list[Fault], seed: int
) -> None:
    fail_at_random(faulty, weak, faults, seed, Random(seed).choice([0.05, 0.1, 0.2, 0.4]))


def test_acknowledged_commits_are_stored_once_and_whole_in_sqlite(
    weak: bool, tmp_path: Path
) -> None:
    sqlite = SQLiteBackend(tmp_path / "morag.db", sync=False)
    backend = BusyBackend(sqlite, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    work_and_check(backend, sqlite, 1, Dice(1, rate=0.15, faults=CURRENT), stale=False)
    sqlite.close()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faulty", [QuickTogetherBackend, BusyQuickTogetherBackend])
def test_acknowledged_commits_are_stored_once_and_whole_in_rocksdb(
    faulty: type[FaultyBackend], seed: int, tmp_path: Path
) -> None:
    """Its writes are synced later, and a sync may fail, too."""
    rocksdb = RocksDBBackend(tmp_path)
    backend = faulty(rocksdb, NO_FAULTS, delay_seconds=0.0005)
    work_and_check(backend, rocksdb, seed, Dice(seed, rate=0.15, faults=CURRENT), stale=False)
    rocksdb.close()


class Rival:
    """Changes a name that other servers change as well."""

    def __init__(self, repo: Repository, seed: int, number: int) -> None:
        self._repo, self._random, self._number = repo, Random(f"{seed} {number}"), number

    def run(self) -> None:
        references = self._repo.references
        steps: list[Callable[[int], object]] = [
            lambda _: references.create_branch("x", "main"),
            lambda _: references.delete("x"),
            lambda _: references.assign("x", self._random.choice(["main", "side"])),
            lambda step: self._repo.commit("x", [put(f"{self._number}-{step}")], "x"),
        ]
        for step in range(8):
            with suppress(
                InjectedFault,
                ServiceUnavailable,
                ReferenceAlreadyExists,
                ReferenceConflict,
                ReferenceNotFound,
            ):
                self._random.choice(steps)(step)


def fight_for_a_name(faulty: type[FaultyBackend], weak: bool, seed: int, rate: float) -> None:
    memory = MemoryBackend()
    backend = faulty(memory, NO_FAULTS, weak=weak, delay_seconds=0.0005)
    servers = [Repository(backend, QUICK, World()) for _ in range(3)]
    servers[0].commit("main", [put("first")], "first")
    servers[0].references.create_branch("side", "main")
    servers[0].commit("main", [put("second")], "second")
    backend.plan = Dice(seed, rate, faults=CURRENT)
    in_threads(Rival(server, seed, number).run for number, server in enumerate(servers))
    backend.plan = NO_FAULTS
    for each in (servers[0], Repository(memory, QUICK, World())):
        if found_names(each, ["x"]):
            check_sound(each, "x")
            each.references.delete("x")
        each.references.create_branch("x", "main")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("faulty", FAULTY)
def test_servers_that_fight_for_a_name_agree_whether_it_exists(
    faulty: type[FaultyBackend], weak: bool, seed: int
) -> None:
    fight_for_a_name(faulty, weak, seed, rate=0.2)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds("fault seeds"))
@pytest.mark.parametrize("faulty", FAULTY)
def test_servers_that_fight_for_a_name_agree_whether_it_exists_for_any_seed(
    faulty: type[FaultyBackend], weak: bool, seed: int
) -> None:
    for round in range(20):
        fight_for_a_name(faulty, weak, 1000 * round + seed, Random(seed).choice([0, 0.1, 0.2, 0.4]))


# One fault at a time


@pytest.fixture
def faulty(weak: bool) -> Store:
    return Store(FaultyBackend, weak, QUICK, World())


@pytest.fixture
def busy(weak: bool) -> Store:
    return Store(BusyBackend, weak, QUICK, World())


@pytest.fixture(params=[FaultyBackend, BusyBackend])
def either(request: pytest.FixtureRequest, weak: bool) -> Store:
    return Store(request.param, weak, QUICK, World())


def test_a_commit_whose_reply_is_lost_succeeds(either: Store) -> None:
    plan = either.backend.plan = Upcoming({either.swap: [Fault.AFTER]})
    result = either.repo.commit("main", [put("a")], "a")
    assert plan.is_over
    (entry,) = check_sound(either.other(), "main")
    assert entry.meta.hash == result.hash


@pytest.mark.parametrize("others", [1, 19, 20, 21, 45])
def test_a_commit_whose_reply_is_lost_succeeds_with_other_commits_on_top(
    either: Store, others: int
) -> None:
    other = either.other()

    def commit() -> None:
        for n in range(others):
            other.commit("main", [put(f"other-{n}")], f"other-{n}")

    either.backend.plan = OthersOnTop(either.swap, commit)
    result = either.repo.commit("main", [put("a")], "a")
    log = check_sound(either.other(), "main")
    assert log[0].meta.hash == result.hash
    assert [e.meta.message for e in log] == ["a", *(f"other-{n}" for n in range(others))]


def test_a_commit_whose_reply_is_lost_is_not_repeated_after_a_reset(either: Store) -> None:
    first = either.repo.commit("main", [put("a")], "a").hash
    other = either.other()

    def reset() -> None:
        other.references.assign("main", f"@{first}", other.references.get("main").hash)

    either.backend.plan = OthersOnTop(either.swap, reset)
    either.repo.commit("main", [put("b")], "b")
    assert messages(other, "main") == ["a"]


def test_a_commit_that_was_not_made_fails(faulty: Store) -> None:
    plan = faulty.backend.plan = Upcoming({faulty.swap: [Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        faulty.repo.commit("main", [put("a")], "a")
    assert plan.is_over
    assert log_of(faulty.other(), "main") == []
    faulty.repo.commit("main", [put("a")], "a")
    assert messages(faulty.other(), "main") == ["a"]


def test_a_batch_whose_reply_is_lost_succeeds_as_a_whole(either: Store) -> None:
    """Finding the last commit of the batch proves that all of them are stored."""
    lane = either.repo._writers().lanes.lane("main")
    requests = [either.repo.commit_request("main", [put(f"{n}")], f"{n}") for n in range(5)]
    tickets = [Waiter(request) for request in requests]
    either.backend.plan = Upcoming({either.swap: [Fault.AFTER]})
    assert lane.join(tickets)
    lane.drive(tickets[-1])
    hashes = [ticket.result().hash for ticket in tickets]
    assert [entry.meta.hash for entry in check_sound(either.other(), "main")] == hashes


def test_a_lost_reply_and_a_failed_read_make_no_second_commit(busy: Store) -> None:
    """The retry must recognise its own commit on the branch."""
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


def test_a_lost_reply_and_a_stale_read_make_no_second_commit(busy: Store) -> None:
    id = busy.repo.commit("main", [put("a")], "a").added[key("a")]
    busy.backend.plan = Upcoming({busy.swap: [Fault.AFTER], "read_refs": [None, Fault.STALE]})
    updated = busy.repo.commit("main", [put("a", 7, id)], "b")
    log = check_sound(busy.other(), "main")
    assert messages(busy.other(), "main") == ["a", "b"]
    assert log[-1].meta.hash == updated.hash


def test_a_lost_race_is_retried(faulty: Store) -> None:
    faulty.lose_a_race()
    faulty.repo.commit("main", [put("ours")], "ours")
    assert faulty.swaps() == 2
    check_sound(faulty.other(), "main")
    assert messages(faulty.other(), "main") == ["first", "theirs", "ours"]


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("many", [1, 2, 3, 4])
def test_stale_reads_restore_no_dropped_reference(faulty: Store, first: int, many: int) -> None:
    """Any reads of the drop, or of a later commit to the dropped name, may be stale."""
    stale = Upcoming({"read_refs": [None] * first + [Fault.STALE] * many})
    expected = (ReferenceNotFound, ReferenceConflict)
    faulty.repo.references.create_branch("a", None)
    faulty.backend.plan = stale
    with suppress(*expected):
        faulty.repo.references.delete("a")
        faulty.backend.plan = NO_FAULTS
        assert found_names(faulty.other(), ["a"]) == set()
    faulty.backend.plan = NO_FAULTS
    with suppress(*expected):
        faulty.repo.references.delete("a")

    faulty.backend.plan = Upcoming({"read_refs": [None] * first + [Fault.STALE] * many})
    with suppress(*expected, BadRequest):
        faulty.repo.commit("a", [put("a")], "a")
    faulty.backend.plan = NO_FAULTS
    assert faulty.backend.injected
    assert found_names(faulty.other(), ["a"]) == set()
    faulty.repo.references.create_branch("a", None)
    assert found_names(faulty.other(), ["a"]) == {"a"}


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_failed_initialization_is_completed_by_the_next_start(weak: bool, fault: Fault) -> None:
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
            assert step > 4, "initialization has at least four writes"
            break


class NthWrite:
    """Makes the n-th write fail."""

    def __init__(self, number: int, fault: Fault) -> None:
        self._left, self._fault = number, fault

    def fault(self, method: str, call: int) -> Fault | None:
        if method.startswith("read"):
            return None
        self._left -= 1
        return self._fault if self._left == 0 else None


# Limits of retries


def test_a_busy_store_is_retried_until_no_retries_are_left(weak: bool) -> None:
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
    assert store.repo.commit("main", [put("a")], "a").hash  # The lane is free again.


def test_a_busy_store_is_retried_until_the_timeout(weak: bool) -> None:
    time = Time()
    store = Store(BusyBackend, weak, Settings(commit_timeout_ms=700), time.world())
    store.backend.plan = Dice(1, rate=1.0, methods=[store.swap], faults=[Fault.BEFORE])
    with pytest.raises(StoreBusy):
        store.repo.commit("main", [put("a")], "a")
    assert sum(time.sleeps_ms) == pytest.approx(700)
    assert len(time.sleeps_ms) >= 5


def test_pauses_are_random_and_grow_to_the_limit(weak: bool) -> None:
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


def test_an_unknown_outcome_is_reported_as_unknown(weak: bool) -> None:
    store = Store(BusyBackend, weak, Settings(commit_retries=0), Time().world())
    store.backend.plan = Upcoming({store.swap: [Fault.AFTER], "read_refs": [None, Fault.BEFORE]})
    with pytest.raises(StoreBusy, match="It is unknown whether the change was made"):
        store.repo.commit("main", [put("a")], "a")
    assert messages(store.other(), "main") == ["a"]
    store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE]})
    with pytest.raises(StoreBusy) as refusal:
        store.repo.commit("main", [put("b")], "b")
    assert "It is unknown" not in str(refusal.value)
    assert messages(store.other(), "main") == ["a"]


def test_queued_requests_fail_together_when_the_store_stays_busy(weak: bool) -> None:
    settings = Settings(commit_retries=0, lane_batch=1)
    store = Store(BusyBackend, weak, settings, Time().world())
    requests = [store.repo.commit_request("main", [put(f"{n}")], f"{n}") for n in range(3)]
    tickets = [Waiter(request) for request in requests]
    plan = store.backend.plan = Upcoming(
        {store.swap: [Fault.AFTER], "read_refs": [None, Fault.BEFORE]}
    )
    lane = store.repo._writers().lanes.lane("main")
    assert lane.join(tickets)
    lane.drive(tickets[0])
    assert plan.is_over
    failures = [str(ticket.failure) for ticket in tickets]
    assert ["Nothing was changed" in text for text in failures] == [False, True, True]
    assert ["It is unknown" in text for text in failures] == [True, False, False]
    assert messages(store.other(), "main") == ["0"]
    assert store.repo.commit("main", [put("a")], "a").hash  # The lane is free again.


def attempts(time: Time, retries: int) -> Iterator[Attempt]:
    world, settings = time.world(), Settings(commit_retries=retries)
    return Retries(settings, world.monotonic, world.sleep, world.random).attempts("commit")


def test_a_lost_race_is_retried_at_once_and_then_with_pauses() -> None:
    time = Time()
    with pytest.raises(RetriesExhausted, match="after 3 retries"):
        for _ in attempts(time, 3):
            pass
    assert len(time.sleeps_ms) == 2


@pytest.mark.parametrize("busy", [StoreBusy("busy"), StoreThrottled("throttled")])
def test_the_failure_of_the_last_attempt_is_raised(busy: StoreBusy) -> None:
    for number, expected in ((0, RetriesExhausted), (3, type(busy))):
        with pytest.raises(expected) as failure:
            for at, attempt in enumerate(attempts(Time(), 3)):
                if at == number:
                    attempt.failure = busy
        assert (failure.value is busy) is (number == 3)


def test_a_commit_succeeds_when_a_busy_store_recovers(busy: Store) -> None:
    busy.backend.plan = Upcoming({busy.swap: [Fault.BEFORE] * 5})
    busy.repo.commit("main", [put("a")], "a")
    assert len(check_sound(busy.other(), "main")) == 1


def test_creating_a_branch_is_retried_when_the_store_is_busy(busy: Store) -> None:
    busy.backend.plan = Upcoming({busy.swap: [Fault.BEFORE] * 3})
    busy.repo.references.create_branch("b", "main")
    assert found_names(busy.other(), ["b"]) == {"b"}


# Generated content ids


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.BETWEEN, Fault.AFTER])
def test_a_retried_commit_keeps_its_content_ids(busy: Store, fault: Fault) -> None:
    """With new ids, each attempt would leave another value and another claimed id behind."""
    method = "insert_rows" if busy.weak else "apply"
    plan = busy.backend.plan = Upcoming({method: [fault] * 3})
    result = busy.repo.commit("main", [put("a"), put("b")], "a")
    assert plan.is_over or fault is Fault.AFTER
    assert (busy.rows("v"), busy.rows("u")) == (2, 2)
    contents = busy.other().contents.get_all("main", [key("a"), key("b")])
    assert {key: content.id for key, content in contents.items()} == result.added


def test_a_commit_that_lost_a_race_keeps_its_content_ids(faulty: Store) -> None:
    faulty.lose_a_race()
    values, claims = faulty.rows("v"), faulty.rows("u")
    result = faulty.repo.commit("main", [put("ours")], "ours")
    assert faulty.swaps() == 2
    assert (faulty.rows("v"), faulty.rows("u")) == (values + 1, claims + 1)
    assert faulty.other().contents.get("main", key("ours")).id == result.added[key("ours")]


@pytest.mark.parametrize("collisions", [1, 2, 3])
def test_a_content_id_that_is_taken_is_generated_again(weak: bool, collisions: int) -> None:
    ids = iter([bytes(16), *[bytes(16)] * collisions, bytes([1]) * 16])
    store = Store(FaultyBackend, weak, QUICK, World(new_uuid=lambda: next(ids)))
    first = store.repo.commit("main", [put("a")], "a")
    second = store.repo.commit("main", [put("b")], "b")
    assert first.added[key("a")] == "00000000-0000-0000-0000-000000000000"
    assert second.added[key("b")] == "01010101-0101-0101-0101-010101010101"
    listed = store.other().contents.entries("main")
    assert {e.key: e.content_id for e in listed} == {**first.added, **second.added}
