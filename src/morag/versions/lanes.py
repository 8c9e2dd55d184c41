"""Lanes: one queue per branch, so that many commits cost one write.

Whoever finds a lane idle drives it. The driver takes what waits, in order, applies one request
after the other on the head in memory, writes all new objects at once and moves the reference once.
A request that conflicts fails alone. While a batch is being written, the next one gathers; its
first request drives next. First come, first served: a large commit is never overtaken by small
ones. Between servers the swap of the reference decides, as ever.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct

from morag.backend.base import UNIQUE_KIND
from morag.errors import (
    BadRequest,
    MoragError,
    ReferenceNotFound,
    RetriesExhausted,
    ServiceUnavailable,
    StoreBusy,
)
from morag.logic import history
from morag.model.names import full_name
from morag.persist.objects import Commit, Obj
from morag.persist.persist import UniqueTaken

if TYPE_CHECKING:
    from morag.backend.base import ObjId, Ref, Row
    from morag.logic.references import References
    from morag.logic.reflog import RefLog, RefOperation
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

Spawn: TypeAlias = Callable[[Callable[[], None]], object]
"""Have some work done by another thread."""

_log = logging.getLogger(__name__)

_CROWD_LASTS: Final = 16
_MOST_OPERATIONS: Final = 20_000  # In one batch, unless a single request has more.


class Attempt(Struct, frozen=True):
    """What a request would do to the head it was given: nothing, if there are no commits."""

    commits: tuple[Commit, ...]
    objects: Sequence[Obj]
    result: Any


class Request(Protocol):
    """A change of a branch that can be tried on any head."""

    @property
    def branch(self) -> str: ...

    @property
    def operation(self) -> RefOperation: ...

    @property
    def who(self) -> str: ...

    @property
    def shares_batch(self) -> bool:
        """Whether it may move the reference together with its neighbours, as one move."""
        ...

    @property
    def operations(self) -> int:
        """How much work it is, about: a batch must fit into memory."""
        ...

    def attempt(self, head: Commit | None) -> Attempt: ...

    def forget(self, taken: frozenset[ObjId]) -> None: ...


class Ticket:
    """A request in a lane, and in the end what became of it."""

    __slots__ = ("_result", "_turn", "done", "drives", "failure", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        self.drives = False
        self.failure: BaseException | None = None
        self._result: Any = None
        self._turn = Lock()
        self._turn.acquire()

    def succeed(self, result: Any) -> None:
        self._result = result
        self.done = True

    def fail(self, failure: BaseException) -> None:
        self.failure = failure
        self.done = True

    def wake(self) -> None:
        """It is done, or it is this ticket's turn to drive."""
        self._turn.release()

    def wait(self) -> None:
        self._turn.acquire()

    def result(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self._result


class _Caller(Ticket):
    """A request whose client does not hold a thread: it is called back when all is done."""

    __slots__ = ("_finished", "_lane", "_spawn")

    def __init__(
        self, request: Request, lane: Lane, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        super().__init__(request)
        self._lane = lane
        self._spawn = spawn
        self._finished = finished

    def wake(self) -> None:
        if self.done:
            try:
                self._finished(self)
            except Exception:  # noqa: BLE001 - the others of the batch must be woken all the same.
                _log.exception("Nobody could be told what became of a change")
        else:
            self._spawn(lambda: self._lane.drive(self))


class Lane:
    """The queue of one branch in this process."""

    def __init__(
        self,
        writer: BatchWriter,
        branch: str,
        batch: int,
        let_others_run: Callable[[], None] = lambda: None,
    ) -> None:
        self._writer = writer
        self._branch = branch
        self._batch = batch
        self._let_others_run = let_others_run
        self._waiting: deque[Ticket] = deque()
        self._driven = False
        self._crowded = 0  # For how many batches more it counts as crowded.
        self._lock = Lock()

    def run(self, request: Request) -> Any:
        """Have the request carried out, by whoever drives. Returns when it is durable."""
        ticket = Ticket(request)
        if not self.join([ticket]):
            try:
                ticket.wait()
            except BaseException:  # Ctrl-C, for one: the others must not wait for us.
                self._leave(ticket)
                raise
        if not ticket.done:
            self.drive(ticket)
        return ticket.result()

    def start(self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        """Have the request carried out without waiting for it.

        If nobody drives, `spawn` has a thread do so. `finished` is called from whichever thread
        drives by then, and must be quick: the others of the batch wait for it.
        """
        ticket = _Caller(request, self, spawn, finished)
        if self.join([ticket]):
            ticket.wake()

    def join(self, tickets: Sequence[Ticket]) -> bool:
        """Queue up. True if the lane was idle: the caller must now drive it."""
        with self._lock:
            self._waiting.extend(tickets)
            idle, self._driven = not self._driven, True
            return idle

    def drive(self, until: Ticket) -> None:
        """Carry out batches until the given ticket is done, then hand over to the next in line.

        Whatever ends it, Ctrl-C included: nobody is left waiting for a driver that is gone.
        """
        try:
            while not until.done:
                self._carry_out_batch()
        finally:
            with self._lock:
                if until in self._waiting:
                    self._waiting.remove(until)
                self._hand_over()

    def _carry_out_batch(self) -> None:
        batch: list[Ticket] = []
        try:
            # Where there is a crowd, those on their way join this batch. Else a small commit would
            # often go alone, and a large one, which takes longer to come back, miss every second.
            if self._crowded:
                self._let_others_run()
            with self._lock:
                self._take_batch(batch)
                self._crowded = _CROWD_LASTS if len(batch) > 1 else max(0, self._crowded - 1)
            self._writer.write(self._branch, batch)
        except Exception as failure:  # noqa: BLE001 - goes to those who wait for it.
            for ticket in batch:
                ticket.fail(failure)
        finally:
            for ticket in batch:
                if not ticket.done:
                    ticket.fail(_driver_interrupted())
                ticket.wake()

    def _hand_over(self) -> None:
        """Let the next in line drive, if there is one. Call it with the lock."""
        self._driven = bool(self._waiting)
        if self._waiting:
            self._waiting[0].drives = True
            self._waiting[0].wake()

    def _leave(self, ticket: Ticket) -> None:
        """Give up waiting. A batch that holds the ticket goes on; nobody asks for its result."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.drives:
                    self._hand_over()

    def _take_batch(self, batch: list[Ticket]) -> None:
        """Move the first that wait into the batch, as far as they may be written together."""
        operations = 0
        while self._waiting and len(batch) < self._batch:
            request = self._waiting[0].request
            operations += request.operations
            if batch and not (
                request.shares_batch
                and batch[0].request.shares_batch
                and operations <= _MOST_OPERATIONS
            ):
                return
            batch.append(self._waiting.popleft())


def _driver_interrupted() -> ServiceUnavailable:
    return ServiceUnavailable(
        "The thread that wrote this change was interrupted; look whether it was made"
    )


class BatchWriter:
    """Writes batches: the only place where a branch moves forward."""

    def __init__(
        self, persist: Persist, references: References, ref_log: RefLog, retries: Retries
    ) -> None:
        self._persist = persist
        self._references = references
        self._ref_log = ref_log
        self._retries = retries

    def write(self, branch: str, batch: Sequence[Ticket]) -> None:
        """Settle every ticket of the batch."""
        name = full_name("BRANCH", branch)
        pending: BaseException | None = None
        tries = _Tries()
        try:
            for _ in self._retries.attempts(batch[0].request.operation.value.lower()):
                try:
                    ref = self._references.find(name)
                    if ref is None:
                        raise self._no_such_branch(branch)
                    if self._write_once(ref, batch, tries):
                        return
                except UniqueTaken as taken:
                    tries.claims -= taken.ids
                    for ticket in batch:
                        ticket.request.forget(taken.ids)
                except StoreBusy as busy:
                    pending = busy
        except RetriesExhausted as exhausted:
            raise exhausted from pending

    def _no_such_branch(self, name: str) -> MoragError:
        if self._references.find(full_name("TAG", name)) is not None:
            return BadRequest(f"'{name}' is a tag; only a branch can be changed")
        return ReferenceNotFound.named(name)

    def _write_once(self, ref: Ref, batch: Sequence[Ticket], tries: _Tries) -> bool:
        """False if another server moved the reference: the batch is to be tried on the new head."""
        for last, outcomes in tries.unsettled:
            # It was published after all, but we could not see it then. Not a second time!
            if history.was_published(self._persist, last, ref.pointer):
                _settle(outcomes)
                return True
        head = history.head_commit(self._persist, ref.pointer)
        outcomes = []
        objects: list[Obj] = []
        rows: list[Row] = []
        commits: list[Commit] = []
        try:
            for ticket in batch:
                try:
                    attempt = ticket.request.attempt(head)
                    new = self._persist.encoded(attempt.objects)
                except Exception as failure:  # noqa: BLE001 - it fails this ticket alone.
                    outcomes.append((ticket, failure))
                    continue
                outcomes.append((ticket, attempt))
                if attempt.commits:
                    # The next request builds on this commit, which nobody else can read yet.
                    self._persist.stage(attempt.objects)
                    objects += attempt.objects
                    rows += new
                    commits += attempt.commits
                    head = attempt.commits[-1]
            if commits:
                tries.unsettled.append((commits[-1], outcomes))
                if not self._publish(ref, batch, commits, objects, rows, tries):
                    return False
        finally:
            self._persist.unstage(objects)
        _settle(outcomes)
        return True

    def _publish(
        self,
        ref: Ref,
        batch: Sequence[Ticket],
        commits: Sequence[Commit],
        objects: Sequence[Obj],
        rows: Sequence[Row],
        tries: _Tries,
    ) -> bool:
        rows = self._without_own_claims(rows, tries)
        last = commits[-1]
        who = ", ".join(dict.fromkeys(t.request.who for t in batch if t.request.who))
        operation = batch[0].request.operation
        line = self._ref_log.line(ref.name, operation, ref.pointer, last.id, who, len(commits))
        try:
            if self._persist.publish(objects, ref, last.id, [line], rows) is not None:
                return True
        except UniqueTaken:
            raise
        except Exception:
            # The reply is lost, but perhaps not the deed.
            if history.is_published(self._persist, ref.name, last):
                return True
            raise
        return history.is_published(self._persist, ref.name, last)

    def _without_own_claims(self, rows: Sequence[Row], tries: _Tries) -> Sequence[Row]:
        """A claim that an earlier try of ours has stored must not stand in our way now."""
        claims = {row.id for row in rows if row.kind == UNIQUE_KIND}
        own = claims & tries.claims
        tries.claims |= claims
        stored = self._persist.find(list(own)) if own else {}
        return [row for row in rows if row.id not in stored] if stored else rows


_Outcomes: TypeAlias = list[tuple[Ticket, Attempt | Exception]]


class _Tries:
    """What became of a batch so far: tries that may have been published, and ids they claimed."""

    __slots__ = ("claims", "unsettled")

    def __init__(self) -> None:
        self.unsettled: list[tuple[Commit, _Outcomes]] = []
        self.claims: set[ObjId] = set()


def _settle(outcomes: _Outcomes) -> None:
    for ticket, outcome in outcomes:
        if isinstance(outcome, Attempt):
            ticket.succeed(outcome.result)
        else:
            ticket.fail(outcome)


class Lanes:
    """The lanes of all branches, each there for as long as somebody uses it."""

    def __init__(self, writer: BatchWriter, batch: int, let_others_run: Callable[[], None]) -> None:
        self._writer = writer
        self._batch = batch
        self._let_others_run = let_others_run
        self._lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()
        self._lock = Lock()

    def run(self, request: Request) -> Any:
        return self.lane(request.branch).run(request)

    def start(self, request: Request, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        self.lane(request.branch).start(request, spawn, finished)

    def lane(self, branch: str) -> Lane:
        with self._lock:
            lane = self._lanes.get(branch)
            if lane is None:
                lane = Lane(self._writer, branch, self._batch, self._let_others_run)
                self._lanes[branch] = lane
            return lane
