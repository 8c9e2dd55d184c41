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

from morag.api.http import Later, Response
from morag.versions.tickets import Request, Spawn, Ticket

Answer: TypeAlias = Response | Later
Render: TypeAlias = Callable[[Callable[[], Answer]], Answer]
"""Makes an answer of whatever the call gives or raises."""


class Turns:
    """Lets a few works at once have a thread, however many come; the others wait for their turn.

    Those that would only wait for each other, or are many and long, must not take the threads that
    lanes are driven by.
    """

    def __init__(self, at_once: int) -> None:
        self._lock = Lock()
        self._free = at_once
        self._waiting: deque[tuple[Spawn, Callable[[], None]]] = deque()

    def take(self, spawn: Spawn, work: Callable[[], None]) -> None:
        with self._lock:
            if not self._free:
                self._waiting.append((spawn, work))
                return
            self._free -= 1
        spawn(lambda: self._run(work))

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        finally:
            with self._lock:
                following = self._waiting.popleft() if self._waiting else None
                if following is None:
                    self._free += 1
            if following is not None:
                spawn, next_work = following
                spawn(lambda: self._run(next_work))


class Queues:
    """Where works of one API wait that are not to have every thread.

    `reads` is for a store on another machine. Where there is none, a read takes microseconds, and
    is done where the request came in.
    """

    def __init__(self, threads: int, *, store_is_far: bool) -> None:
        # Together fewer than there are threads, wherever there are enough of them.
        listings = max(1, threads // 2 - 1)
        self.listings = Turns(listings)
        self.references = Turns(1)
        self.reads = Turns(max(1, threads - listings - 3)) if store_is_far else None


class InThread(Struct, frozen=True):
    """Work that may take long: it must not hold up the requests of others."""

    turns: Turns
    work: Callable[[], Answer]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            answer = self.render(self.work)
            if isinstance(answer, Response):
                done(answer)
            else:
                answer.start(spawn, done)

        self.turns.take(spawn, work)


class InLane(Struct, frozen=True):
    """A change of a branch. `answer` makes the response of what became of it."""

    join: Callable[[Request, Spawn, Callable[[Ticket], None]], None]
    request: Request
    answer: Callable[[Any], Response]
    render: Render

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def finished(ticket: Ticket) -> None:
            response = self.render(lambda: self.answer(ticket.result()))
            assert isinstance(response, Response), "nothing more to wait for"
            done(response)

        self.join(self.request, spawn, finished)
