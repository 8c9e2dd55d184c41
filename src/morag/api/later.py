"""`Later`: an answer that is not ready yet, because it needs a thread or the lane of a branch.

This is the only way to hand work to a thread and come back. A handler returns a `Response`, or

- `InThread`: one function, run in a thread when its client's turn in a `FairQueue` comes;
- `InPieces`: a listing, produced in short turns and no faster than the client reads it;
- `AfterLookUp`, `PiecesAfterLookUp`: quick reads and listings, once their refs were looked up in a
  store on another machine;
- `InLane`: a change of a branch, carried out by the driver of the branch's lane: a thread, or the
  event loop if the change is small and the store writes quickly.

A `Later` does nothing until `run` starts it. The caller passes `spawn`, which runs a function in a
thread, and `done`, which is called once with the response. No thread waits for a lane, so a few
threads are enough for any number of requests. These are callbacks and not coroutines for the
reasons in docs/decisions/0013-callbacks-instead-of-asyncio.md.

Exceptions: a `Later` raises them or passes them to `done`. Only `run` turns them into responses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from morag.api.fair_queue import FairQueue, Job
from morag.api.http import Client, Header, Piece, Response
from morag.versions.ref_look_ups import LookedUp, NotNear, RefLookUps, concerns_all
from morag.versions.tickets import Queued, Spawn, Ticket

FIRST_BYTES: Final = 256 * 1024
"""Up to this size an answer is sent as a whole; the rest of a larger one follows in pieces."""
PIECE_BYTES: Final = 128 * 1024

_QUICK_BYTES: Final = 64 * 1024
_SLICE_SECONDS: Final = 0.02
_AT_ONCE: Final = 8
_AT_ONCE_SECONDS: Final = 0.001
_SWITCH_SECONDS: Final = 0.0003
_MOST_WAITING: Final = 512
_LONG_WORK_EMBEDDED: Final = 3
_GONE: Final = Response(499)  # Never sent; 499 is nginx's status for a closed client.


class ClientGone(Exception):
    """The client disconnected before its answer was ready."""


Outcome: TypeAlias = Response | Exception
Done: TypeAlias = Callable[[Outcome], None]


class Later(Protocol):
    """An answer that has to wait for a thread or for a lane."""

    def start(self, spawn: Spawn, done: Done) -> None:
        """Begin. Afterwards `done` is called once, from any thread, perhaps before this returns;
        or this, or a function given to `spawn`, raises an exception instead."""
        ...


Answer: TypeAlias = Response | Later


def run(
    later: Later,
    spawn: Spawn,
    done: Callable[[Response], None],
    failure: Callable[[Exception], Response],
) -> None:
    """Start a `Later`; `done` gets the response, in the thread that made it.

    Catches every exception, in whichever thread, and turns it into a response with `failure`: the
    client must always get a response. If code fails after it has called `done`, then `done` is
    called again: only the first call counts.
    """

    def finished(outcome: Outcome) -> None:
        if isinstance(outcome, Response):
            done(outcome)
        else:
            done(_GONE if isinstance(outcome, ClientGone) else failure(outcome))

    def spawn_guarded(work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - See above.
                finished(error)

        spawn(guarded, brief=brief, near=near)

    try:
        later.start(spawn_guarded, finished)
    except Exception as error:  # noqa: BLE001 - See above.
        finished(error)


class Queues:
    """The queues of one API, each for a kind of work that must not occupy every thread.

    `reads` is None unless the store is on another machine: a read of an embedded store takes
    microseconds, and runs where the request came in.
    """

    def __init__(
        self, threads: int, *, store_is_remote: bool, monotonic: Callable[[], float]
    ) -> None:
        self.monotonic = monotonic
        # Together fewer than there are threads, if there are enough: two more read large requests,
        # one looks up refs, and two are left for lanes. With an embedded store, long work only
        # competes for the interpreter, so a small number leaves more of it for other requests.
        reads = max(1, threads // 2 - 3)
        long_work = (
            max(1, threads - reads - 6) if store_is_remote else min(reads, _LONG_WORK_EMBEDDED)
        )
        # Reads are short, so no slot is reserved for other clients.
        self.reads = FairQueue(reads, _MOST_WAITING) if store_is_remote else None
        usual_seconds = sys.getswitchinterval()

        def share_interpreter(while_working: bool) -> None:
            """Give the event loop the interpreter's lock quickly while threads compute.

            The loop releases the lock for each system call, thus several times per connection, and
            gets it back after a thread has held it for this interval: with the usual one, new
            connections would wait for seconds. The usual interval is better for threads that drive
            lanes, which wait for the disk and not for each other.
            """
            sys.setswitchinterval(_SWITCH_SECONDS if while_working else usual_seconds)

        self.long_work = FairQueue(long_work, _MOST_WAITING, reserved=1, busy=share_interpreter)
        self.references = FairQueue(1, _MOST_WAITING)
        self.at_once = AtOnce()


class AtOnce:
    """Limits how many listings are begun where requests come in, in one turn of the event loop.

    A short listing takes less time than handing it to a thread. But many clients that request one
    at the same time must not hold up all others: theirs go to the threads, by way of the fair
    queue.
    """

    def __init__(self) -> None:
        self._begun = 0

    def may_begin(self, spawn: Spawn) -> bool:
        if self._begun >= _AT_ONCE:
            return False
        if not self._begun:
            spawn(self._start_over, near=True)  # In the loop's next turn.
        self._begun += 1
        return True

    def _start_over(self) -> None:
        self._begun = 0


class InThread(Struct, frozen=True):
    """A function that runs in a thread. It may return another `Later`, which is started then.

    A read is dropped if its client disconnects before it starts; a change is not.
    """

    queue: FairQueue
    client: Client
    work: Callable[[], Answer]
    is_change: bool = False

    def start(self, spawn: Spawn, done: Done) -> None:
        def work() -> None:
            answer = self.work()
            if isinstance(answer, Response):
                done(answer)
            else:
                answer.start(spawn, done)

        abandon = None if self.is_change else lambda: done(ClientGone())
        self.queue.add(Job(self.client, spawn, work, abandon))


class AfterLookUp(Struct, frozen=True):
    """A quick read of a store on another machine, perhaps before a change.

    Its refs are looked up together with those of other requests. Then it is answered where requests
    come in, or in a thread if it needs an object that is not cached.
    """

    look_ups: RefLookUps
    names: Sequence[str]
    in_thread: InThread

    def start(self, spawn: Spawn, done: Done) -> None:
        def answer(refs: LookedUp | None) -> None:
            self._answer(refs, spawn, done)

        _look_up(self.look_ups, self.names, spawn, done, answer)

    def _answer(self, refs: LookedUp | None, spawn: Spawn, done: Done) -> None:
        in_thread = self.in_thread
        if refs is None:
            in_thread.start(spawn, done)
            return
        try:
            answer = refs.run_near(in_thread.work)
        except NotNear:
            work = partial(refs.run, in_thread.work)
            replace(in_thread, work=work).start(spawn, done)
            return
        if not isinstance(answer, Response):
            answer.start(spawn, done)
        elif len(answer.body) > _QUICK_BYTES:
            spawn(lambda: done(answer))  # It may be compressed.
        else:
            done(answer)


class Pieces(Struct, frozen=True):
    """A large body, produced on demand. An empty piece means that there was work, but no bytes."""

    bodies: Iterator[bytes]
    headers: tuple[Header, ...]


class InPieces(Struct, frozen=True):
    """An answer that may be large: produced in short turns, no faster than the client reads."""

    queue: FairQueue
    client: Client
    work: Callable[[], Pieces]
    monotonic: Callable[[], float]
    at_once: AtOnce | None = None
    """If it is given, a short answer is produced where the request came in."""

    def start(self, spawn: Spawn, done: Done) -> None:
        stream = _Stream(self, spawn)

        def made(first: Piece | Exception) -> None:
            if isinstance(first, Exception):
                done(first)
            else:
                rest = None if first.is_last else stream
                done(Response(200, first.body, stream.headers, rest))

        gathering = _Gathering(stream, FIRST_BYTES, made)
        begins = self.at_once is not None and self.at_once.may_begin(spawn)
        if not (begins and gathering.is_done_at_once()):
            self.queue.add(gathering.job())


class PiecesAfterLookUp(Struct, frozen=True):
    """A listing of a store on another machine, like `AfterLookUp`.

    It begins where requests come in. If it needs an object that is not cached, a thread begins
    again, with the same refs.
    """

    look_ups: RefLookUps
    names: Sequence[str]
    pieces: InPieces

    def start(self, spawn: Spawn, done: Done) -> None:
        def answer(refs: LookedUp | None) -> None:
            self._answer(refs, spawn, done)

        _look_up(self.look_ups, self.names, spawn, done, answer)

    def _answer(self, refs: LookedUp | None, spawn: Spawn, done: Done) -> None:
        if refs is None:
            replace(self.pieces, at_once=None).start(spawn, done)
            return
        try:
            refs.run_near(lambda: self.pieces.start(spawn, done))
        except NotNear:
            work = partial(refs.run, self.pieces.work)
            replace(self.pieces, work=work, at_once=None).start(spawn, done)


def _look_up(
    look_ups: RefLookUps,
    names: Sequence[str],
    spawn: Spawn,
    done: Done,
    answer: Callable[[LookedUp | None], None],
) -> None:
    """Look up the refs for `answer`, where requests come in.

    It gets None if the look-up failed, perhaps because of a ref that only another request needs.
    """

    def found(refs: LookedUp | Exception) -> None:
        try:
            if not isinstance(refs, Exception):
                answer(refs)
            elif concerns_all(refs):
                raise refs
            else:
                answer(None)
        except Exception as error:  # noqa: BLE001 - Other requests wait for this function.
            done(error)

    look_ups.start(names, spawn, found)


class _Stream:
    """A large answer between its pieces: the `BodyStream` of its response."""

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

    def next(self, done: Callable[[Piece | Exception], None]) -> None:
        self.answer.queue.add_next_part(_Gathering(self, PIECE_BYTES, done).job())


class _Gathering:
    """Gathers at least `least_bytes`, or all that are left, in one turn or several.

    A turn ends early when other jobs wait. An exception goes to `done`, because `run` may have
    delivered the start of the answer already.
    """

    def __init__(
        self, stream: _Stream, least_bytes: int, done: Callable[[Piece | Exception], None]
    ) -> None:
        self._stream = stream
        self._least_bytes = least_bytes
        self._done = done
        self._gathered: list[bytes] = []
        self._size = 0

    def job(self) -> Job:
        return Job(self._stream.answer.client, self._stream.spawn, self._work, self._abandon)

    def is_done_at_once(self) -> bool:
        """Gather for a moment. False if there is more, which is left to a thread."""
        monotonic = self._stream.answer.monotonic
        end = monotonic() + _AT_ONCE_SECONDS
        if not self._gather(lambda: self._size > _QUICK_BYTES or monotonic() > end):
            return False
        self._done(Piece(b"".join(self._gathered), True))
        return True

    def _work(self) -> None:
        answer = self._stream.answer
        queue, end = answer.queue, answer.monotonic() + _SLICE_SECONDS
        try:
            is_last = self._gather(lambda: queue.has_waiting and answer.monotonic() > end)
            if answer.client.gone:
                self._abandon()
            elif is_last is None:
                answer.queue.add_next_part(self.job())
            else:
                self._done(Piece(b"".join(self._gathered), is_last))
        except Exception as error:  # noqa: BLE001 - See above.
            self._done(error)

    def _abandon(self) -> None:
        self._done(ClientGone())

    def _gather(self, is_over: Callable[[], bool]) -> bool | None:
        """Whether these bytes are the end of the body; None if the turn was over too early."""
        for body in self._stream.bodies():
            self._gathered.append(body)
            self._size += len(body)
            if self._size >= self._least_bytes:
                return False
            if self._stream.answer.client.gone or is_over():
                return None
        return True


class InLane(Struct, frozen=True):
    """A change of a branch. `answer` makes the response from the result of the change.

    The driver of the lane may belong to another request, so an exception is passed to `done` and
    not raised. The other changes of the batch wait for the driver, so a large response is handed to
    a thread.
    """

    start_in_lane: Callable[[Any, Spawn, Callable[[Ticket], None]], None]
    request: Queued
    answer: Callable[[Any], Response]

    def start(self, spawn: Spawn, done: Done) -> None:
        def finished(ticket: Ticket) -> None:
            try:
                response = self.answer(ticket.result())
                if len(response.body) > _QUICK_BYTES:
                    spawn(lambda: done(response))
                else:
                    done(response)
            except Exception as error:  # noqa: BLE001 - See above.
                done(error)

        self.start_in_lane(self.request, spawn, finished)
