"""Creations and drops of references that are made in one step: all of them once, or none."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from morag.backend.base import RefSwap
from morag.backend.memory import MemoryBackend
from morag.errors import (
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
    RetriesExhausted,
    ServiceUnavailable,
    StoreBusy,
)
from morag.format.ids import NO_ANCESTOR
from morag.logic import history
from morag.logic.internal_refs import REFS
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.backend.faulty import Fault, FaultyBackend, InjectedFault, TogetherBackend
from tests.safety.faulty_stores import (
    NO_FAULTS,
    QUICK,
    BusyBackend,
    BusyTogetherBackend,
    Store,
    Time,
    Upcoming,
)
from tests.safety.history_checks import found_names, put
from tests.spawners import ManualSpawner, at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import Applied, LogRow, Row
    from morag.model.references import Reference
    from morag.versions.reference_lane import ReferenceRequest
    from morag.versions.tickets import Ticket

LOST = [Fault.AFTER, Fault.FALSE_AFTER]
STEPS = ("apply", "swap_ref", "insert_rows", "append_log")


class Waiting:
    """Requests that wait in the lane until the test lets a thread drive it."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._works = ManualSpawner()
        self._tickets: dict[int, Ticket] = {}
        self._count = 0

    def add(self, request: ReferenceRequest) -> None:
        number, self._count = self._count, self._count + 1

        def finished(ticket: Ticket) -> None:
            self._tickets[number] = ticket

        self._repo.references.start(request, self._works.spawn, finished)

    def create(self, name: str) -> None:
        self.add(self._repo.references.creation("BRANCH", name, "main"))

    def drop(self, name: str) -> None:
        self.add(self._repo.references.deletion(self._repo.references.get(name)))

    def outcomes(self) -> list[str]:
        """The short names of changed references and the types of errors, in order."""
        while self._works.waiting:
            self._works.run_one()
        return [self._outcome(self._tickets[number]) for number in range(self._count)]

    def _outcome(self, ticket: Ticket) -> str:
        if ticket.failure is not None:
            return type(ticket.failure).__name__
        changed: Reference = ticket.result()
        return changed.name or ""


@pytest.fixture(params=[TogetherBackend, BusyTogetherBackend])
def store(request: pytest.FixtureRequest) -> Store:
    """A store with a branch `dev`."""
    store = Store(request.param, False, QUICK, World())
    store.repo.commit("main", [put("a")], "a")
    store.repo.references.create_branch("dev", "main")
    return store


def logged(repo: Repository, name: str) -> list[tuple[str, str]]:
    """The operations on a reference with their authors, newest first."""
    moves = repo.references.moves().items
    return [(move.operation, move.who) for move in moves if move.reference.name == name]


def names_commits(repo: Repository) -> list[str]:
    """The messages of the commits on `int/refs`, newest first."""
    ref = repo._persist.ref(REFS)
    assert ref is not None
    return [commit.message for commit in history.log(repo._persist, ref.pointer)]


def test_a_creation_and_a_drop_are_one_write_each() -> None:
    backend = CountingBackend(MemoryBackend())
    repo = Repository(backend, QUICK, World())
    backend.reset()
    repo.references.create_branch("new", "main")
    repo.references.delete("new")
    assert backend.counts["apply_all"] == 2
    assert not any(backend.counts[method] for method in STEPS)


def test_changes_that_wait_are_one_read_and_one_write() -> None:
    backend = CountingBackend(MemoryBackend())
    repo = Repository(backend, QUICK, World())
    for number in range(5):
        repo.references.create_branch(f"old-{number}", "main")
    waiting = Waiting(repo)
    for number in range(5):
        waiting.create(f"new-{number}")
        waiting.drop(f"old-{number}")
    backend.reset()
    expected = [name for n in range(5) for name in (f"new-{n}", f"old-{n}")]
    assert waiting.outcomes() == expected
    assert backend.counts == {"read_refs": 1, "try_apply_all": 1}
    assert found_names(repo, expected) == {f"new-{n}" for n in range(5)}


def test_each_change_of_a_batch_is_a_commit_of_its_own(store: Store) -> None:
    """Nessie writes one name per commit, and its readers need not expect anything else."""
    waiting = Waiting(store.repo)
    waiting.create("one")
    waiting.drop("dev")
    waiting.create("two")
    assert waiting.outcomes() == ["one", "dev", "two"]
    at = store.repo.references.get("main").hash
    assert names_commits(store.other())[:4] == [
        f"Create reference refs/heads/two pointing to {at}",
        f"Drop reference refs/heads/dev pointing to {at}",
        f"Create reference refs/heads/one pointing to {at}",
        f"Create reference refs/heads/dev pointing to {at}",
    ]


@pytest.mark.parametrize("change", ["create", "drop"])
def test_one_step_stores_the_same_bytes_as_several(change: str) -> None:
    stored = []
    for backend_type in (FaultyBackend, TogetherBackend):
        memory, random_bytes = MemoryBackend(), Random(1).randbytes
        world = World(
            clock_nanos=lambda: 1_700_000_000_000_000_000,
            random_bytes=random_bytes,
            new_uuid=partial(random_bytes, 16),
        )
        repo = Repository(backend_type(memory, NO_FAULTS), QUICK, world)
        repo.commit("main", [put("a")], "a")
        repo.references.create_branch("new", "main", who="ann")
        if change == "drop":
            repo.references.delete("new", who="ann")
        refs = memory.read_refs("", [REFS, "refs/heads/main", "refs/heads/new"])
        rows = {row.id: row for row in memory.scan_rows("")}
        stored.append((refs, rows, memory.read_log("", None, 99)))
    assert stored[0] == stored[1]


@pytest.mark.parametrize("fault", LOST)
def test_changes_whose_reply_is_lost_are_made_once(store: Store, fault: Fault) -> None:
    waiting = Waiting(store.repo)
    waiting.create("new")
    waiting.drop("dev")
    plan = store.backend.plan = Upcoming({"apply_all": [fault]})
    assert waiting.outcomes() == ["new", "dev"]
    assert plan.is_over
    assert found_names(store.other(), ["new", "dev"]) == {"new"}
    assert logged(store.other(), "new") == [("CREATE_REFERENCE", "")]
    assert logged(store.other(), "dev")[0] == ("DELETE_REFERENCE", "")
    assert len(names_commits(store.other())) == 5


@pytest.mark.parametrize("read", [Fault.BEFORE, Fault.STALE])
def test_changes_whose_reply_is_lost_are_recognised_after_a_failed_read(read: Fault) -> None:
    store = Store(BusyTogetherBackend, False, QUICK, World())
    waiting = Waiting(store.repo)
    waiting.create("new")
    plan = store.backend.plan = Upcoming({"apply_all": [Fault.AFTER], "read_refs": [None, read]})
    assert waiting.outcomes() == ["new"]
    assert plan.is_over
    assert found_names(store.other(), ["new"]) == {"new"}


def test_changes_whose_reply_is_lost_are_recognised_under_those_of_others(store: Store) -> None:
    other = store.other()

    class DropByOthers:
        """Loses the reply; before the next call another server drops the new reference."""

        calls = 0

        def fault(self, method: str, call: int) -> Fault | None:
            self.calls += method == "apply_all"
            if self.calls == 1 and method != "apply_all":
                self.calls += 1
                other.references.delete("new")
            return Fault.AFTER if method == "apply_all" else None

    store.backend.plan = DropByOthers()
    store.repo.references.create_branch("new", "main")
    assert found_names(other, ["new"]) == set()


def test_a_change_that_fails_leaves_the_others_alone(store: Store) -> None:
    waiting = Waiting(store.repo)
    waiting.create("new")
    waiting.drop("dev")
    waiting.create("new")
    waiting.add(store.repo.references.creation("TAG", "new", "main"))
    waiting.create("main")
    waiting.add(store.repo.references.deletion(store.repo.references.get("dev")))
    waiting.create("last")
    assert waiting.outcomes() == [
        "new",
        "dev",
        "ReferenceAlreadyExists",
        "ReferenceAlreadyExists",
        "ReferenceAlreadyExists",
        "ReferenceNotFound",
        "last",
    ]
    assert found_names(store.other(), ["new", "dev", "last"]) == {"new", "last"}


def test_a_dropped_name_can_be_created_in_the_same_batch(store: Store) -> None:
    before = store.memory.read_refs("", ["refs/heads/dev"])["refs/heads/dev"]
    waiting = Waiting(store.repo)
    waiting.drop("dev")
    waiting.create("dev")
    assert waiting.outcomes() == ["dev", "dev"]
    after = store.memory.read_refs("", ["refs/heads/dev"])["refs/heads/dev"]
    assert after.created_micros > before.created_micros
    assert found_names(store.other(), ["dev"]) == {"dev"}


class JustBefore:
    """Runs an action of another server just before the first `apply_all`."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action

    def fault(self, method: str, call: int) -> Fault | None:
        if method == "apply_all" and self._action is not None:
            action, self._action = self._action, None
            action()
        return None


def test_a_name_that_another_server_created_first_is_refused(store: Store) -> None:
    other = store.other()
    waiting = Waiting(store.repo)
    waiting.create("new")
    waiting.create("free")
    store.backend.plan = JustBefore(lambda: other.references.create_branch("new", None))
    assert waiting.outcomes() == ["ReferenceAlreadyExists", "free"]
    assert other.references.get("new").hash == NO_ANCESTOR.hex()


def test_a_reference_that_another_server_moved_first_is_not_dropped(store: Store) -> None:
    other = store.other()
    waiting = Waiting(store.repo)
    waiting.drop("dev")
    waiting.create("free")
    store.backend.plan = JustBefore(lambda: other.commit("dev", [put("b")], "b"))
    assert waiting.outcomes() == ["ReferenceConflict", "free"]
    with pytest.raises(ReferenceConflict, match="is not at expected hash"):
        hash = other.references.get("main").hash
        other.references.delete("dev", hash)


def test_an_interrupted_change_is_completed_by_the_next_one() -> None:
    memory = MemoryBackend()
    steps = Store(FaultyBackend, False, QUICK, World(), memory)
    steps.repo.references.create_branch("dropped", "main")
    steps.backend.plan = Upcoming({"apply": [None, Fault.BEFORE, None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        steps.repo.references.create_branch("created", "main")
    with pytest.raises(InjectedFault):
        steps.repo.references.delete("dropped")
    repo = Store(TogetherBackend, False, QUICK, World(), memory).repo
    with pytest.raises(ReferenceAlreadyExists):
        repo.references.create_branch("created", "main")
    with pytest.raises(ReferenceNotFound):
        repo.references.delete("dropped")
    repo.references.create_branch("dropped", "main")
    repo.references.delete("created")
    assert found_names(repo, ["created", "dropped"]) == {"dropped"}


def test_all_waiting_changes_fail_together_when_the_store_stays_busy() -> None:
    settings = replace(QUICK, commit_retries=3)
    store = Store(BusyTogetherBackend, False, settings, Time().world())
    waiting = Waiting(store.repo)
    for name in ("a", "b", "c"):
        waiting.create(name)
    plan = store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE] * 4})
    assert waiting.outcomes() == [StoreBusy.__name__] * 3
    assert plan.is_over
    assert found_names(store.other(), ["a", "b", "c"]) == set()


def test_a_race_that_is_always_lost_ends(store: Store) -> None:
    other = store.other()

    class Always:
        def fault(self, method: str, call: int) -> Fault | None:
            if method == "apply_all":
                other.references.create_branch(f"theirs-{call}", "main")
            return None

    repo = Repository(store.backend, replace(QUICK, commit_retries=3), Time().world())
    store.backend.plan = Always()
    with pytest.raises(RetriesExhausted):
        repo.references.create_branch("new", "main")
    assert found_names(other, ["new"]) == set()


def test_the_late_ref_of_an_older_reference_is_dropped_without_the_newer_name(store: Store) -> None:
    name = "refs/heads/dev"
    ref = store.memory.read_refs("", [name])[name]
    late = replace(ref, created_micros=ref.created_micros - 1)
    assert store.memory.swap_ref("", RefSwap(name, ref, late))
    store.repo.references.delete("dev")
    assert found_names(store.other(), ["dev"]) == {"dev"}


def test_a_drop_that_another_server_began_is_finished_but_not_made_twice(store: Store) -> None:
    waiting = Waiting(store.repo)
    waiting.drop("dev")
    steps = Store(FaultyBackend, False, QUICK, World(), store.memory)
    steps.backend.plan = Upcoming({"apply": [None, Fault.BEFORE]})
    with pytest.raises(InjectedFault):
        steps.repo.references.delete("dev")
    assert waiting.outcomes() == ["ReferenceNotFound"]
    assert store.memory.read_refs("", ["refs/heads/dev"]) == {}
    assert logged(store.other(), "dev")[0] == ("DELETE_REFERENCE", "")


def test_changes_in_steps_do_not_wait_for_a_busy_store_in_turn() -> None:
    store = Store(BusyBackend, False, QUICK, World())
    waiting = Waiting(store.repo)
    for name in ("a", "b", "c"):
        waiting.create(name)
    store.backend.plan = Upcoming({"read_refs": [Fault.BEFORE]})
    assert waiting.outcomes() == [StoreBusy.__name__] * 3
    assert found_names(store.other(), ["a", "b", "c"]) == set()


class RefusesLongNames(MemoryBackend):
    """A store that cannot hold long names, and does not say so before."""

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        if any(len(swap.name) > 100 for swap in swaps):
            raise ServiceUnavailable("the name is too long for the index")
        return super().apply_all(repo, rows, swaps, log)

    def try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        return self.apply_all(repo, rows, swaps, log)

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        if len(swap.name) > 100:
            raise ServiceUnavailable("the name is too long for the index")
        return super().apply(repo, rows, swap, log)


def test_a_change_that_the_store_refuses_fails_alone() -> None:
    repo = Repository(RefusesLongNames(), QUICK, World())
    waiting = Waiting(repo)
    for name in ("a", "long" * 30, "b"):
        waiting.create(name)
    assert waiting.outcomes() == ["a", "ServiceUnavailable", "b"]
    assert found_names(repo, ["a", "b"]) == {"a", "b"}


def test_it_is_unknown_whether_changes_were_made_if_the_store_fails_after_them() -> None:
    settings = replace(QUICK, commit_retries=3)
    store = Store(BusyTogetherBackend, False, settings, Time().world())
    change = store.repo.references.creation("BRANCH", "a", "main")
    lost: list[Fault | None] = [Fault.BEFORE] * 9
    store.backend.plan = Upcoming({"apply_all": [Fault.AFTER], "read_refs": [None, *lost]})
    tickets: list[Ticket] = []
    store.repo.references.start(change, at_once, tickets.append)
    assert isinstance(tickets[0].failure, StoreBusy)
    assert "It is unknown whether the change was made" in str(tickets[0].failure)
    assert found_names(store.other(), ["a"]) == {"a"}
