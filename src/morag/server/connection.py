"""One connection: requests are answered in order, and everything has a time-out.

uvicorn runs this in place of its own ASGI protocol; docs/decisions/0006-http-server.md gives the
reasons. A request that the API answers at once is answered within the call that delivered its last
byte, without a task, a queue or a copy. `connection_states.py` lists states and transitions.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from morag.api.http import Response
from morag.server.client_address import client_at
from morag.server.client_probe import ClientProbe
from morag.server.connection_states import CLOSED, DRAINING, ENDED, LINGERING, OPEN
from morag.server.fixed_responses import BUSY, TOO_SLOW
from morag.server.request_parser import Received, RequestParser
from morag.server.response_stream import ResponseStream
from morag.server.response_writer import ResponseWriter

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from morag.api.http import BodyStream
    from morag.server.connection_states import Phase
    from morag.server.edge import Edge

SLOWEST_BYTES_PER_SECOND: Final = 16 * 1024
SHARE_BYTES: Final = 16 * 1024  # More data at once means large bodies or many requests.
MOST_IN_PLACE: Final = 4  # Requests. Few clients send the next one before the response.
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 16 * 1024 * 1024
_PAUSE_BYTES: Final = 64 * 1024
_MOST_REFUSED: Final = 100  # Connections without a slot that get a response; others are cut.
_PROBE_AFTER_SECONDS: Final = 0.2


class _Waiting(Struct, frozen=True):
    """A request that waits for the ones before it. `response` is set if it was refused."""

    request: Received
    response: Response | None
    keep: bool
    since: float


class Connection(asyncio.Protocol):
    """Between a transport and the edge.

    While a request is answered, further data of the client waits, at most that of one read. A
    client that does not read its response gets no further one. Much data at once is handled in
    parts (`backlog.py`), and so is the data of all connections of a client while one has to wait.
    """

    __slots__ = (
        "_backlog",
        "_current",
        "_edge",
        "_ignored_bytes",
        "_in_backlog",
        "_in_place",
        "_loop",
        "_parser",
        "_paused",
        "_peer",
        "_phase",
        "_server_state",
        "_stream",
        "_transport",
        "_unparsed",
        "_unread_since",
        "_waiting",
        "_writer",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._edge: Edge = app_state["edge"]
        self._loop = _loop or asyncio.get_running_loop()
        self._server_state = server_state
        self._phase: Phase = OPEN
        self._current: Received | None = None
        self._stream: ResponseStream | None = None
        self._waiting: deque[_Waiting] = deque()
        self._unparsed = memoryview(b"")  # Received, but not parsed yet.
        self._paused = False
        self._backlog = self._edge.backlog.senders
        self._in_backlog = False
        self._in_place = 0  # Requests answered since other clients had a turn.
        self._unread_since: tuple[float, int] | None = None  # With the bytes sent by then.
        self._ignored_bytes = 0

    # Called by uvicorn and the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # The default for TLS is half a megabyte, and unread responses count only above it.
        self._transport.set_write_buffer_limits(_PAUSE_BYTES)
        address = transport.get_extra_info("peername")
        self._peer = client_at(str(address[0]) if address else "-")
        self._parser = RequestParser(self, self._edge, self._peer, self._loop.time)
        self._writer = ResponseWriter(self._transport, self._server_state)
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self._edge.descriptors.opened(socket.fileno())
        cast("set[Any]", self._server_state.connections).add(self)
        self._edge.connections.add(self)
        if not self._edge.slots.take(self):
            if len(self._edge.connections) - len(self._edge.slots) > _MOST_REFUSED:
                self.hang_up()
            else:
                self.refuse(BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """Accepted changes are still carried out; reads are dropped."""
        cast("set[Any]", self._server_state.connections).discard(self)
        self._edge.connections.discard(self)
        self._edge.slots.leave(self)
        self._edge.unread.resumed(self)
        self._phase = CLOSED
        self._peer.gone = True
        if self._current is not None:
            self._current.client.gone = True
        if self._stream is not None:
            self._stream.cancel()
            self._stream = self._current = None
        self._unparsed = memoryview(b"")
        while self._waiting:
            self._edge.release(self._waiting.popleft().request)
        self._parser.close()

    def data_received(self, data: bytes) -> None:
        if self._parser.state is ENDED:
            self.ignore(data)
        elif len(data) > SHARE_BYTES or (self._backlog and self.network in self._backlog):
            self._transport.pause_reading()
            self._unparsed = memoryview(bytes(self._unparsed) + data if self._unparsed else data)
            self._continue()
        else:
            self._in_place = 0
            self._parser.parse(data)

    def eof_received(self) -> bool:
        """A client may send its requests, close its half, and wait for the responses."""
        if self._unparsed:  # TLS delivers the end of the stream although reading is paused.
            ahead, self._unparsed = bytes(self._unparsed), memoryview(b"")
            self._parser.parse(ahead)
        self._parser.end()
        self._drain()
        waits = self._current is not None or bool(self._waiting)
        if not waits or self._transport.get_extra_info("sslcontext") is not None:
            return False
        self._loop.call_later(_PROBE_AFTER_SECONDS, self._probe().probe)
        return True

    def pause_writing(self) -> None:
        self._paused = True
        self._edge.unread.paused(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._paused = False
        self._edge.unread.resumed(self)
        self._parser.since = self._loop.time()
        if self._stream is not None:
            self._stream.request_piece()
        else:
            self._continue()

    def shutdown(self) -> None:
        """The server stops: finish the accepted requests, then close."""
        self._edge.stop()
        if self._phase is LINGERING:
            self.hang_up()
            return
        self._drain()
        if not (self._has_work or self._parser.has_head):
            self._close()

    def check(self, now: float) -> None:
        """Called by a timer: end a connection that sends, receives or is idle for too long."""
        settings, parser = self._edge.settings, self._parser
        written_bytes = self._writer.written_bytes
        sent_bytes = written_bytes - self._transport.get_write_buffer_size()
        if sent_bytes == written_bytes:
            self._unread_since = None
        elif self._unread_since is None:
            self._unread_since = now, sent_bytes
        if self._phase is LINGERING:
            if now - parser.since > LINGER_SECONDS:
                self.hang_up()
        elif self._unread_since is not None:
            since, before_bytes = self._unread_since
            if now - since > _patience(settings.slow_client_seconds, sent_bytes - before_bytes):
                self.hang_up()
        elif self._phase is CLOSED:
            return
        elif self._has_work:
            if self._current is not None:
                self._probe().check()
        elif parser.is_reading:
            if now - parser.since > _patience(settings.slow_client_seconds, parser.received_bytes):
                self.refuse(TOO_SLOW)
        elif now - parser.since > settings.idle_timeout_seconds:
            self._close()

    # For the limits that are shared with other connections.

    @property
    def network(self) -> str:
        return self._parser.client.network

    @property
    def idle_since(self) -> float | None:
        busy = self._parser.is_reading or self._has_work
        return None if busy or self._transport.get_write_buffer_size() else self._parser.since

    @property
    def stalled_since(self) -> float | None:
        if self._transport.get_write_buffer_size():
            return self._loop.time() if self._unread_since is None else self._unread_since[0]
        sends = self._in_backlog or (self._parser.is_reading and self._current is None)
        return self._parser.since if sends else None

    def close_idle(self) -> None:
        if self._phase is LINGERING:
            self.hang_up()
        else:
            self._close()

    # Called by the response stream and the probe.

    @property
    def takes_pieces(self) -> bool:
        return not self._paused and not self.is_closed

    @property
    def is_closed(self) -> bool:
        return self._phase is CLOSED

    @property
    def unanswered(self) -> Received | None:
        return self._current if self._stream is None else None

    # Called by the parser.

    def accept(self, request: Received, keep: bool) -> None:
        busy = self._current is not None or self._waiting or self._paused
        if busy or self._in_place >= MOST_IN_PLACE:
            if not self._waiting:
                self._transport.pause_reading()
            self._waiting.append(_Waiting(request, None, keep, self._parser.since))
            self._continue()
        else:
            self._in_place += 1
            self._answer(request, keep, self._parser.since)

    def refuse(self, response: Response, request: Received | None = None) -> None:
        """Send the last response on this connection, after those of earlier requests."""
        if self._parser.state is ENDED:
            return
        self._parser.end()
        request = request or Received("-", "-", client=self._peer)
        if self._current is not None or self._waiting:
            self._waiting.append(_Waiting(request, response, False, self._parser.since))
        else:
            self._send_last(request, response, self._parser.since)

    def expect(self) -> None:
        if self._current is None and not self._waiting:
            self._writer.send_continue()

    def ignore(self, data: bytes) -> None:
        self._ignored_bytes += len(data)
        if self._ignored_bytes > LINGER_BYTES:
            self.hang_up()

    # Called by the backlog.

    def take_share(self) -> bool:
        self._in_place = 0
        if self._waiting:
            self._answer_waiting()
        elif self._unparsed and not self.is_closed:
            share, self._unparsed = self._unparsed[:SHARE_BYTES], self._unparsed[SHARE_BYTES:]
            self._parser.parse(bytes(share))
        is_done = self.is_closed or not (self._waiting or self._unparsed)
        if not is_done and self._current is None and not self._paused:
            return True
        self._in_backlog = False
        if is_done and not self.is_closed:
            self._transport.resume_reading()
        return False

    # Answering.

    @property
    def _has_work(self) -> bool:
        return self._current is not None or bool(self._waiting) or bool(self._unparsed)

    def _answer(self, request: Received, keep: bool, since: float) -> None:
        answer = self._edge.answer(request)
        if isinstance(answer, Response):
            self._send(request, answer, keep, since)
            return

        def answered(response: Response) -> None:
            self._current = None
            if self.is_closed:
                self._edge.release(request)
            else:
                self._send(request, response, keep, since)
                self._continue()

        self._current = request
        self._edge.start(request, answer, answered)

    def _continue(self) -> None:
        """Handle waiting requests and data when the turn of this client comes."""
        must_wait = self._in_backlog or self._current is not None or self._paused
        if not must_wait and (self._waiting or self._unparsed):
            self._in_backlog = True
            self._edge.backlog.add(self.network, self)

    def _answer_waiting(self) -> None:
        while self._waiting and self._in_place < MOST_IN_PLACE:
            if self._current is not None or self._paused or self.is_closed:
                return
            self._in_place += 1
            next = self._waiting.popleft()
            if next.response is None:
                self._answer(next.request, next.keep, next.since)
            else:
                self._send_last(next.request, next.response, next.since)

    def _send(self, request: Received, response: Response, keep: bool, since: float) -> None:
        if request.held_bytes:
            self._edge.release(request)
        if self._phase is DRAINING and not self._waiting:
            keep = False
        if response.stream is not None and request.method != "HEAD":
            self._begin_stream(request, response, response.stream, keep, since)
        else:
            size = self._writer.send(request, response, keep)
            self._sent(request, response.status, size, keep, since)

    def _sent(self, request: Received, status: int, size: int, keep: bool, since: float) -> None:
        now = self._log(request, status, size, since)
        if not keep:
            self._close()
        elif not self._parser.is_reading:
            self._parser.since = now

    def _log(self, request: Received, status: int, size: int, since: float) -> float:
        """Write the line of the access log. Returns the current time."""
        now = self._loop.time()
        if self._edge.log is not None:
            self._edge.log(request, status, size, 1000 * (now - since), request.client.address)
        return now

    def _send_last(self, request: Received, response: Response, since: float) -> None:
        """Close only the server's half after it: closing both could drop the unread response."""
        self._writer.send_last(response)
        self._phase = LINGERING
        self._parser.since = self._log(request, response.status, len(response.body), since)
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def _begin_stream(
        self, request: Received, response: Response, body: BodyStream, keep: bool, since: float
    ) -> None:
        """Send the start of a large response. With HTTP/1.0, closing the connection ends it."""
        keep = keep and request.takes_chunks

        def ended(sent_bytes: int) -> None:
            self._stream = self._current = None
            if not self.is_closed:
                keeps = keep and not (self._phase is DRAINING and not self._waiting)
                self._sent(request, response.status, sent_bytes, keeps, since)
                self._continue()

        self._writer.begin_stream(request, response, keep)
        self._current = request
        self._stream = ResponseStream(self, self._edge, self._writer, request, body, ended)
        self._stream.begin(response.body)

    def _probe(self) -> ClientProbe:
        return ClientProbe(self, self._transport, self._writer, self._loop)

    # Closing.

    def _drain(self) -> None:
        if self._phase is OPEN:
            self._phase = DRAINING

    def _close(self) -> None:
        """Close the connection as soon as everything written is sent."""
        self._parser.end()
        self._phase = CLOSED
        self._transport.close()

    def hang_up(self) -> None:
        """Cut the connection and drop all unsent data."""
        self._parser.end()
        self._phase = CLOSED
        self._writer.abort()


def _patience(seconds: float, moved_bytes: int) -> float:
    return seconds + moved_bytes / SLOWEST_BYTES_PER_SECOND
