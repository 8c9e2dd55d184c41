"""Tickets: changes of a branch that wait in its lane, and their results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import Struct

from morag.format.objects import Commit, Obj

if TYPE_CHECKING:
    from morag.format.records import ObjId
    from morag.logic.reflog import RefOperation

_log = logging.getLogger(__name__)

_MOST_OPERATIONS: Final = 20_000  # In one batch, unless a single request has more.
_MOST_BRIEF_OPERATIONS: Final = 128


class Spawn(Protocol):
    """Runs work in another thread, while the caller continues.

    Brief work takes milliseconds at most, and never waits for a store that writes quickly
    (`Repository.writes_quickly`): it may run on an event loop. Near work waits for no store at all,
    and runs where requests come in. This function must not raise: requests would wait forever for
    work that nobody does.
    """

    def __call__(
        self, work: Callable[[], None], *, brief: bool = False, near: bool = False
    ) -> object: ...


class Proposal(Struct, frozen=True):
    """The result of a request tried on one head. Without commits, nothing changes."""

    commits: tuple[Commit, ...]
    objects: Sequence[Obj]
    result: Any


class Queued(Protocol):
    """The part of a request that its lane looks at."""

    @property
    def shares_batch(self) -> bool:
        """Whether it may share one move of the reference with other requests."""
        ...

    @property
    def operations(self) -> int:
        """The approximate amount of work: a batch must fit into memory."""
        ...


class Request(Queued, Protocol):
    """A change of a branch that can be tried on any head."""

    @property
    def branch(self) -> str: ...

    @property
    def operation(self) -> RefOperation: ...

    @property
    def who(self) -> str: ...

    @property
    def index_bytes(self) -> int:
        """About how many bytes it adds to the index of a commit."""
        ...

    def is_brief_on(self, head: Commit | None) -> bool:
        """Whether `propose` takes milliseconds at most on this head."""
        ...

    def propose(self, head: Commit | None) -> Proposal: ...

    def forget(self, taken: frozenset[ObjId]) -> None: ...


class Ticket:
    """A request in a lane, and later its result."""

    lets_others_run: ClassVar = False
    __slots__ = ("_result", "done", "drives", "failure", "most_operations", "request")

    def __init__(self, request: Queued) -> None:
        self.request: Any = request  # The writer of the lane knows its type.
        self.done = False
        self.drives = False
        self.most_operations = _MOST_OPERATIONS  # The limit of a batch that this ticket drives.
        self.failure: BaseException | None = None
        self._result: Any = None

    def succeed(self, result: Any) -> None:
        self._result = result
        self.done = True

    def fail(self, failure: BaseException) -> None:
        self.failure = failure
        self.done = True

    def wake(self) -> None:
        """Called when the ticket is done, or when it must drive."""
        raise NotImplementedError

    def result(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self._result


class Waiter(Ticket):
    """A request whose thread waits for it.

    On a crowded lane its driver first lets other threads run, so that they can join the batch.
    Otherwise a small commit would often be written alone, and a large one, which takes longer to
    come back, would miss every second batch.
    """

    __slots__ = ("_turn",)

    lets_others_run = True

    def __init__(self, request: Queued) -> None:
        super().__init__(request)
        self._turn = Lock()
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()

    def wait(self) -> None:
        self._turn.acquire()


class Drivable(Protocol):
    """The lane of a ticket."""

    @property
    def can_be_brief(self) -> bool:
        """Whether `drive_briefly` is possible."""
        ...

    def drive(self, until: Ticket) -> None: ...

    def drive_briefly(self, until: Ticket, spawn: Spawn) -> None: ...


class Caller(Ticket):
    """A request without a waiting thread: it calls back when it is done."""

    __slots__ = ("_brief", "_finished", "_lane", "_spawn")

    def __init__(
        self, request: Queued, lane: Drivable, spawn: Spawn, finished: Callable[[Ticket], None]
    ) -> None:
        super().__init__(request)
        self._lane = lane
        self._spawn = spawn
        self._finished = finished
        self._brief = lane.can_be_brief and request.operations <= _MOST_BRIEF_OPERATIONS
        if self._brief:
            self.most_operations = _MOST_BRIEF_OPERATIONS

    def wake(self) -> None:
        if self.done:
            try:
                self._finished(self)
            except Exception:  # noqa: BLE001 - The rest of the batch must be woken, too.
                _log.exception("The result of a change could not be delivered")
        elif self._brief:
            self._spawn(lambda: self._lane.drive_briefly(self, self._spawn), brief=True)
        else:
            self._spawn(lambda: self._lane.drive(self))
