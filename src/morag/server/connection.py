"""One client's connection: requests are answered in order, and nothing takes for ever.

uvicorn runs this in place of its own ASGI protocol; docs/decisions/0006-http-server.md says why. A
request that the API answers at once is answered within the call that delivered its last byte: no
task, no queue, no copy.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Any, Final, cast

from morag.api.http import Response
from morag.server.heads import BUSY, CONTINUE, TOO_SLOW, head
from morag.server.reading import Reading, Received

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

SLOWEST_BYTES_PER_SECOND: Final = 16 * 1024
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 16 * 1024 * 1024
_TOLD_TO_GO: Final = 100  # How many connections too many get an answer; more are just cut.
_COPY_BYTES: Final = 16 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
_UNREADABLE: Final = Received("-", "-")


class Connection(Reading):
    """Between a transport and the edge.

    While a request is being answered, what the client sends ahead waits: parsed, but no more of it
    than one read brought. A client that does not take its answer gets no other one.
    """

    __slots__ = (
        "_answering",
        "_behind",
        "_client",
        "_closing",
        "_ending",
        "_general",
        "_general_from",
        "_ignored_bytes",
        "_lingering",
        "_paused",
        "_state",
        "_transport",
        "_waiting",
        "_written_bytes",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(app_state["edge"], _loop or asyncio.get_running_loop())
        self._state = server_state
        self._general = b""
        self._general_from: object = None
        self._transport: asyncio.Transport
        self._client = "-"
        self._answering = False
        self._waiting: deque[tuple[Received, Response | None, bool, float]] = deque()
        self._paused = False  # Because the client does not take what is there already.
        self._written_bytes = 0
        self._behind: tuple[float, int] | None = None  # Since when, and what it had taken by then.
        self._closing = self._lingering = False
        self._ending = False  # After what was accepted, because the client or we want to stop.
        self._ignored_bytes = 0

    # What uvicorn and the event loop call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else "-"
        cast("set[Any]", self._state.connections).add(self)
        self._edge.connections.add(self)
        excess = len(self._edge.connections) - self._edge.settings.max_connections
        if excess > _TOLD_TO_GO:
            self._abort()
        elif excess > 0:
            self.refuse(BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """What was accepted goes on; only its answer has nowhere to go."""
        cast("set[Any]", self._state.connections).discard(self)
        self._edge.connections.discard(self)
        self._closing = True
        while self._waiting:
            self._edge.release(self._waiting.popleft()[0].held_bytes)
        self.end_reading()

    def ignore(self, data: bytes) -> None:
        self._ignored_bytes += len(data)
        if self._ignored_bytes > LINGER_BYTES:
            self._abort()

    def eof_received(self) -> bool:
        """A client may say all it has to say, close its half, and wait for the answer."""
        self._open = False
        self._ending = True
        waits = self._answering or bool(self._waiting)
        return waits and self._transport.get_extra_info("sslcontext") is None

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._since = self._loop.time()
        self._go_on()

    def shutdown(self) -> None:
        """The server is to stop: finish what was accepted, then close."""
        self._edge.stop()
        self._ending = True
        if self._lingering:
            self._abort()
        elif not self._answering and not self._waiting and not self._head_done:
            self._close()

    def check(self, now: float) -> None:
        """Called now and then: end what takes too long, be it sending, receiving, or neither."""
        settings = self._edge.settings
        taken_bytes = self._written_bytes - self._transport.get_write_buffer_size()
        if taken_bytes == self._written_bytes:
            self._behind = None
        elif self._behind is None:
            self._behind = now, taken_bytes
        if self._lingering:
            if now - self._since > LINGER_SECONDS:
                self._abort()
        elif self._behind is not None:
            since, before_bytes = self._behind
            if now - since > _patience(settings.slow_client_seconds, taken_bytes - before_bytes):
                self._abort()
        elif self._answering or self._waiting or self._closing:
            pass
        elif self._reading:
            if now - self._since > _patience(settings.slow_client_seconds, self._received_bytes):
                self.refuse(TOO_SLOW)
        elif now - self._since > settings.idle_timeout_seconds:
            self._close()

    # What reading leads to.

    def accept(self, request: Received, keep: bool) -> None:
        if self._answering or self._waiting or self._paused:
            if not self._waiting:
                self._transport.pause_reading()
            self._waiting.append((request, None, keep, self._since))
        else:
            self._answer(request, keep, self._since)

    def refuse(self, response: Response, request: Received | None = None) -> None:
        """The last answer on this connection, after those that are due before it."""
        if not self._open:
            return
        self._open = self._reading = False
        if self._answering or self._waiting:
            self._waiting.append((request or _UNREADABLE, response, False, self._since))
        else:
            self._send_last(request or _UNREADABLE, response, self._since)

    def expect(self) -> None:
        if not self._answering and not self._waiting:
            self._written_bytes += len(CONTINUE)
            self._transport.write(CONTINUE)

    # Answering.

    def _answer(self, request: Received, keep: bool, since: float) -> None:
        try:
            answer = self._edge.answer(request)
        except Exception as error:  # noqa: BLE001 - It is told, and the client gets an answer.
            answer = self._edge.broken(request, error)
        if isinstance(answer, Response):
            self._dress(request, answer, keep, since)
            return

        def answered(response: Response) -> None:
            self._answering = False
            if self._closing:
                self._edge.release(request.held_bytes)
            else:
                self._dress(request, response, keep, since)
                self._go_on()

        self._answering = True
        self._edge.start(request, answer, answered)

    def _dress(self, request: Received, response: Response, keep: bool, since: float) -> None:
        try:
            dressed = self._edge.dressed(request, response)
        except Exception as error:  # noqa: BLE001 - It is told, and the client gets an answer.
            dressed = self._edge.broken(request, error)
        if isinstance(dressed, Response):
            self._send(request, dressed, keep, since)
            return

        def packed(response: Response) -> None:
            self._answering = False
            if self._closing:
                self._edge.release(request.held_bytes)
            else:
                self._send(request, response, keep, since)
                self._go_on()

        self._answering = True
        self._edge.start(request, dressed, packed)

    def _go_on(self) -> None:
        """With the requests that were sent ahead."""
        if not self._waiting:
            return
        while self._waiting and not self._answering and not self._paused:
            request, response, keep, since = self._waiting.popleft()
            if response is None:
                self._answer(request, keep, since)
            else:
                self._send_last(request, response, since)
            if self._closing:
                return
        if not self._waiting:
            self._transport.resume_reading()

    # Writing.

    def _send(self, request: Received, response: Response, keep: bool, since: float) -> None:
        if request.held_bytes:
            self._edge.release(request.held_bytes)
        if self._ending and not self._waiting:
            keep = False
        status, body = response.status, response.body
        length: int | None = len(body)
        if status == 204 or status == 304:
            body, length = b"", None
        elif request.method == "HEAD":
            body = b""
        top = head(status, response.headers, length, self._general_lines(), keep)
        self._written_bytes += len(top) + len(body)
        if len(body) < _COPY_BYTES:
            self._transport.write(top + body)
        else:
            self._transport.writelines((top, body))
        now = self._loop.time()
        if self._edge.log is not None:
            self._edge.log(request, status, len(body), 1000 * (now - since), self._client)
        if not keep:
            self._close()
        elif not self._reading:
            self._since = now

    def _send_last(self, request: Received, response: Response, since: float) -> None:
        """And let the client read it: closing at once would discard it on its way."""
        length = len(response.body)
        top = head(response.status, response.headers, length, self._general_lines(), False)
        self._written_bytes += len(top) + length
        self._transport.write(top + response.body)
        self._lingering = True
        now = self._loop.time()
        if self._edge.log is not None:
            self._edge.log(request, response.status, length, 1000 * (now - since), self._client)
        self._since = now
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _general_lines(self) -> bytes:
        """The date, which uvicorn renews every second."""
        lines = self._state.default_headers
        if lines is not self._general_from:
            self._general_from = lines
            self._general = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        return self._general

    def _close(self) -> None:
        """As soon as everything written is sent."""
        self._open = False
        self._closing = True
        self._transport.close()

    def _abort(self) -> None:
        """At once, and for the kernel too: it would go on offering what the client never takes."""
        self._open = False
        self._closing = True
        socket = self._transport.get_extra_info("socket")
        if socket is not None:  # As it is of a transport that is closed already.
            with suppress(OSError):
                socket.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
        self._transport.abort()


def _patience(seconds: float, moved_bytes: int) -> float:
    return seconds + moved_bytes / SLOWEST_BYTES_PER_SECOND
