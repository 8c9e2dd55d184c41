"""Lanes: first come, first served; one write for many; one failure is one failure."""

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
from morag.logic.reflog import RefOperation
from morag.model.content import IcebergTable
from morag.model.keys import ContentKey
from morag.model.merging import MergeOptions
from morag.model.operations import Delete, Put
from morag.persist.cache import ObjectCache
from morag.persist.objects import Index
from morag.persist.persist import ObjectMissing, Persist
from morag.testing.counting import CountingBackend
from morag.versions.lanes import Lane
from morag.versions.repository import Repository
from morag.versions.tickets import Attempt, Ticket, Waiter
from morag.versions.world import World
from tests import spawning
from tests.safety.sound import check_sound, in_thread, in_threads, key, messages, put

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
    """Have all of them wait in the lane, then drive it until the last is done."""
    lane = repo._lanes.lane(branch)
    assert lane.join(tickets)
    lane.drive(tickets[-1])


def test_who_comes_first_commits_first(repo: Repository) -> None:
    """However they are cut into batches: 150 are three."""
    names = [f"{n:03}" for n in range(150)]
    run(repo, [ticket(repo, name) for name in names])
    assert messages(repo, "main") == names


def test_who_joins_while_a_batch_is_written_comes_after_it(repo: Repository) -> None:
    lane = repo._lanes.lane("main")
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


def test_a_conflict_fails_alone(repo: Repository) -> None:
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


def test_those_who_build_on_each_other_share_a_batch(
    repo: Repository, backend: CountingBackend
) -> None:
    run(repo, [ticket(repo, "there", put("a")), ticket(repo, "gone", Delete(key("a")))])
    assert backend.counts["apply"] == 1
    log = check_sound(repo, "main")
    assert [entry.meta.message for entry in log] == ["there", "gone"]
    assert list(repo.contents.keys("main")) == []


class MergeTicket(Waiter):
    """The request of a merge is made inside `Repository.merge`; this one takes its place."""

    class _Request:
        branch = "main"
        operation = RefOperation.MERGE
        who = ""
        shares_batch = False
        operations = 1

        def __init__(self, inner: Any) -> None:
            self.attempt, self.forget = inner.attempt, inner.forget

    def __init__(self, inner: Waiter) -> None:
        super().__init__(self._Request(inner.request))


def test_a_merge_has_a_batch_to_itself(repo: Repository, backend: CountingBackend) -> None:
    tickets = [ticket(repo, f"{n}") for n in range(7)]
    tickets[2], tickets[3] = MergeTicket(tickets[2]), MergeTicket(tickets[3])
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


def test_a_real_merge_does_not_share(repo: Repository) -> None:
    repo.commit("main", [put("a")], "a")
    repo.references.create_branch("side", "main")
    repo.commit("side", [put("b")], "b")
    lane = repo._lanes.lane("main")
    seen: list[bool] = []
    joined = lane.join

    def spy(tickets: Sequence[Ticket]) -> bool:
        seen.extend(ticket.request.shares_batch for ticket in tickets)
        return joined(tickets)

    lane.join = spy  # type: ignore[method-assign]
    repo.merge("side", "main")
    repo.transplant([repo.references.get("side").hash], "main", conflicts_as_result=True)
    repo.commit("main", [put("c")], "c")
    assert seen == [False, False, True]


def test_what_two_branches_prepare_stays_readable_until_both_are_done(
    backend: CountingBackend,
) -> None:
    """Equal changes of equal branches make equal segments; one branch may give up first."""
    persist = Persist(backend, ObjectCache(1 << 20), Settings(), time_ns)
    shared, own = Index(b"\x02\x00"), Index(b"\x02\x01\x01a\x00\x01b")
    persist.stage([shared, own])
    persist.stage([shared])
    persist.unstage([shared])
    assert persist.fetch_all(Index, [shared.id, own.id]) == [shared, own]
    persist.unstage([shared, own])
    with pytest.raises(ObjectMissing):
        persist.fetch(Index, shared.id)


# Drivers that die


class Request:
    branch = "main"
    operation = RefOperation.COMMIT
    who = ""
    shares_batch = False
    operations = 1

    def attempt(self, head: object) -> Attempt:
        raise NotImplementedError

    def forget(self, taken: object) -> None: ...


class Sharing(Request):
    shares_batch = True


class Writer:
    """Fails for some batches, by number; settles all others. Holds the first one up if asked."""

    def __init__(self, failures: dict[int, BaseException]) -> None:
        self.batches = 0
        self.go, self.writing = Event(), Event()
        self._failures = failures

    def write(self, branch: str, batch: Sequence[Ticket]) -> None:
        self.writing.set()
        assert self.go.wait(timeout=20)
        number, self.batches = self.batches, self.batches + 1
        if number in self._failures:
            raise self._failures[number]
        for ticket in batch:
            ticket.succeed("done")


@pytest.mark.parametrize("failure", [RuntimeError("driver"), KeyboardInterrupt(), SystemExit()])
@pytest.mark.parametrize("dying", [[0], [3], [0, 1, 2], [7], list(range(8))])
def test_a_driver_that_dies_hands_over(failure: BaseException, dying: list[int]) -> None:
    """Each batch is one request here, so as many fail as batches do, and nobody waits forever."""
    writer: Any = Writer(dict.fromkeys(dying, failure))
    lane = Lane(writer, "main", 10)

    def run() -> str:
        try:
            return str(lane.run(Request()))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what was planted.
            return type(error).__name__

    first = in_thread(run)
    assert writer.writing.wait(timeout=20)
    others = [in_thread(run) for _ in range(7)]
    writer.go.set()
    results = Counter(future.result(timeout=10) for future in [first, *others])
    assert results == Counter({type(failure).__name__: len(dying), "done": 8 - len(dying)})
    assert lane.run(Request()) == "done"
    assert writer.batches == 9


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_is_for_the_driver_alone(interrupt: BaseException) -> None:
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
    mine = Waiter(Request())
    assert lane.join([mine])

    def interrupted(batch: list[Ticket], most_operations: int) -> None:
        raise KeyboardInterrupt

    taking, lane._take_batch = lane._take_batch, interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        lane.drive(mine)
    lane._take_batch = taking  # type: ignore[method-assign]
    assert lane.run(Request()) == "done"


def test_an_object_that_is_too_large_fails_its_own_request_alone() -> None:
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


def test_many_threads_on_few_branches_all_come_through(repo: Repository) -> None:
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
            mine = [m for m in messages(repo, branch) if m.startswith(f"{me}-")]
            assert mine == sorted(mine, key=lambda m: int(m.partition("-")[2]))


# Without waiting


def test_nobody_waits_for_a_commit_that_was_started(repo: Repository) -> None:
    """All callers share one thread, which is free as soon as the lane is empty."""
    works = spawning.Works()
    done: list[str] = []
    for n in range(100):
        request = repo.commit_request("main", [put(f"{n:03}")], f"{n:03}")
        repo.start(request, works.spawn, lambda ticket: done.append(ticket.result().hash))
    assert len(works.waiting) == 1, "one of them drives"
    assert done == []
    while works.waiting:
        works.run_one()
    assert len(done) == 100
    assert messages(repo, "main") == [f"{n:03}" for n in range(100)]


def test_who_waits_in_a_thread_and_who_is_called_back_share_a_lane(repo: Repository) -> None:
    called = Counter[str]()
    everybody = Event()

    def told(ticket: Ticket) -> None:
        called[ticket.result().hash] += 1
        if len(called) == 50:
            everybody.set()

    def both(n: int) -> None:
        request = repo.commit_request("main", [put(f"a{n}")], f"a{n}")
        repo.start(request, spawning.in_thread, told)
        repo.commit("main", [put(f"w{n}")], f"w{n}")

    in_threads([partial(both, n) for n in range(50)])
    assert everybody.wait(20)
    assert set(called.values()) == {1}
    assert Counter(messages(repo, "main")).total() == 100


def test_a_failure_is_told_to_the_one_who_is_called_back(repo: Repository) -> None:
    failures: list[BaseException | None] = []
    request = repo.commit_request("main", [Delete(key("nope"))], "fails")
    repo.start(request, spawning.at_once, lambda ticket: failures.append(ticket.failure))
    assert [type(failure) for failure in failures] == [ReferenceConflict]


def test_a_driver_that_must_be_brief_leaves_a_large_commit_to_its_own_driver(
    repo: Repository,
) -> None:
    works = spawning.Works()
    sizes = (1, 100, 100, 500, 2)
    for n, size in enumerate(sizes):
        puts = [put(f"{n}-{i}") for i in range(size)]
        request = repo.commit_request("main", puts, f"{n}")
        repo.start(request, works.spawn, lambda ticket: ticket.result())
    told = []
    while works.waiting:
        works.run_one()
        told.append(len(messages(repo, "main")))
    assert told == [2, 3, 5], "the large one may take along what follows it"
    assert works.were_brief == [True, True, False]
    assert messages(repo, "main") == [f"{n}" for n in range(len(sizes))]


def test_a_merge_is_never_brief(repo: Repository) -> None:
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [put("a")], "a")
    works = spawning.Works()
    request = repo.merge_request("dev", "main", MergeOptions())
    repo.start(request, works.spawn, lambda ticket: ticket.result())
    assert works.were_brief == [False]
    works.run_one()
    assert not works.waiting
