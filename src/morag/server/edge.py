"""What all connections of a process share: the API, the threads, and how requests reach them."""

from __future__ import annotations

import asyncio
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from morag.api.http import Response
from morag.errors import MoragError
from morag.server.access_log import access_log
from morag.server.bodies import packed, unpacked, wants_gzip
from morag.server.cors import Cors
from morag.server.health import LIVE, READY, UP, Readiness
from morag.server.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import Later, Request, Spawn
    from morag.config import ServerSettings
    from morag.server.connection import Connection

PACK_IN_PLACE_BYTES: Final = 64 * 1024  # More would hold up others for a millisecond.
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
        self.pending = 0  # Requests that were accepted and are not answered, clients gone or not.
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
        """The answer, or what has to be started for it. Never raises."""
        if request.body:
            refused = self._unpack(request)
            if refused is not None:
                return refused
        if self._cors is not None and (allowed := self._cors.preflight(request)) is not None:
            return allowed
        if request.path.startswith("/health/") and request.method in ("GET", "HEAD"):
            if request.path == LIVE:
                return UP
            if request.path == READY:
                return self._ready.answer() if self._in_place else self._ready
        return self._api.answer(request) if self._in_place else _InThread(self._api, request)

    def start(self, later: Later, done: Callable[[Response], None]) -> None:
        """Begin something that takes longer; `done` is called on the event loop."""
        self.pending += 1

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

    def _seconds_left(self) -> float:
        assert self._stop_by is not None, "stop() was called"
        return max(_LEAST_SECONDS, self._stop_by - self._loop.time())

    def _unpack(self, request: Request) -> Response | None:
        encoding = request.header(b"content-encoding")
        if encoding is not None:
            try:
                request.body = unpacked(request.body, encoding, self.settings.max_request_bytes)
            except MoragError as error:
                return self._api.failure(request, error)
        return None


class _InThread:
    """A call of the API that may block."""

    def __init__(self, api: Api, request: Request) -> None:
        self._api = api
        self._request = request

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        def work() -> None:
            answer = self._api.answer(self._request)
            if isinstance(answer, Response):
                done(answer)
            else:
                answer.start(spawn, done)

        spawn(work)


class _Packing:
    """A large answer, to be compressed by a thread: zlib lets the event loop go on meanwhile."""

    def __init__(self, response: Response) -> None:
        self._response = response

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        spawn(lambda: done(_packed(self._response)))


def _packed(response: Response) -> Response:
    return msgspec.structs.replace(
        response, body=packed(response.body), headers=response.headers + _PACKED
    )
