"""Answers that wait: for a thread that may block, or for the lane of a branch.

No thread ever waits for a lane, so that a few threads are enough for all lanes: whoever drives one
calls back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

from msgspec import Struct

from morag.api.http import Later, Response, Spawn
from morag.versions.lanes import Request, Ticket
from morag.versions.repository import Repository

Answer: TypeAlias = Response | Later
Render: TypeAlias = Callable[[Callable[[], Answer]], Answer]
"""Makes an answer of whatever the call gives or raises."""


class InThread(Struct, frozen=True):
    """Work that may take long: it must not hold up the requests of others."""

    work: Callable[[], Answer]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            answer = self.render(self.work)
            if isinstance(answer, Response):
                done(answer)
            else:
                answer.start(spawn, done)

        spawn(work)


class Turn:
    """Lets one work after the other have a thread, however many come at once.

    For works that would only wait for each other: in threads of their own they would keep those
    that others need.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._busy = False
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, spawn: Spawn, work: Callable[[], None]) -> None:
        with self._lock:
            if self._busy:
                self._waiting.append(work)
                return
            self._busy = True
        spawn(lambda: self._run(spawn, work))

    def _run(self, spawn: Spawn, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                following = self._waiting.popleft() if self._waiting else None
                self._busy = following is not None
            if following is not None:
                spawn(lambda: self._run(spawn, following))


class InTurn(Struct, frozen=True):
    """Work that has to wait for its like."""

    turn: Turn
    work: InThread  # Whose answer waits for nothing more: there is no other thread in its turn.

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        self.turn.take(spawn, lambda: self.work.start(_at_once, done))


def _at_once(work: Callable[[], None]) -> None:
    work()


class InLane(Struct, frozen=True):
    """A change of a branch. `answer` makes the response of what became of it."""

    repository: Repository
    request: Request
    answer: Callable[[Any], Response]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def finished(ticket: Ticket) -> None:
            response = self.render(lambda: self.answer(ticket.result()))
            assert isinstance(response, Response), "nothing more to wait for"
            done(response)

        self.repository.start(self.request, spawn, finished)
