"""Answers that wait: for a thread that may block, or for the lane of a branch.

No thread ever waits for a lane, so that a few threads are enough for all lanes: whoever drives one
calls back.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from msgspec import Struct

from morag.api.http import Client, Header, Later, Response
from morag.api.turns import TooBusy, Turn, Turns
from morag.versions.tickets import Request, Spawn, Ticket

Answer: TypeAlias = Response | Later
Render: TypeAlias = Callable[[Callable[[], Answer]], Answer]
"""Makes an answer of whatever the call gives or raises."""

FIRST_BYTES: Final = 256 * 1024
"""Up to this size an answer is sent as a whole; the rest of a larger one follows in pieces."""
PIECE_BYTES: Final = 128 * 1024

_log = logging.getLogger(__name__)

_SLICE_SECONDS: Final = 0.02
_SWITCH_SECONDS: Final = 0.0003
_USUAL_SWITCH_SECONDS: Final = 0.005  # Python's own.
_MOST_WAITING: Final = 512
_LISTINGS_HERE: Final = 3
_GONE: Final = Response(499)  # Never sent; 499 is nginx's status for a closed client.


class Queues:
    """Where works of one API wait that are not to have every thread.

    `reads` is for a store on another machine. Where there is none, a read takes microseconds, and
    is done where the request came in.
    """

    def __init__(self, threads: int, *, store_is_far: bool, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        # Together fewer than there are threads, wherever there are enough of them: two more read
        # large requests, and two are left to lanes. Where nothing waits for another machine,
        # listings only compete for the interpreter, and a few of them leave more of it to others.
        reads = max(1, threads // 2 - 2)
        listings = max(1, threads - reads - 5) if store_is_far else min(reads, _LISTINGS_HERE)
        # Reads are short: no place has to stay free of a client that has many.
        self.reads = Turns(reads, _MOST_WAITING) if store_is_far else None
        self.listings = Turns(listings, _MOST_WAITING, reserved=1, busy=_share_interpreter)
        self.references = Turns(1, _MOST_WAITING)


def _share_interpreter(with_listings: bool) -> None:
    """Let the event loop have the interpreter soon, although threads compute.

    It gives the interpreter up for each system call, thus several times for each connection, and
    gets it back when a thread has had it for this interval: new connections would wait for seconds.
    The usual interval is better for commits, which wait for the disk and not for each other.
    """
    sys.setswitchinterval(_SWITCH_SECONDS if with_listings else _USUAL_SWITCH_SECONDS)


class InThread(Struct, frozen=True):
    """Work that may take long: it must not hold up the requests of others."""

    turns: Turns
    client: Client
    work: Callable[[], Answer]
    render: Render
    is_change: bool = False

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            _pass_on(self.render(self.work), spawn, done)

        abandon = None if self.is_change else lambda: done(_GONE)
        try:
            self.turns.take(Turn(self.client, spawn, work, abandon))
        except TooBusy as refusal:
            _pass_on(self.render(_raising(refusal)), spawn, done)


class Pieces(Struct, frozen=True):
    """A large body as it is being made. An empty piece means that there was work, but no bytes."""

    bodies: Iterator[bytes]
    headers: tuple[Header, ...]


class InPieces(Struct, frozen=True):
    """An answer that may be large: worked out in short turns, and only as fast as it is read."""

    turns: Turns
    client: Client
    work: Callable[[], Pieces]
    render: Render
    monotonic: Callable[[], float]

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        making = _Making(self, spawn)

        def made(body: bytes, is_last: bool) -> None:
            done(Response(200, body, making.headers, None if is_last else making))

        def failed(error: Exception) -> None:
            _pass_on(self.render(_raising(error)), spawn, done)

        first = _Piece(making, FIRST_BYTES, made, failed, lambda: done(_GONE))
        try:
            self.turns.take(first.turn())
        except TooBusy as refusal:
            failed(refusal)


class _Making:
    """An answer between its pieces."""

    def __init__(self, answer: InPieces, spawn: Spawn) -> None:
        self.answer = answer
        self.spawn = spawn
        self.headers: tuple[Header, ...] = ()
        self._bodies: Iterator[bytes] | None = None

    def bodies(self) -> Iterator[bytes]:
        if self._bodies is None:
            pieces = self.answer.work()
            self._bodies, self.headers = pieces.bodies, pieces.headers
        return self._bodies

    def next(self, done: Callable[[bytes, bool], None], failed: Callable[[], None]) -> None:
        def failed_with(error: Exception) -> None:
            # The status is on its way already: all that is left is to log it and to hang up.
            _log.error("A large answer was cut short by %s", type(error).__name__)
            try:
                self.answer.render(_raising(error))
            finally:
                failed()

        piece = _Piece(self, PIECE_BYTES, done, failed_with, failed)
        self.answer.turns.take_another(piece.turn())


class _Piece:
    """Gathers so many bytes, or all that are left. A turn ends when any other request waits."""

    def __init__(
        self,
        making: _Making,
        least_bytes: int,
        made: Callable[[bytes, bool], None],
        failed: Callable[[Exception], None],
        abandon: Callable[[], None],
    ) -> None:
        self._making = making
        self._least_bytes = least_bytes
        self._made = made
        self._failed = failed
        self._abandon = abandon
        self._gathered: list[bytes] = []
        self._size = 0

    def turn(self) -> Turn:
        answer = self._making.answer
        return Turn(answer.client, self._making.spawn, self._work, self._abandon)

    def _work(self) -> None:
        answer = self._making.answer
        try:
            is_last = self._gather(answer)
            if answer.client.gone:
                self._abandon()
            elif is_last is None:
                answer.turns.take_another(self.turn())
            else:
                self._made(b"".join(self._gathered), is_last)
        except Exception as error:  # noqa: BLE001 - Whatever it is, the client gets an answer.
            self._failed(error)

    def _gather(self, answer: InPieces) -> bool | None:
        """Whether the last bytes are among the gathered ones; None if the turn was over before."""
        end = answer.monotonic() + _SLICE_SECONDS
        for body in self._making.bodies():
            self._gathered.append(body)
            self._size += len(body)
            if self._size >= self._least_bytes:
                return False
            if answer.client.gone:
                return None
            if answer.turns.somebody_waits and answer.monotonic() > end:
                return None
        return True


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


def _pass_on(answer: Answer, spawn: Spawn, done: Callable[[Response], None]) -> None:
    if isinstance(answer, Response):
        done(answer)
    else:
        answer.start(spawn, done)


def _raising(error: Exception) -> Callable[[], Answer]:
    def fail() -> Answer:
        raise error

    return fail
