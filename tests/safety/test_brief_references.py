"""References that an event loop creates and deletes: it never waits, and syncs come before answers.

`test_brief_lanes.py` has the same for commits.
"""

from __future__ import annotations

from functools import partial
from threading import Event
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from morag.backend.memory import MemoryBackend
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.errors import (
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
    StoreBusy,
    StoreCannotWrite,
)
from morag.versions.repository import Repository
from morag.versions.world import World
from tests import spawners
from tests.backend.counting import CountingBackend
from tests.backend.faulty import Fault, QuickTogetherBackend
from tests.backend.slow_disk import SlowDisk
from tests.safety.faulty_stores import (
    NO_FAULTS,
    QUICK,
    BusyQuickTogetherBackend,
    Store,
    Upcoming,
)
from tests.safety.history_checks import check_sound, found_names, in_thread, in_threads, put
from tests.safety.stepped_server import SteppedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from morag.versions.reference_lane import ReferenceRequest
    from morag.versions.tickets import Ticket

pytestmark = pytest.mark.timeout(60)


class Server(SteppedServer):
    """Creates and drops branches; the outcomes are names by name."""

    def create(self, name: str) -> None:
        self._start(name, self.repo.references.creation("BRANCH", name, "main"))

    def drop(self, name: str) -> None:
        self._start(name, self.repo.references.deletion(self.repo.references.get(name)))

    def _start(self, name: str, request: ReferenceRequest) -> None:
        def finished(ticket: Ticket) -> None:
            kind = type(ticket.failure).__name__
            self.outcomes[name] = ticket.result().name if ticket.failure is None else kind

        self.repo.references.start(request, self._spawner.spawn, finished)

    def names(self, *names: str) -> set[str]:
        return found_names(self.repo, names)


@pytest.fixture
def rocksdb(tmp_path: Path) -> Iterator[RocksDBBackend]:
    backend = RocksDBBackend(tmp_path / "store")
    yield backend
    backend.close()


@pytest.fixture(params=[QuickTogetherBackend, BusyQuickTogetherBackend])
def store(request: pytest.FixtureRequest) -> Store:
    """Its server shares the store with others, and its faults are planned."""
    return Store(request.param, False, QUICK, World())


# Syncs


def test_no_change_is_shown_or_answered_before_its_sync(rocksdb: RocksDBBackend) -> None:
    server = Server(rocksdb)
    server.repo.references.create_branch("old", "main")
    server.create("new")
    server.drop("old")
    server.run("loop")
    assert server.outcomes == {}
    assert server.names("new", "old") == {"old"}
    server.run("thread")
    assert server.outcomes == {}, "the loop delivers results"
    server.run("loop")
    assert server.outcomes == {"new": "new", "old": "old"}
    assert server.names("new", "old") == {"new"}


def test_a_store_without_syncs_needs_no_thread(tmp_path: Path) -> None:
    rocksdb = RocksDBBackend(tmp_path, sync=False)
    for backend in (MemoryBackend(), rocksdb):
        server = Server(backend)
        server.create("new")
        assert server.run_all() == ["loop"]
        server.drop("new")
        assert server.run_all() == ["loop"]
        assert server.outcomes == {"new": "new"}
        assert server.names("new") == set()
    rocksdb.close()


def test_changes_during_a_sync_are_in_the_next_batch(rocksdb: RocksDBBackend) -> None:
    backend = CountingBackend(rocksdb)
    server = Server(backend)
    server.create("a")
    server.run("loop")
    for name in "bcd":
        server.create(name)
    assert server.run_all() == ["thread", "loop", "loop", "thread", "loop"]
    assert server.names(*"abcd") == set("abcd")
    assert backend.counts["try_apply_all"] == backend.counts["sync"] == 2


def test_a_failed_sync_fails_its_whole_batch_and_later_changes(
    rocksdb: RocksDBBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(rocksdb)
    disk = SlowDisk(rocksdb._db)
    disk.go.set()
    disk.fail_at, disk.error = 1, OSError("no space left")
    monkeypatch.setattr(rocksdb, "_db", disk)
    for name in "ab":
        server.create(name)
    server.run_all()
    disk.error = None
    server.create("late")
    server.run_all()
    assert server.outcomes == dict.fromkeys(["a", "b", "late"], StoreCannotWrite.__name__)
    assert server.names("a", "b", "late") == set()


def test_closing_a_store_keeps_what_waits_for_a_sync(tmp_path: Path) -> None:
    server = Server(RocksDBBackend(tmp_path))
    server.create("a")
    server.run("loop")
    server.repo.close()
    assert server.run_all() == ["thread", "loop"]
    assert server.outcomes == {"a": "a"}
    reopened = Repository(RocksDBBackend(tmp_path), QUICK, World())
    assert found_names(reopened, ["a"]) == {"a"}
    reopened.close()


# Work that is left to a thread


def test_a_batch_that_would_have_to_wait_gets_a_thread_and_keeps_its_order(store: Store) -> None:
    server = Server(store.backend)
    store.backend.plan = Upcoming({"try_apply_all": [Fault.WOULD_WAIT]})
    for name in "ab":
        server.create(name)
    server.run("loop")
    server.create("c")
    assert server.outcomes == {}
    assert server.run_all() == ["thread"]
    assert list(server.outcomes) == list("abc")
    assert server.names(*"abc") == set("abc")
    server.create("d")
    assert server.run_all() == ["loop"]


def test_a_batch_with_a_change_that_must_fail_changes_nothing_before_a_thread_has_it() -> None:
    server = Server(MemoryBackend())
    server.create("new")
    server.create("main")
    server.run("loop")
    assert server.names("new") == set()
    assert server.run_all() == ["thread"]
    assert server.outcomes == {"new": "new", "main": ReferenceAlreadyExists.__name__}


def test_a_drop_of_a_branch_that_moved_is_refused() -> None:
    server = Server(MemoryBackend())
    server.repo.references.create_branch("dev", "main")
    server.drop("dev")
    server.repo.commit("dev", [put("a")], "a")
    assert server.run_all() == ["loop", "thread"]
    assert server.outcomes == {"dev": ReferenceConflict.__name__}


def test_a_lock_of_the_references_is_not_waited_for() -> None:
    server = Server(MemoryBackend())
    held, release = Event(), Event()

    def hold() -> None:
        with server.repo._writers().references._lock:
            held.set()
            assert release.wait(timeout=30)

    holding = in_thread(hold)
    assert held.wait(timeout=30)
    server.create("a")
    in_thread(partial(server.run, "loop")).result(timeout=10)
    assert server.outcomes == {}
    release.set()
    holding.result(timeout=10)
    assert server.run_all() == ["thread"]
    assert server.outcomes == {"a": "a"}


@pytest.mark.parametrize(
    ("most_stripes", "names", "places"),
    [
        (10_000, ["a", "long" * 100], ["loop"]),
        (2, ["a"], ["loop"]),
        (2, ["a", "long" * 100], ["loop", "thread"]),  # Together they would spill.
    ],
)
def test_a_change_that_may_rewrite_many_stripes_is_left_to_a_thread(
    most_stripes: int, names: list[str], places: list[str]
) -> None:
    server = Server(MemoryBackend())
    for number in range(40):
        server.repo.references.create_branch(f"branch-{number}", "main")
    for name in names:
        server.create(name)
    with patch("morag.index.spill._MANY_STRIPES", most_stripes):
        assert server.run_all() == places


def test_a_lost_race_is_repeated_by_a_thread(store: Store) -> None:
    server, other = Server(store.backend), store.other()

    class Meanwhile:
        def fault(self, method: str, call: int) -> Fault | None:
            if method == "try_apply_all":
                other.references.create_branch("theirs", "main")
            return None

    store.backend.plan = Meanwhile()
    server.create("ours")
    assert server.run_all() == ["loop", "thread"]
    assert server.names("ours", "theirs") == {"ours", "theirs"}


# Failures of the store


def test_a_write_whose_reply_is_lost_succeeds(store: Store) -> None:
    server = Server(store.backend)
    plan = store.backend.plan = Upcoming({"try_apply_all": [Fault.AFTER]})
    server.create("a")
    assert server.run_all() == ["loop"]
    assert plan.is_over
    assert server.outcomes == {"a": "a"}
    assert found_names(store.other(), ["a"]) == {"a"}


def test_a_write_that_is_not_synced_and_may_have_succeeded_is_not_repeated(
    rocksdb: RocksDBBackend,
) -> None:
    """Nobody can see it before the next sync."""
    backend = BusyQuickTogetherBackend(rocksdb, NO_FAULTS)
    server = Server(backend)
    backend.plan = Upcoming({"try_apply_all": [Fault.AFTER]})
    server.create("a")
    assert server.run_all() == ["loop"]
    assert server.outcomes == {"a": StoreBusy.__name__}
    rocksdb.sync()
    assert server.names("a") == {"a"}


def test_a_busy_store_is_retried_by_a_thread() -> None:
    store = Store(BusyQuickTogetherBackend, False, QUICK, World())
    server = Server(store.backend)
    server.create("a")
    store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE], "apply_all": [Fault.BEFORE]})
    assert server.run_all() == ["loop", "thread"]
    assert server.outcomes == {"a": "a"}


def test_a_write_that_may_have_succeeded_is_not_repeated() -> None:
    store = Store(BusyQuickTogetherBackend, False, QUICK, World())
    server = Server(store.backend)
    server.create("a")
    store.backend.plan = Upcoming(
        {"try_apply_all": [Fault.AFTER], "read_refs": [None, Fault.BEFORE]}
    )
    assert server.run_all() == ["loop"]
    assert server.outcomes == {"a": StoreBusy.__name__}
    assert found_names(store.other(), ["a"]) == {"a"}


# All at once


@pytest.mark.parametrize("sync", [True, False])
def test_loop_and_threads_share_the_lane(sync: bool, tmp_path: Path) -> None:
    """Threads create and drop the same names, and commit to them, through the loop or not."""
    repo = Repository(RocksDBBackend(tmp_path, sync=sync), QUICK, World())
    loop = spawners.LoopSpawner()
    repo.commit("main", [put("first")], "first")
    names = ["a", "b", "c"]

    def change(me: int) -> None:
        references = repo.references
        for n in range(12):
            name = names[(me + n) % 3]
            try:
                if n % 4 == 3:
                    put_here = repo.commit_request(name, [put(f"{me}-{n}")], f"{me}-{n}")
                    spawners.result(repo, put_here, loop.spawn)
                elif n % 2:
                    deletion = references.deletion(references.get(name))
                    spawners.changed(repo, deletion, loop.spawn)
                elif me % 2:
                    creation = references.creation("BRANCH", name, "main")
                    spawners.changed(repo, creation, loop.spawn)
                else:
                    references.create_branch(name, "main")
            except (ReferenceAlreadyExists, ReferenceConflict, ReferenceNotFound):
                continue  # Another thread was faster.

    work: list[Callable[[], None]] = [partial(change, me) for me in range(6)]
    in_threads(work)
    listed = {reference.name for reference in repo.references.list()}
    assert found_names(repo, names) == listed - {"main"}
    for name in listed:
        check_sound(repo, name or "")
    loop.close()
    repo.close()
