"""Lanes: commits in order of arrival, one write per batch, and failures of single requests."""

from __future__ import annotations

from collections import Counter
from functools import partial
from threading import Event
from time import time_ns
from typing import TYPE_CHECKING, Any

import pytest

import morag
from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.errors import BadRequest, ReferenceConflict, ReferenceNotFound, ServiceUnavailable
from morag.format.objects import Index
from morag.logic.reflog import RefOperation
from morag.model.content import IcebergTable
from morag.model.keys import ContentKey
from morag.model.operations import Delete, Put
from morag.persist.cache import ObjectCache
from morag.persist.persist import ObjectMissing, Persist
from morag.versions.lanes import Lane
from morag.versions.repository import Repository
from morag.versions.tickets import Proposal, Ticket, Waiter
from morag.versions.world import World
from tests import spawners
from tests.backend.counting import CountingBackend
from tests.safety.history_checks import check_sound, in_thread, in_threads, key, messages, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.operations import Operation

pytestmark = pytest.mark.timeout(30)


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend(MemoryBackend())


@pytest.fixture
def repo(backend: CountingBackend) -> Repository:
    repo = Repository(backend, Settings(lane_batch=64), World())
    backend.reset()
    return repo


def ticket(repo: Repository, message: str, *operations: Operation, branch: str = "main") -> Waiter:
    return Waiter(repo.commit_request(branch, operations or [put(message)], message))


def run(repo: Repository, tickets: Sequence[Ticket], branch: str = "main") -> None:
    """Queue all tickets in the lane, then drive it until the last one is done."""
    lane = repo._writers().lanes.lane(branch)
    assert lane.join(tickets)
    lane.drive(tickets[-1])


def test_requests_commit_in_order_of_arrival(repo: Repository) -> None:
    """150 requests need three batches."""
    names = [f"{n:03}" for n in range(150)]
    run(repo, [ticket(repo, name) for name in names])
    assert messages(repo, "main") == names


def test_a_request_that_joins_during_a_write_is_in_the_next_batch(repo: Repository) -> None:
    lane = repo._writers().lanes.lane("main")
    first, late = ticket(repo, "first"), ticket(repo, "late")
    assert lane.join([first])
    assert not lane.join([late])

    def drive() -> None:
        late.wait()
        if not late.done:
            lane.drive(late)

    driving = in_thread(drive)
    lane.drive(first)
    driving.result(timeout=10)
    late.result()
    assert messages(repo, "main") == ["first", "late"]


def test_a_batch_is_one_swap_and_one_line(repo: Repository, backend: CountingBackend) -> None:
    run(repo, [ticket(repo, f"{n}") for n in range(40)])
    assert backend.counts["apply"] == 1
    assert backend.counts["swap_ref"] == backend.counts["insert_rows"] == 0
    (line,) = [move for move in repo.references.moves().items if move.operation == "COMMIT"]
    assert line.commits == 40
    assert line.hash_after == repo.references.get("main").hash


def test_a_batch_is_no_larger_than_its_limit(repo: Repository, backend: CountingBackend) -> None:
    run(repo, [ticket(repo, f"{n}") for n in range(150)])
    assert backend.counts["apply"] == 3
    moves = repo.references.moves().items
    assert [move.commits for move in moves if move.operation == "COMMIT"] == [22, 64, 64]


def test_a_conflict_fails_one_request(repo: Repository) -> None:
    repo.commit("main", [put("a")], "start")
    head = repo.references.get("main").hash
    tickets = [
        ticket(repo, "good", put("b")),
        Waiter(repo.commit_request("main", [put("b")], "bad", expected=head)),
        ticket(repo, "gone", Delete(key("nothing"))),
        ticket(repo, "also good", put("c")),
    ]
    run(repo, tickets)
    assert messages(repo, "main") == ["start", "good", "also good"]
    for failed in tickets[1:3]:
        with pytest.raises(ReferenceConflict):
            failed.result()
    check_sound(repo, "main")


def test_a_batch_of_conflicts_writes_nothing(repo: Repository, backend: CountingBackend) -> None:
    tickets = [ticket(repo, "gone", Delete(key(f"{n}"))) for n in range(5)]
    run(repo, tickets)
    assert all(isinstance(ticket.failure, ReferenceConflict) for ticket in tickets)
    assert backend.counts["apply"] == 0


def test_dependent_requests_share_a_batch(repo: Repository, backend: CountingBackend) -> None:
    run(repo, [ticket(repo, "there", put("a")), ticket(repo, "gone", Delete(key("a")))])
    assert backend.counts["apply"] == 1
    log = check_sound(repo, "main")
    assert [entry.meta.message for entry in log] == ["there", "gone"]
    assert list(repo.contents.keys("main")) == []


class Request:
    branch = "main"
    operation = RefOperation.COMMIT
    who = ""
    shares_batch = False
    operations = 1

    def is_brief_on(self, head: object) -> bool:
        return True

    def propose(self, head: object) -> Proposal:
        raise NotImplementedError

    def forget(self, taken: object) -> None: ...


class MergeRequest(Request):
    """A commit that claims to be a merge: `Repository.merge` makes its own request."""

    operation = RefOperation.MERGE

    def __init__(self, commit: Waiter) -> None:
        self._commit: Any = commit.request

    def propose(self, head: object) -> Proposal:
        proposal: Proposal = self._commit.propose(head)
        return proposal

    def forget(self, taken: object) -> None:
        self._commit.forget(taken)


def test_a_merge_has_a_batch_to_itself(repo: Repository, backend: CountingBackend) -> None:
    tickets = [ticket(repo, f"{n}") for n in range(7)]
    tickets[2:4] = [Waiter(MergeRequest(ticket)) for ticket in tickets[2:4]]
    run(repo, tickets)
    moves = [m for m in repo.references.moves().items if m.operation != "CREATE_REFERENCE"][::-1]
    assert [(m.operation, m.commits) for m in moves] == [
        ("COMMIT", 2),
        ("MERGE", 1),
        ("MERGE", 1),
        ("COMMIT", 3),
    ]
    assert messages(repo, "main") == [f"{n}" for n in range(7)]
    assert backend.counts["apply"] == 4


def test_merges_and_transplants_do_not_share_a_batch(repo: Repository) -> None:
    repo.commit("main", [put("a")], "a")
    repo.references.create_branch("side", "main")
    repo.commit("side", [put("b")], "b")
    lane = repo._writers().lanes.lane("main")
    shared: list[bool] = []
    joined = lane.join

    def spy(tickets: Sequence[Ticket]) -> bool:
        shared.extend(ticket.request.shares_batch for ticket in tickets)
        return joined(tickets)

    lane.join = spy  # type: ignore[method-assign]
    repo.merge("side", "main")
    repo.transplant([repo.references.get("side").hash], "main", conflicts_as_result=True)
    repo.commit("main", [put("c")], "c")
    assert shared == [False, False, True]


def test_objects_staged_by_two_branches_stay_readable_until_both_are_done(
    backend: CountingBackend,
) -> None:
    """Equal changes on two branches make equal segments; one branch may abandon them first."""
    persist = Persist(backend, ObjectCache(1 << 20), Settings(), time_ns)
    shared, own = Index(b"\x02\x00"), Index(b"\x02\x01\x01a\x00\x01b")
    persist.stage([shared, own])
    persist.stage([shared])
    persist.unstage([shared])
    assert persist.fetch_all(Index, [shared.id, own.id]) == [shared, own]
    persist.unstage([shared, own])
    with pytest.raises(ObjectMissing):
        persist.fetch(Index, shared.id)


# Drivers that fail


class Sharing(Request):
    shares_batch = True


class Writer:
    """Fails for batches with the given numbers and settles all others, once `go` is set."""

    def __init__(self, failures: dict[int, BaseException]) -> None:
        self.batches = 0
        self.go, self.writing = Event(), Event()
        self._failures = failures

    def write(self, branch: str, batch: Sequence[Ticket], *, may_wait: bool) -> bool:
        self.writing.set()
        assert self.go.wait(timeout=20)
        number, self.batches = self.batches, self.batches + 1
        if number in self._failures:
            raise self._failures[number]
        for ticket in batch:
            ticket.succeed("done")
        return False


@pytest.mark.parametrize("failure", [RuntimeError("driver"), KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("failing", [[0], [3], [0, 1, 2], [7], list(range(8))])
def test_the_next_ticket_drives_after_a_driver_fails(
    failure: BaseException, failing: list[int]
) -> None:
    """Each batch has one request, so one request fails per failing batch. None waits forever."""
    writer: Any = Writer(dict.fromkeys(failing, failure))
    lane = Lane(writer, "main", 10)

    def run() -> str:
        try:
            return str(lane.run(Request()))
        except BaseException as error:  # noqa: BLE001 - The test compares its type.
            return type(error).__name__

    first = in_thread(run)
    assert writer.writing.wait(timeout=20)
    others = [in_thread(run) for _ in range(7)]
    writer.go.set()
    results = Counter(future.result(timeout=10) for future in [first, *others])
    assert results == Counter({type(failure).__name__: len(failing), "done": 8 - len(failing)})
    assert lane.run(Request()) == "done"
    assert writer.batches == 9


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_affects_the_driver_only(interrupt: BaseException) -> None:
    writer: Any = Writer({0: interrupt})
    writer.go.set()
    lane = Lane(writer, "main", 10)
    tickets = [Waiter(Sharing()) for _ in range(4)]
    lane.join(tickets)
    with pytest.raises(type(interrupt)):
        lane.drive(tickets[0])
    for each in tickets[1:]:
        with pytest.raises(ServiceUnavailable):
            each.result()
    assert lane.run(Request()) == "done"


def test_a_driver_that_is_interrupted_before_its_turn_leaves_the_queue() -> None:
    """An interrupt can come at any line, also before the driver has taken its batch."""
    writer: Any = Writer({})
    writer.go.set()
    lane = Lane(writer, "main", 10)
    waiter = Waiter(Request())
    assert lane.join([waiter])

    def interrupted(batch: list[Ticket], most_operations: int) -> None:
        raise KeyboardInterrupt

    take_batch, lane._take_batch = lane._take_batch, interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        lane.drive(waiter)
    lane._take_batch = take_batch  # type: ignore[method-assign]
    assert lane.run(Request()) == "done"


def test_an_object_that_is_too_large_fails_one_request() -> None:
    settings = Settings(max_object_bytes=20_000)
    with morag.open("memory:", settings) as repo:
        large = IcebergTable(
            metadata_location="x" * 30_000,
            snapshot_id=1,
            schema_id=0,
            spec_id=0,
            sort_order_id=0,
        )
        large_put = Put(ContentKey.of("large"), large)
        tickets = [
            ticket(repo, "before"),
            Waiter(repo.commit_request("main", [large_put], "large")),
            ticket(repo, "after"),
        ]
        run(repo, tickets)
        with pytest.raises(BadRequest, match="larger than the store allows"):
            tickets[1].result()
        assert messages(repo, "main") == ["before", "after"]


def test_a_batch_ends_where_it_would_hold_too_many_operations() -> None:
    class Heavy(Sharing):
        operations = 15_000

    writer: Any = Writer({})
    writer.go.set()
    lane = Lane(writer, "main", 10)
    tickets = [Waiter(Heavy()) for _ in range(3)]
    lane.join(tickets)
    lane.drive(tickets[-1])
    assert writer.batches == 3


def test_a_failed_write_fails_its_batch_and_no_other(repo: Repository) -> None:
    repo.references.create_branch("gone", None)
    tickets = [ticket(repo, f"{n}", branch="gone") for n in range(3)]
    repo.references.delete("gone")
    run(repo, tickets, "gone")
    for each in tickets:
        with pytest.raises(ReferenceNotFound):
            each.result()
    repo.references.create_branch("gone", None)
    repo.commit("gone", [put("a")], "again")
    assert messages(repo, "gone") == ["again"]


def test_all_commits_of_many_threads_on_few_branches_succeed(repo: Repository) -> None:
    branches = [f"b{n}" for n in range(3)]
    for branch in branches:
        repo.references.create_branch(branch, None)

    def work(me: int) -> None:
        for n in range(15):
            branch = branches[(me + n) % 3]
            repo.commit(branch, [put(f"{me}-{n}")], f"{me}-{n}")

    in_threads((partial(work, me) for me in range(12)), timeout_seconds=25)
    everything = [message for branch in branches for message in messages(repo, branch)]
    assert sorted(everything) == sorted(f"{me}-{n}" for me in range(12) for n in range(15))
    for branch in branches:
        for me in range(12):
            of_thread = [m for m in messages(repo, branch) if m.startswith(f"{me}-")]
            assert of_thread == sorted(of_thread, key=lambda m: int(m.partition("-")[2]))


# Callbacks


def test_starting_a_commit_does_not_wait(repo: Repository) -> None:
    """All callers share one task, which ends as soon as the lane is empty."""
    spawner = spawners.ManualSpawner()
    done: list[str] = []
    for n in range(100):
        request = repo.commit_request("main", [put(f"{n:03}")], f"{n:03}")
        repo.start(request, spawner.spawn, lambda ticket: done.append(ticket.result().hash))
    assert len(spawner.waiting) == 1, "only one caller drives the lane"
    assert done == []
    while spawner.waiting:
        spawner.run_one()
    assert len(done) == 100
    assert messages(repo, "main") == [f"{n:03}" for n in range(100)]


def test_waiting_threads_and_callbacks_share_a_lane(repo: Repository) -> None:
    called = Counter[str]()
    all_called = Event()

    def count(ticket: Ticket) -> None:
        called[ticket.result().hash] += 1
        if len(called) == 50:
            all_called.set()

    def both(n: int) -> None:
        request = repo.commit_request("main", [put(f"a{n}")], f"a{n}")
        repo.start(request, spawners.in_thread, count)
        repo.commit("main", [put(f"w{n}")], f"w{n}")

    in_threads([partial(both, n) for n in range(50)])
    assert all_called.wait(20)
    assert set(called.values()) == {1}
    assert Counter(messages(repo, "main")).total() == 100


def test_a_callback_receives_the_failure(repo: Repository) -> None:
    failures: list[BaseException | None] = []
    request = repo.commit_request("main", [Delete(key("nope"))], "fails")
    repo.start(request, spawners.at_once, lambda ticket: failures.append(ticket.failure))
    assert [type(failure) for failure in failures] == [ReferenceConflict]


def test_a_driver_that_must_be_brief_leaves_a_large_commit_to_its_own_driver(
    repo: Repository,
) -> None:
    spawner = spawners.ManualSpawner()
    sizes = (1, 100, 100, 500, 2)
    for n, size in enumerate(sizes):
        puts = [put(f"{n}-{i}") for i in range(size)]
        request = repo.commit_request("main", puts, f"{n}")
        repo.start(request, spawner.spawn, lambda ticket: ticket.result())
    lengths = []
    while spawner.waiting:
        spawner.run_one()
        lengths.append(len(messages(repo, "main")))
    assert lengths == [2, 3, 5], "the driver of a large commit also takes the commits behind it"
    assert spawner.were_brief == [True, True, False]
    assert messages(repo, "main") == [f"{n}" for n in range(len(sizes))]
