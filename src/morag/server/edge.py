"""What all connections of a process share: the API, the threads, and how requests reach them."""

from __future__ import annotations

import asyncio
import logging
import sys
from threading import get_ident
from traceback import format_exception
from typing import TYPE_CHECKING, Final, Protocol, TypeVarTuple

from msgspec import Struct
from msgspec.structs import replace

from morag.api.http import Later, Request, Response, Rest
from morag.api.later import InThread
from morag.api.turns import TooBusy, Turns
from morag.errors import MoragError, RequestTooLarge
from morag.server.access_log import access_log
from morag.server.admission import Admission
from morag.server.backlog import Backlog
from morag.server.bodies import Packer, packed, unpacked, wants_gzip
from morag.server.client_address import ClientAddresses
from morag.server.cors import Cors
from morag.server.descriptors import Descriptors
from morag.server.heads import BROKEN, NO_ROOM
from morag.server.health import LIVE, READY, UP, Readiness
from morag.server.large_bodies import LargeBodies, decoded_bytes
from morag.server.places import Places
from morag.server.threads import Threads
from morag.server.unread import UnreadAnswers
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.config import ServerSettings
    from morag.server.connection import Connection
    from morag.server.reading import Received
    from morag.versions.tickets import Spawn

# What takes longer than a millisecond, about, would hold up other requests on the event loop.
PACK_IN_PLACE_BYTES: Final = 64 * 1024
UNPACK_IN_PLACE_BYTES: Final = 4 * 1024
READ_IN_PLACE_BYTES: Final = 16 * 1024

_LARGE_BODIES: Final = 16  # How many of the largest would fit, if they were never decoded.
_READ_AT_ONCE: Final = 2  # Reading holds the interpreter: more would only slow each other down.
_MOST_UNREAD: Final = 512
_LEAST_SECONDS: Final = 0.1
_WORLD: Final = World()
_PACKED: Final = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))

Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)


class Api(Protocol):
    """What the edge carries: never raises, and answers at once or later."""

    def answer(self, request: Request) -> Response | Later: ...

    def failure(self, request: Request, error: Exception) -> Response: ...


class Edge:
    """Between the connections and the API.

    The API is called on the event loop, which costs a read no more than the call; what may wait for
    another machine it hands back, to be started. A store that `never_waits`, not even for a disk,
    also takes small changes there: no thread could do them any sooner, and all that arrived
    together goes into one batch.
    """

    def __init__(
        self,
        api: Api,
        settings: ServerSettings,
        *,
        never_waits: bool = False,
        loopback_only: bool = False,
        check_store: Callable[[], object],
        hide: Callable[[str], str] = str,
        write_log: Callable[[str], object] = sys.stderr.write,
        clock_nanos: Callable[[], int] = _WORLD.clock_nanos,
        monotonic: Callable[[], float] = _WORLD.monotonic,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.settings = settings
        self.log = access_log(settings.access_log, write_log, clock_nanos)
        self.admission = Admission(settings, loopback_only=loopback_only)
        self.client_addresses = ClientAddresses(settings.trusted_proxies)
        self.connections: set[Connection] = set()
        self.backlog = Backlog(self._loop, monotonic)
        self.places = Places(settings.max_connections, self._loop.time)
        self.large_bodies = LargeBodies(_LARGE_BODIES * settings.max_request_bytes)
        self.unread = UnreadAnswers(settings.max_unread_bytes)
        self.pending = 0  # Requests that were accepted and wait, their clients gone or not.
        self._api = api
        self._never_waits = never_waits
        self._hide = hide  # Takes secrets out of what is logged.
        self._ready = Readiness(check_store)
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self._loop_thread = get_ident()
        self.descriptors = Descriptors(self._loop.time)
        self._threads = Threads(settings.threads)
        self._reading = Turns(_READ_AT_ONCE, _MOST_UNREAD, reserved=1)
        self._finished = asyncio.Event()
        self._stop_by: float | None = None

    def answer(self, request: Received) -> Response | Later:
        """The answer, or what has to be started for it."""
        if self._cors is not None and (allowed := self._cors.preflight(request)) is not None:
            return allowed
        if request.path.startswith("/health/") and request.method in ("GET", "HEAD"):
            if request.path == LIVE:
                return UP
            if request.path == READY:
                return self._ready
        if request.body:
            return self._answer_with_body(request)
        if len(request.path) + len(request.query) > READ_IN_PLACE_BYTES:
            return self._in_thread(request, lambda: self._api.answer(request))
        return self._api.answer(request)

    def start(self, request: Request, later: Later, done: Callable[[Response], None]) -> None:
        """Begin what takes longer; `done` is called on the event loop, once, whatever happens."""
        waits = True

        def spawn(work: Callable[[], None], *, brief: bool = False) -> None:
            def guarded() -> None:
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - It is logged, and the client gets an answer.
                    finished(self.broken(request, error))

            if brief and self._never_waits:
                self._call_soon(guarded)
            else:
                self._threads.spawn(guarded)

        def finished(response: Response) -> None:
            self._call_soon(deliver, response)

        def deliver(response: Response) -> None:
            nonlocal waits
            if not waits:
                return  # It failed after it had answered.
            waits = False
            self._ended()
            done(response)

        self.pending += 1
        try:
            later.start(spawn, finished)
        except Exception as error:  # noqa: BLE001 - It is logged, and the client gets an answer.
            finished(self.broken(request, error))

    def next_piece(
        self, rest: Rest, done: Callable[[bytes, bool], None], failed: Callable[[], None]
    ) -> None:
        """Have the next piece of an answer made; one of the two is called on the event loop."""
        rest.next(
            lambda piece, is_last: self._call_soon(done, piece, is_last),
            lambda: self._call_soon(failed),
        )

    def begin_stream(self) -> None:
        """An answer follows in pieces, and counts as pending until `end_stream`."""
        self.pending += 1

    def end_stream(self) -> None:
        self._ended()

    def dressed(self, request: Request, response: Response) -> Response | Later:
        """The response as it goes out: compressed if large and wanted, with what browsers need."""
        if self._cors is not None:
            response = self._cors.allowing(request, response)
        size = len(response.body)
        if size < self.settings.gzip_min_bytes or not size or not wants_gzip(request):
            return response
        if response.rest is not None:
            return _PackingInPieces(response, response.rest)
        return _packed(response) if size <= PACK_IN_PLACE_BYTES else _Packing(response)

    def failure(self, request: Request, error: Exception) -> Response:
        return self._api.failure(request, error)

    def broken(self, request: Request, error: Exception) -> Response:
        """Log an error that the API made no answer of; the answer says only that there is one."""
        trace = self._hide("".join(format_exception(error)))
        logger.error("%s %s failed\n%s", request.method, request.path, trace.rstrip())
        return BROKEN

    def release(self, request: Received) -> None:
        """The request is answered, or will never be: its body needs no room any more."""
        if request.held_bytes:
            self.large_bodies.release(request.client.network, request.held_bytes)
            request.held_bytes = 0

    def check_store(self) -> None:
        """Let the store notice what is wrong with it, although nobody asks whether it is ready."""

        def spawn(work: Callable[[], None], *, brief: bool = False) -> None:
            self._threads.spawn(work)

        if not self._ready.is_asking:
            self._ready.start(spawn, lambda _: None)

    def stop(self) -> None:
        """From now on the time runs in which accepted requests are finished."""
        if self._stop_by is None:
            self._stop_by = self._loop.time() + self.settings.shutdown_seconds

    async def finish(self) -> bool:
        """Wait for all that was accepted, then end the threads. False if it took too long."""
        self.stop()
        while self.pending:
            self._finished.clear()
            try:
                await asyncio.wait_for(self._finished.wait(), self._seconds_left())
            except TimeoutError:
                return False
        return await asyncio.to_thread(self._threads.close, self._seconds_left())

    def _answer_with_body(self, request: Received) -> Response | Later:
        size = len(request.body)
        encoding = request.header(b"content-encoding")
        if encoding is None:
            if size <= READ_IN_PLACE_BYTES:
                return self._api.answer(request)
            return self._in_thread(request, lambda: self._answer_large(request, 0))
        limit = self.settings.max_request_bytes
        if size <= UNPACK_IN_PLACE_BYTES:
            return self._answer_packed(request, encoding, min(limit, READ_IN_PLACE_BYTES))
        return self._in_thread(request, lambda: self._answer_packed(request, encoding, limit))

    def _in_thread(self, request: Received, answer: Callable[[], Response | Later]) -> Later:
        """For a call of the API that takes long, if only to read the request."""

        def render(work: Callable[[], Response | Later]) -> Response | Later:
            try:
                return work()
            except TooBusy as refusal:
                return self._api.failure(request, refusal)

        # Before it is read nobody knows whether it is a change, so it is never dropped.
        return InThread(self._reading, request.client, answer, render, is_change=True)

    def _answer_packed(self, request: Received, encoding: str, limit: int) -> Response | Later:
        """In a thread after all, if it turns out larger than a limit that is not the last one."""
        last = self.settings.max_request_bytes
        try:
            body = unpacked(request.body, encoding, limit)
        except MoragError as error:
            if isinstance(error, RequestTooLarge) and limit < last:
                return self._in_thread(
                    request, lambda: self._answer_packed(request, encoding, last)
                )
            return self._api.failure(request, error)
        is_new = body is not request.body
        request.body = body
        if len(body) <= READ_IN_PLACE_BYTES:
            return self._api.answer(request)
        return self._answer_large(request, len(body) if is_new else 0)

    def _answer_large(self, request: Received, unpacked_bytes: int) -> Response | Later:
        """With room for what it becomes. A body that is its client's only one always has that."""
        most = self.large_bodies.most_of_one_client - request.held_bytes
        more_bytes = min(unpacked_bytes + decoded_bytes(request.body), most)
        request.held_bytes += more_bytes
        if not self.large_bodies.hold(request.client.network, more_bytes):
            return NO_ROOM
        return self._api.answer(request)

    def _ended(self) -> None:
        self.pending -= 1
        if not self.pending:
            self._finished.set()

    def _call_soon(self, work: Callable[[*Ts], None], *arguments: *Ts) -> None:
        """On the event loop, after all that has arrived by now was read."""
        if get_ident() == self._loop_thread:
            self._loop.call_soon(work, *arguments)
        else:
            self._loop.call_soon_threadsafe(work, *arguments)

    def _seconds_left(self) -> float:
        assert self._stop_by is not None, "stop() was called"
        return max(_LEAST_SECONDS, self._stop_by - self._loop.time())


class _Packing(Struct, frozen=True):
    """A large answer that a thread compresses: zlib lets the event loop go on meanwhile."""

    response: Response

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        spawn(lambda: done(_packed(self.response)))


class _PackingInPieces:
    """A large answer, compressed by the threads that make its pieces."""

    def __init__(self, response: Response, rest: Rest) -> None:
        self._response = response
        self._rest = rest
        self._packer = Packer()

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            response = self._response
            body = self._packer.packed(response.body, is_last=False)
            done(Response(response.status, body, response.headers + _PACKED, self))

        spawn(work)

    def next(self, done: Callable[[bytes, bool], None], failed: Callable[[], None]) -> None:
        self._rest.next(
            lambda piece, is_last: done(self._packer.packed(piece, is_last=is_last), is_last),
            failed,
        )


def _packed(response: Response) -> Response:
    return replace(response, body=packed(response.body), headers=response.headers + _PACKED)
