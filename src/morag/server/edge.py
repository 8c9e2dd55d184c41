"""What all connections of a process share: the API, the threads, and how requests reach them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from morag.api.http import Later, Request, Response
from morag.errors import MoragError
from morag.server.access_log import access_log
from morag.server.bodies import packed, unpacked, wants_gzip
from morag.server.cors import Cors
from morag.server.health import LIVE, READY, UP, Readiness
from morag.server.threads import Threads

if TYPE_CHECKING:
    from morag.api.http import Spawn
    from morag.config import ServerSettings
    from morag.server.connection import Connection

# What takes longer than a millisecond, about, would hold up other requests on the event loop.
PACK_IN_PLACE_BYTES: Final = 64 * 1024
UNPACK_IN_PLACE_BYTES: Final = 4 * 1024
READ_IN_PLACE_BYTES: Final = 128 * 1024

_LEAST_SECONDS: Final = 0.1
_PACKED: Final = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))


class Api(Protocol):
    """What the edge carries: never raises, and answers at once or later."""

    def answer(self, request: Request) -> Response | Later: ...

    def failure(self, request: Request, error: Exception) -> Response: ...


class Edge:
    """Between the connections and the API.

    With `in_place` the API is called on the event loop, which costs a read no more than the call.
    Without, every call is made by a thread, because it may wait for another machine.
    """

    def __init__(
        self,
        api: Api,
        settings: ServerSettings,
        *,
        in_place: bool,
        check_store: Callable[[], object],
        write_log: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self.settings = settings
        self.log = access_log(settings.access_log, write_log)
        self.connections: set[Connection] = set()
        self.held_bytes = 0  # Of request bodies that are being read.
        self.pending = 0  # Requests that were accepted and wait, their clients gone or not.
        self._api = api
        self._in_place = in_place
        self._ready = Readiness(check_store)
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self._loop = asyncio.get_running_loop()
        self._loop_thread = get_ident()
        self._threads = Threads(settings.threads)
        self._finished = asyncio.Event()
        self._stop_by: float | None = None

    def answer(self, request: Request) -> Response | Later:
        """The answer, or what has to be started for it."""
        if self._cors is not None and (allowed := self._cors.preflight(request)) is not None:
            return allowed
        if request.path.startswith("/health/") and request.method in ("GET", "HEAD"):
            if request.path == LIVE:
                return UP
            if request.path == READY:
                return self._ready.answer() if self._in_place else self._ready
        if not request.body and self._in_place:
            return self._api.answer(request)
        return self._answer_with_body(request)

    def start(self, later: Later, done: Callable[[Response], None]) -> None:
        """Begin what takes longer; `done` is called on the event loop."""

        def finished(response: Response) -> None:
            if get_ident() == self._loop_thread:
                self._loop.call_soon(deliver, response)
            else:
                self._loop.call_soon_threadsafe(deliver, response)

        def deliver(response: Response) -> None:
            self.pending -= 1
            if not self.pending:
                self._finished.set()
            done(response)

        later.start(self._threads.spawn, finished)
        self.pending += 1  # `deliver` comes later, whatever happened.

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

    def _answer_with_body(self, request: Request) -> Response | Later:
        encoding = request.header(b"content-encoding") if request.body else None
        most = READ_IN_PLACE_BYTES if encoding is None else UNPACK_IN_PLACE_BYTES

        def answer() -> Response | Later:
            if encoding is not None:
                try:
                    request.body = unpacked(request.body, encoding, self.settings.max_request_bytes)
                except MoragError as error:
                    return self._api.failure(request, error)
            return self._api.answer(request)

        return answer() if self._in_place and len(request.body) <= most else _InThread(answer)

    def _seconds_left(self) -> float:
        assert self._stop_by is not None, "stop() was called"
        return max(_LEAST_SECONDS, self._stop_by - self._loop.time())


class _InThread(Struct, frozen=True):
    """A call of the API that takes long, or may wait for another machine."""

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
