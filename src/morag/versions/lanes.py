"""Lanes: one queue per branch, so that many commits cost one write.

A request that finds its lane idle drives it. The driver takes the waiting requests in order,
applies one after the other on the head in memory, writes all new objects at once and moves the
reference once. A request that conflicts fails alone. While a batch is being written, the next one
gathers; its first request drives next. Requests are served in order of arrival: small commits never
overtake a large one. Between servers the swap of the reference decides.

In a server, a batch of small changes is written where its requests are read, on the event loop, if
the store can write without waiting. Only its sync takes a thread (`syncs.py`): threads that compute
would compete with the loop for the interpreter.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from morag.errors import ServiceUnavailable, StoreBusy
from morag.persist.persist import WouldWait
from morag.versions.tickets import Caller, Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.versions.syncs import Syncs
    from morag.versions.tickets import Queued, Request, Spawn, Ticket

_CROWDED_BATCHES: Final = 16


class Writer(Protocol):
    """Carries out the requests of a lane. Without `syncs` it may always wait."""

    @property
    def syncs(self) -> Syncs | None: ...

    def write(self, branch: str, batch: Sequence[Ticket], *, may_wait: bool) -> bool:
        """Settle every ticket of the batch; see `BatchWriter.write`."""
        ...


class Lane:
    """The queue of one branch in this process."""

    def __init__(
        self,
        writer: Writer,
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
        self._crowded = 0  # For how many more batches it counts as crowded.
        self._lock = Lock()

    @property
    def can_be_brief(self) -> bool:
        return self._writer.syncs is not None

    def run(self, request: Queued) -> Any:
        """Carry out the request, here or in the driving thread. Returns when it is durable."""
        ticket = Waiter(request)
        if not self.join([ticket]):
            try:
                ticket.wait()
            except BaseException:  # For example Ctrl-C: other requests must not wait for this one.
                self._leave(ticket)
                raise
        if not ticket.done:
            self.drive(ticket)
        return ticket.result()

    def start(self, request: Queued, spawn: Spawn, finished: Callable[[Ticket], None]) -> None:
        """Carry out the request without waiting for it.

        If the lane is idle, `spawn` gets a function that drives it. The driver calls `finished`,
        which must be quick: the rest of the batch waits for it.
        """
        ticket = Caller(request, self, spawn, finished)
        if self.join([ticket]):
            ticket.wake()

    def join(self, tickets: Sequence[Ticket]) -> bool:
        """Join the queue. True if the lane was idle: the caller must now drive it."""
        with self._lock:
            self._waiting.extend(tickets)
            idle, self._driven = not self._driven, True
            return idle

    def drive(self, until: Ticket) -> None:
        """Carry out batches until the given ticket is done, then hand over to the next ticket.

        However this ends, even by Ctrl-C, no request is left waiting for a driver that has stopped.
        """
        try:
            while not until.done:
                self._carry_out_batch(until)
        finally:
            with self._lock:
                if until in self._waiting:
                    self._waiting.remove(until)
                self._hand_over()

    def drive_briefly(self, until: Ticket, spawn: Spawn) -> None:
        """Carry out one batch, in which the given ticket is. A store that writes quickly is not
        waited for; for others, `spawn` runs this in a thread.

        `spawn` gets the sync. It gets the batch itself if that cannot be written without a wait.
        """
        batch: list[Ticket] = []
        syncs = self._writer.syncs
        assert syncs is not None, "the lane can be brief"
        try:
            must_sync = self._write_next(batch, until, may_wait=False)
            if must_sync:
                syncs.then(spawn, lambda failure: self._synced(batch, failure))
        except WouldWait:
            with self._lock:
                self._waiting.extendleft(reversed(batch))
            spawn(lambda: self.drive(until))
        except BaseException:  # The batch may be written, but not synced: no result holds.
            self._synced(batch, _driver_interrupted())
            raise
        else:
            if not must_sync:
                self._end(batch)

    def _synced(self, batch: Sequence[Ticket], failure: Exception | None) -> None:
        if failure is not None:
            for ticket in batch:  # A conflict as well: it may be with a commit of this batch.
                ticket.fail(failure)
        self._end(batch)

    def _end(self, batch: Sequence[Ticket]) -> None:
        try:
            _wake(batch)
        finally:
            with self._lock:
                self._hand_over()

    def _carry_out_batch(self, driver: Ticket) -> None:
        batch: list[Ticket] = []
        try:
            if self._crowded and driver.lets_others_run:
                self._let_others_run()
            self._write_next(batch, driver, may_wait=True)
        finally:
            _wake(batch)

    def _write_next(self, batch: list[Ticket], driver: Ticket, *, may_wait: bool) -> bool:
        """Move the next tickets into `batch` and write it. True if it must still be synced."""
        with self._lock:
            self._take_batch(batch, driver.most_operations)
            self._crowded = _CROWDED_BATCHES if len(batch) > 1 else max(0, self._crowded - 1)
        try:
            return self._writer.write(self._branch, batch, may_wait=may_wait)
        except WouldWait:
            raise
        except Exception as failure:  # noqa: BLE001 - Every ticket of the batch gets it.
            for ticket in batch:
                ticket.fail(failure)
            if isinstance(failure, StoreBusy):
                self._dismiss(failure)
            return False

    def _dismiss(self, failure: StoreBusy) -> None:
        """Fail all waiting requests, so that they do not wait for the unavailable store in turn."""
        with self._lock:
            dismissed = list(self._waiting)
            self._waiting.clear()
        # The failure of the batch may report an unknown outcome, its cause does not: these requests
        # were certainly not written.
        cause = failure.__cause__ if isinstance(failure.__cause__, StoreBusy) else failure
        for ticket in dismissed:
            ticket.fail(type(failure)(f"{cause}. Nothing was changed"))
            ticket.wake()

    def _hand_over(self) -> None:
        """Let the next request drive, if there is one. Call this with the lock."""
        self._driven = bool(self._waiting)
        if self._waiting:
            self._waiting[0].drives = True
            self._waiting[0].wake()

    def _leave(self, ticket: Ticket) -> None:
        """Stop waiting. A batch that has the ticket already continues; its result is ignored."""
        with self._lock:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                if ticket.drives:
                    self._hand_over()

    def _take_batch(self, batch: list[Ticket], most_operations: int) -> None:
        """Move the first waiting tickets into the batch, as far as they can be written together."""
        operations = 0
        while self._waiting and len(batch) < self._batch:
            request = self._waiting[0].request
            operations += request.operations
            if batch and not (
                request.shares_batch
                and batch[0].request.shares_batch
                and operations <= most_operations
            ):
                return
            batch.append(self._waiting.popleft())


def _wake(batch: Sequence[Ticket]) -> None:
    for ticket in batch:
        if not ticket.done:
            ticket.fail(_driver_interrupted())
        ticket.wake()


def _driver_interrupted() -> ServiceUnavailable:
    return ServiceUnavailable(
        "The server was interrupted while it wrote this change; check whether it was made"
    )


class Lanes:
    """The lanes of all branches. A lane exists while it is in use."""

    def __init__(self, writer: Writer, batch: int, let_others_run: Callable[[], None]) -> None:
        self._writer = writer
        self._batch = batch
        self._let_others_run = let_others_run
        self._lanes: WeakValueDictionary[str, Lane] = WeakValueDictionary()
        self._latest: Lane | None = None  # Keeps the lane alive: the next request is often for it.
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
            self._latest = lane
            return lane
