"""What all connections of a process share: the API, the threads, and how requests reach them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from threading import Lock, get_ident
from traceback import format_exception
from typing import TYPE_CHECKING, Final, Protocol, TypeVarTuple

from msgspec import Struct
from msgspec.structs import replace

from morag.api.http import Later, Request, Response
from morag.errors import MoragError, RequestTooLarge
from morag.server.access_log import access_log
from morag.server.bodies import packed, unpacked, wants_gzip
from morag.server.cors import Cors
from morag.server.heads import BROKEN, NO_ROOM
from morag.server.health import LIVE, READY, UP, Readiness
from morag.server.threads import Threads
from morag.versions.world import World

if TYPE_CHECKING:
    from morag.config import ServerSettings
    from morag.server.connection import Connection
    from morag.server.reading import Received
    from morag.versions.tickets import Spawn

# What takes longer than a millisecond, about, would hold up other requests on the event loop.
PACK_IN_PLACE_BYTES: Final = 64 * 1024
UNPACK_IN_PLACE_BYTES: Final = 4 * 1024
UNPACKED_IN_PLACE_BYTES: Final = 32 * 1024
READ_IN_PLACE_BYTES: Final = 128 * 1024

_LARGE_BODIES: Final = 4  # How many of the largest allowed may be here at the same time.
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
        check_store: Callable[[], object],
        hide: Callable[[str], str] = str,
        write_log: Callable[[str], object] = sys.stderr.write,
        clock_nanos: Callable[[], int] = _WORLD.clock_nanos,
    ) -> None:
        self.settings = settings
        self.log = access_log(settings.access_log, write_log, clock_nanos)
        self.connections: set[Connection] = set()
        self.held_bytes = 0  # Of large request bodies, until they are answered.
        self.pending = 0  # Requests that were accepted and wait, their clients gone or not.
        self._api = api
        self._never_waits = never_waits
        self._hide = hide  # Takes secrets out of what is logged.
        self._holding = Lock()
        self._ready = Readiness(check_store)
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._threads = Threads(settings.threads)
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
        return self._answer_with_body(request) if request.body else self._api.answer(request)

    def start(self, request: Request, later: Later, done: Callable[[Response], None]) -> None:
        """Begin what takes longer; `done` is called on the event loop, once, whatever happens."""
        waits = True

        def spawn(work: Callable[[], None], *, brief: bool = False) -> None:
            def guarded() -> None:
                try:
                    work()
                except Exception as error:  # noqa: BLE001 - It is told, and so is the client.
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
            self.pending -= 1
            if not self.pending:
                self._finished.set()
            done(response)

        self.pending += 1
        try:
            later.start(spawn, finished)
        except Exception as error:  # noqa: BLE001 - It is told, and so is the client.
            finished(self.broken(request, error))

    def dressed(self, request: Request, response: Response) -> Response | Later:
        """The response as it goes out: compressed if large and wanted, with what browsers need."""
        if self._cors is not None:
            response = self._cors.told(request, response)
        size = len(response.body)
        if size < self.settings.gzip_min_bytes or not size or not wants_gzip(request):
            return response
        return _packed(response) if size <= PACK_IN_PLACE_BYTES else _Packing(response)

    def failure(self, request: Request, error: Exception) -> Response:
        return self._api.failure(request, error)

    def broken(self, request: Request, error: Exception) -> Response:
        """What a client is told of an error that the API did not make an answer of."""
        told = self._hide("".join(format_exception(error)))
        logger.error("%s %s failed\n%s", request.method, request.path, told.rstrip())
        return BROKEN

    def hold(self, more_bytes: int) -> bool:
        """Count them, from whichever thread, until `release`; False if there is no room for them.

        Only large bodies are counted. While threads unpack, each may go beyond by one body.
        """
        with self._holding:
            self.held_bytes += more_bytes
            return self.held_bytes <= _LARGE_BODIES * self.settings.max_request_bytes

    def release(self, held_bytes: int) -> None:
        with self._holding:
            self.held_bytes -= held_bytes

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
            return _InThread(lambda: self._api.answer(request))
        limit = self.settings.max_request_bytes
        if size <= UNPACK_IN_PLACE_BYTES:
            return self._answer_packed(request, encoding, min(limit, UNPACKED_IN_PLACE_BYTES))
        return _InThread(lambda: self._answer_packed(request, encoding, limit))

    def _answer_packed(self, request: Received, encoding: str, limit: int) -> Response | Later:
        """In a thread after all, if it turns out larger than a limit that is not the last one."""
        last = self.settings.max_request_bytes
        try:
            body = unpacked(request.body, encoding, limit)
        except MoragError as error:
            if isinstance(error, RequestTooLarge) and limit < last:
                return _InThread(lambda: self._answer_packed(request, encoding, last))
            return self._api.failure(request, error)
        if len(body) > UNPACKED_IN_PLACE_BYTES and body is not request.body:
            request.held_bytes += len(body)
            if not self.hold(len(body)):
                return NO_ROOM
        request.body = body
        return self._api.answer(request)

    def _call_soon(self, work: Callable[[*Ts], None], *arguments: *Ts) -> None:
        """On the event loop, after all that has arrived by now was read."""
        if get_ident() == self._loop_thread:
            self._loop.call_soon(work, *arguments)
        else:
            self._loop.call_soon_threadsafe(work, *arguments)

    def _seconds_left(self) -> float:
        assert self._stop_by is not None, "stop() was called"
        return max(_LEAST_SECONDS, self._stop_by - self._loop.time())


class _InThread(Struct, frozen=True):
    """A call of the API that takes long, if only to read its body."""

    answer: Callable[[], Response | Later]

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            answer = self.answer()
            if isinstance(answer, Response):
                done(answer)
            else:
                answer.start(spawn, done)

        spawn(work)


class _Packing(Struct, frozen=True):
    """A large answer that a thread compresses: zlib lets the event loop go on meanwhile."""

    response: Response

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        spawn(lambda: done(_packed(self.response)))


def _packed(response: Response) -> Response:
    return replace(response, body=packed(response.body), headers=response.headers + _PACKED)
