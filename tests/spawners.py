"""Spawners for tests: functions that run work which a server gives to a thread."""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.references import Reference
    from morag.versions.reference_lane import ReferenceRequest
    from morag.versions.repository import Repository
    from morag.versions.tickets import Request, Spawn, Ticket


def in_thread(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
    Thread(target=work).start()


def at_once(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
    work()


class ManualSpawner:
    """Queues all work until the test runs it, one piece at a time."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.were_brief: list[bool] = []
        self.were_near: list[bool] = []

    def spawn(self, work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        self.waiting.append(work)
        self.were_brief.append(brief)
        self.were_near.append(near)

    def run_one(self) -> None:
        self.waiting.pop(0)()

    def run_all(self) -> None:
        while self.waiting:
            self.run_one()


class LoopSpawner:
    """Runs brief work like a server on a store that writes quickly: on one thread, in order.

    Other work gets a thread of its own. `close` ends the loop when its work is done.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def spawn(self, work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        if brief or near:
            self._queue.put(work)
        else:
            in_thread(work)

    def close(self) -> None:
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


def result(
    repo: Repository, request: Request, spawn: Spawn, timeout_seconds: float | None = 60
) -> Any:
    """Start the request, wait until it is done, and return its result or raise its failure."""
    return _result(repo.start, request, spawn, timeout_seconds)


def changed(repo: Repository, request: ReferenceRequest, spawn: Spawn) -> Reference:
    """The same for creating and deleting references."""
    reference: Reference = _result(repo.references.start, request, spawn, 60)
    return reference


def _result(
    start: Callable[[Any, Spawn, Callable[[Ticket], None]], None],
    request: Any,
    spawn: Spawn,
    timeout_seconds: float | None,
) -> Any:
    done: Future[Ticket] = Future()
    start(request, spawn, done.set_result)
    return done.result(timeout_seconds).result()
