"""A change of a branch on its way through a lane: what it wants, who waits, what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from msgspec import Struct

from morag.persist.objects import Commit, Obj

if TYPE_CHECKING:
    from morag.backend.base import ObjId
    from morag.logic.reflog import RefOperation

_log = logging.getLogger(__name__)

_MOST_OPERATIONS: Final = 20_000  # In one batch, unless a single request has more.
_MOST_BRIEF_OPERATIONS: Final = 128


class Spawn(Protocol):
    """Have some work done, while the caller goes on.

    What is brief takes milliseconds at most, apart from waiting for the store.
    """

    def __call__(self, work: Callable[[], None], *, brief: bool = False) -> object: ...


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

    lets_others_run: ClassVar = False
    __slots__ = ("_result", "done", "drives", "failure", "most_operations", "request")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        self.drives = False
        self.most_operations = _MOST_OPERATIONS  # In a batch that it drives.
        self.failure: BaseException | None = None
        self._result: Any = None

    def succeed(self, result: Any) -> None:
        self._result = result
        self.done = True

    def fail(self, failure: BaseException) -> None:
        self.failure = failure
        self.done = True

    def wake(self) -> None:
        """It is done, or it is this ticket's turn to drive."""
        raise NotImplementedError

    def result(self) -> Any:
        if self.failure is not None:
            raise self.failure
        return self._result


class Waiter(Ticket):
    """A request whose client waits for it.

    Where there is a crowd, its driver lets those on their way join. Else a small commit would often
    go alone, and a large one, which takes longer to come back, miss every second batch.
    """

    __slots__ = ("_turn",)

    lets_others_run = True

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._turn = Lock()
        self._turn.acquire()

    def wake(self) -> None:
        self._turn.release()

    def wait(self) -> None:
        self._turn.acquire()


class Caller(Ticket):
    """A request whose client does not hold a thread: it is called back when all is done."""

    __slots__ = ("_brief", "_drive", "_finished", "_spawn")

    def __init__(
        self,
        request: Request,
        drive: Callable[[Ticket], None],
        spawn: Spawn,
        finished: Callable[[Ticket], None],
    ) -> None:
        super().__init__(request)
        self._drive = drive
        self._spawn = spawn
        self._finished = finished
        self._brief = request.shares_batch and request.operations <= _MOST_BRIEF_OPERATIONS
        if self._brief:
            self.most_operations = _MOST_BRIEF_OPERATIONS

    def wake(self) -> None:
        if self.done:
            try:
                self._finished(self)
            except Exception:  # noqa: BLE001 - the others of the batch must be woken all the same.
                _log.exception("Nobody could be told what became of a change")
        else:
            self._spawn(lambda: self._drive(self), brief=self._brief)
