"""The part of the server that all connections share: the API, the threads, the limits."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from threading import get_ident
from traceback import format_exception
from typing import TYPE_CHECKING, Final, Protocol, TypeVarTuple

from msgspec import Struct

from morag.api.fair_queue import FairQueue
from morag.api.http import BodyStream, Piece, Request, Response
from morag.api.later import Answer, ClientGone, Done, InThread, Later, run
from morag.errors import RequestTooLarge
from morag.server.access_log import access_log
from morag.server.admission import Admission
from morag.server.backlog import Backlog
from morag.server.client_address import ClientAddresses
from morag.server.compression import compressed, decompressed, wants_gzip
from morag.server.connection_slots import ConnectionSlots
from morag.server.cors import Cors
from morag.server.descriptors import Descriptors
from morag.server.fixed_responses import BROKEN, NO_ROOM
from morag.server.memory_limits import LargeBodies, UnreadResponses, decoded_bytes
from morag.server.readiness import LIVE, READY, UP, Readiness
from morag.server.repeated_requests import RepeatedRequests
from morag.server.threads import Threads
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.config import ServerSettings
    from morag.server.connection import Connection
    from morag.server.request_parser import Received
    from morag.versions.tickets import Spawn

# Work on more bytes takes longer than about a millisecond, and would block the event loop.
COMPRESS_IN_PLACE_BYTES: Final = 64 * 1024
DECOMPRESS_IN_PLACE_BYTES: Final = 4 * 1024
# Reading and checking a KiB takes 12 microseconds if its operations have a usual length, up to 75
# if they, or the hashes of a transplant, are as short as possible, and up to 210 if it is wrong and
# read leniently.
READ_IN_PLACE_BYTES: Final = 16 * 1024

_LARGE_BODIES: Final = (
    16  # The memory limit, as a number of bodies of the largest size, not decoded.
)
_READ_AT_ONCE: Final = 2  # Decoding holds the interpreter's lock: more threads would be slower.
_MOST_UNDECODED: Final = 512
_LEAST_SECONDS: Final = 0.1
_WORLD: Final = World()

Ts = TypeVarTuple("Ts")

logger = logging.getLogger(__name__)


class Api(Protocol):
    """The application that the edge serves."""

    def answer(self, request: Request) -> Answer: ...

    def failure(self, request: Request, error: Exception) -> Response: ...


class Edge:
    """Passes requests from the connections to the API, and responses back.

    The API is called on the event loop, so that a read costs no more than the call. Work that may
    wait for another machine is returned as a `Later`, for the threads. With a store that
    `writes_quickly`, small changes are committed on the loop, too, and only the sync is for a
    thread: another one would compete for the interpreter, and all changes that arrive together are
    one batch.
    """

    def __init__(
        self,
        api: Api,
        settings: ServerSettings,
        *,
        writes_quickly: bool = False,
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
        self.repeated_requests = RepeatedRequests()
        self.connections: set[Connection] = set()
        self.backlog = Backlog(self._loop, monotonic)
        self.slots = ConnectionSlots(settings.max_connections, self._loop.time)
        self.large_bodies = LargeBodies(_LARGE_BODIES * settings.max_request_bytes)
        self.unread = UnreadResponses(settings.max_unread_bytes)
        self.pending = 0  # Accepted requests that wait, also those of disconnected clients.
        self._api = api
        self._writes_quickly = writes_quickly
        self._hide = hide  # Masks secrets in logged texts.
        self._ready = Readiness(check_store)
        self._cors = Cors(settings.cors_origins) if settings.cors_origins else None
        self._loop_thread = get_ident()
        self.descriptors = Descriptors(self._loop.time)
        self._threads = Threads(settings.threads)
        self._reading = FairQueue(_READ_AT_ONCE, _MOST_UNDECODED, reserved=1)
        self._finished = asyncio.Event()
        self._stop_by: float | None = None

    def answer(self, request: Received) -> Answer:
        """The encoded response, or a `Later` for `start`."""
        try:
            answer = self._answer(request)
            if not isinstance(answer, Response):
                return answer
            if len(answer.body) > COMPRESS_IN_PLACE_BYTES and self._compresses(request, answer):
                return _CompressedInThread(answer)
            return self._encoded(request, answer)
        except Exception as error:  # noqa: BLE001 - The client must get an answer.
            return self._encoded(request, self.failure(request, error))

    def start(self, request: Request, later: Later, done: Callable[[Response], None]) -> None:
        """Start a `Later`; `done` is always called once, on the event loop."""
        waits, has_started = True, False

        def finished(response: Response) -> None:
            """Encode the response in the thread that made it, and return to the loop."""
            encoded = self._encoded(request, response)
            if has_started and self._is_on_loop:
                deliver(encoded)  # Another turn of the loop would cost several microseconds.
            else:
                # Also on the loop, if it is ready at once: the requests of other clients that have
                # arrived are read before it is sent.
                self._call_soon(deliver, encoded)

        def deliver(response: Response) -> None:
            nonlocal waits
            if not waits:
                return  # The work failed after its response.
            waits = False
            self._ended()
            done(response)

        self.pending += 1
        run(later, self._spawn, finished, partial(self.failure, request))
        has_started = True

    def next_piece(
        self,
        request: Request,
        stream: BodyStream,
        done: Callable[[Piece], None],
        failed: Callable[[], None],
    ) -> None:
        """Produce the next piece of a body; `done` or `failed` is called on the event loop."""

        def made(piece: Piece | Exception) -> None:
            if isinstance(piece, Piece):
                self._call_soon(done, piece)
                return
            if not isinstance(piece, ClientGone):
                # The status was sent before, so the error can only be logged.
                logger.error("A large response was cut short by %s", type(piece).__name__)
                self.failure(request, piece)
            self._call_soon(failed)

        stream.next(made)

    def begin_stream(self) -> None:
        """A response is sent in pieces, and counts as pending until `end_stream`."""
        self.pending += 1

    def end_stream(self) -> None:
        self._ended()

    def failure(self, request: Request, error: Exception) -> Response:
        """The API's response to an error.

        If the API fails again, the bug is logged here, and the response gives no reason.
        """
        try:
            return self._api.failure(request, error)
        except Exception as bug:  # noqa: BLE001 - The last resort: the client must get an answer.
            trace = self._hide("".join(format_exception(bug)))
            logger.error("%s %s failed\n%s", request.method, request.path, trace.rstrip())
            return BROKEN

    def release(self, request: Received) -> None:
        """Stop counting the body of a request that is answered or dropped."""
        if request.held_bytes:
            self.large_bodies.release(request.client.network, request.held_bytes)
            request.held_bytes = 0

    def check_store(self) -> None:
        """Let the store notice its own damage, even if no client requests the readiness."""
        if not self._ready.is_checking:
            self._ready.start(self._spawn, lambda _: None)

    def stop(self) -> None:
        """Start the time limit for accepted requests."""
        if self._stop_by is None:
            self._stop_by = self._loop.time() + self.settings.shutdown_seconds

    async def finish(self) -> bool:
        """Wait for all accepted requests, then end the threads. False if it took too long."""
        self.stop()
        while self.pending:
            self._finished.clear()
            try:
                await asyncio.wait_for(self._finished.wait(), self._seconds_left())
            except TimeoutError:
                return False
        return await asyncio.to_thread(self._threads.close, self._seconds_left())

    def _answer(self, request: Received) -> Answer:
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

    def _answer_with_body(self, request: Received) -> Answer:
        size = len(request.body)
        encoding = request.header(b"content-encoding")
        if encoding is None:
            if size <= READ_IN_PLACE_BYTES:
                return self._api.answer(request)
            return self._in_thread(request, lambda: self._answer_large(request, 0))
        limit = self.settings.max_request_bytes
        if size <= DECOMPRESS_IN_PLACE_BYTES:
            return self._answer_compressed(request, encoding, min(limit, READ_IN_PLACE_BYTES))
        return self._in_thread(request, lambda: self._answer_compressed(request, encoding, limit))

    def _in_thread(self, request: Received, answer: Callable[[], Answer]) -> Later:
        """For a request that takes long to decode. It may be a change, so it is never dropped."""
        return InThread(self._reading, request.client, answer, is_change=True)

    def _answer_compressed(self, request: Received, encoding: str, limit: int) -> Answer:
        """Decompress and answer. A body above a preliminary limit is handed to a thread."""
        last = self.settings.max_request_bytes
        try:
            body = decompressed(request.body, encoding, limit)
        except RequestTooLarge:
            if limit == last:
                raise
            return self._in_thread(
                request, lambda: self._answer_compressed(request, encoding, last)
            )
        is_new = body is not request.body
        request.body = body
        if len(body) <= READ_IN_PLACE_BYTES:
            return self._api.answer(request)
        return self._answer_large(request, len(body) if is_new else 0)

    def _answer_large(self, request: Received, decompressed_bytes: int) -> Answer:
        """Reserve memory for the decoded body. The only body of a client always fits."""
        most = self.large_bodies.most_of_one_client - request.held_bytes
        more_bytes = min(decompressed_bytes + decoded_bytes(request.body), most)
        request.held_bytes += more_bytes
        if not self.large_bodies.hold(request.client.network, more_bytes):
            return NO_ROOM
        return self._api.answer(request)

    def _encoded(self, request: Request, response: Response) -> Response:
        """The response with the headers for browsers, compressed if it is large enough."""
        if self._cors is not None:
            response = self._cors.allowing(request, response)
        return compressed(response) if self._compresses(request, response) else response

    def _compresses(self, request: Request, response: Response) -> bool:
        size = len(response.body)
        return size >= self.settings.gzip_min_bytes and size > 0 and wants_gzip(request)

    def _spawn(self, work: Callable[[], None], *, brief: bool = False, near: bool = False) -> None:
        if near or (brief and self._writes_quickly):
            self._call_soon(work)
        else:
            self._threads.spawn(work)

    def _ended(self) -> None:
        self.pending -= 1
        if not self.pending:
            self._finished.set()

    def _call_soon(self, work: Callable[[*Ts], None], *arguments: *Ts) -> None:
        """Call `work` on the event loop, after the data that has arrived was read."""
        if self._is_on_loop:
            self._loop.call_soon(work, *arguments)
        else:
            self._loop.call_soon_threadsafe(work, *arguments)

    @property
    def _is_on_loop(self) -> bool:
        return get_ident() == self._loop_thread

    def _seconds_left(self) -> float:
        assert self._stop_by is not None, "stop() was called"
        return max(_LEAST_SECONDS, self._stop_by - self._loop.time())


class _CompressedInThread(Struct, frozen=True):
    """A large response that was made on the event loop; a thread compresses it."""

    response: Response

    def start(self, spawn: Spawn, done: Done) -> None:
        spawn(lambda: done(self.response))
