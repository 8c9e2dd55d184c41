"""The half of a connection that writes: answers, whole or in pieces, perhaps to nobody."""

from __future__ import annotations

import select
import struct
from collections import deque
from contextlib import suppress
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.api.http import Rest
from morag.server.heads import CHUNKED, CONTINUE, LAST_CHUNK, chunk, head
from morag.server.reading import Reading, Received

if TYPE_CHECKING:
    import asyncio

    from uvicorn.server import ServerState

    from morag.api.http import Response
    from morag.server.edge import Edge

_COPY_BYTES: Final = 16 * 1024
_RESET: Final = struct.pack("ii", 1, 0)
_RESET_SECONDS: Final = 0.05
_SILENT_SECONDS: Final = 5.0  # For clients of HTTP/1.0 that closed their half and cannot be probed.
_CLOSED_ITS_HALF: Final = getattr(select, "POLLRDHUP", 0)  # Only Linux reports it.


class Stream(Struct):
    """An answer on its way to a client, piece by piece.

    At most one piece is `asked` for at a time, and none while the client reads another.
    """

    request: Received
    rest: Rest
    status: int
    keep: bool
    since: float
    sent_bytes: int = 0
    asked: bool = False

    def framed(self, piece: bytes, is_last: bool) -> bytes:
        """The piece as it is sent. An empty chunk would be taken for the end."""
        if not self.request.takes_chunks:
            return piece
        framed = chunk(piece) if piece else b""
        return framed + LAST_CHUNK if is_last else framed


class Writing(Reading):
    """Sends one answer at a time. Its transport and the requests that wait are the connection's."""

    __slots__ = (
        "_answering",
        "_closing",
        "_current",
        "_ending",
        "_general",
        "_general_from",
        "_lingering",
        "_paused",
        "_state",
        "_stream",
        "_transport",
        "_waiting",
        "_written_bytes",
    )

    def __init__(
        self, edge: Edge, loop: asyncio.AbstractEventLoop, server_state: ServerState
    ) -> None:
        super().__init__(edge, loop)
        self._state = server_state
        self._general = b""
        self._general_from: object = None
        self._transport: asyncio.Transport
        self._answering = False
        self._current: Received | None = None  # While it is being answered.
        self._stream: Stream | None = None  # While its answer follows in pieces.
        self._waiting: deque[tuple[Received, Response | None, bool, float]] = deque()
        self._paused = False  # Because the client does not take what is there already.
        self._written_bytes = 0
        self._closing = self._lingering = False
        self._ending = False  # After what was accepted, because the client or we want to stop.

    def _go_on(self) -> None:
        """With the requests that were sent ahead."""
        raise NotImplementedError

    def _send(self, request: Received, response: Response, keep: bool, since: float) -> None:
        if request.held_bytes:
            self._edge.release(request)
        if self._ending and not self._waiting:
            keep = False
        if response.rest is not None and request.method != "HEAD":
            self._begin_stream(request, response, response.rest, keep, since)
            return
        status, body = response.status, response.body
        length: int | None = len(body) if response.rest is None else None
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
        self._sent(request, status, len(body), keep, since)

    def _sent(self, request: Received, status: int, size: int, keep: bool, since: float) -> None:
        now = self._loop.time()
        if self._edge.log is not None:
            self._edge.log(request, status, size, 1000 * (now - since), request.client.address)
        if not keep:
            self._close()
        elif not self._reading:
            self._since = now

    def _begin_stream(
        self, request: Received, response: Response, rest: Rest, keep: bool, since: float
    ) -> None:
        """Send the start of a large answer. A client of HTTP/1.0 sees its end by our hanging up."""
        keep = keep and request.takes_chunks
        headers = response.headers + ((CHUNKED,) if request.takes_chunks else ())
        top = head(response.status, headers, None, self._general_lines(), keep)
        stream = Stream(request, rest, response.status, keep, since)
        self._stream, self._current = stream, request
        self._answering = True
        self._edge.begin_stream()
        self._written_bytes += len(top)
        self._transport.write(top)
        self._send_piece(stream, response.body, False)

    def _send_piece(self, stream: Stream, piece: bytes, is_last: bool) -> None:
        if stream is not self._stream:
            return  # The client hung up meanwhile.
        stream.sent_bytes += len(piece)
        sent = stream.framed(piece, is_last)
        self._written_bytes += len(sent)
        self._transport.write(sent)
        if is_last:
            self._end_stream()
            if not self._closing:
                keep = stream.keep and not (self._ending and not self._waiting)
                self._sent(stream.request, stream.status, stream.sent_bytes, keep, stream.since)
                self._go_on()
        elif not self._paused:
            self._ask_for_piece(stream)

    def _ask_for_piece(self, stream: Stream) -> None:
        if stream.asked or self._closing:
            return
        stream.asked = True

        def made(piece: bytes, is_last: bool) -> None:
            stream.asked = False
            self._send_piece(stream, piece, is_last)

        def failed() -> None:
            if stream is self._stream:
                self._abort()  # Or the client would take what it has for the whole.

        self._edge.next_piece(stream.rest, made, failed)

    def _end_stream(self) -> None:
        self._stream = self._current = None
        self._answering = False
        self._edge.end_stream()

    def _probe_reader(self) -> None:
        """Find out whether a client that closed its half still reads.

        A client that closed both looks just the same, until it is sent something: its system
        answers that with a reset. So a client that has to wait gets an interim response: 100,
        because Python's http.client and older versions of Java's HttpURLConnection take any other
        one for the answer. HTTP/1.0 has none: its clients wait for a limited time.
        """
        current = self._current
        if self._closing or self._stream is not None or current is None or current.is_probed:
            return
        current.is_probed = True
        if current.takes_chunks:
            self._written_bytes += len(CONTINUE)
            self._transport.write(CONTINUE)
            self._loop.call_later(_RESET_SECONDS, self._check_reader)
        elif current.method in ("GET", "HEAD"):  # Changes are made anyway, and worth an answer.
            self._loop.call_later(_SILENT_SECONDS, self._give_up, current)

    def _give_up(self, request: Received) -> None:
        """End a read whose client closed its half, unless its answer has begun."""
        if self._current is request and self._stream is None and not self._closing:
            self._abort()

    def _check_reader(self) -> None:
        """End a request whose client has closed both halves of its connection.

        The transport itself does not notice while it reads nothing: after one half was closed, or
        while requests that were sent ahead wait.
        """
        socket = self._transport.get_extra_info("socket")
        if self._closing or socket is None:
            return
        poll = select.poll()
        poll.register(socket.fileno(), _CLOSED_ITS_HALF)  # Errors and hang-ups are always reported.
        for _, events in poll.poll(0):
            if events & (select.POLLHUP | select.POLLERR):
                self._abort()
            else:
                self._probe_reader()

    def _send_last(self, request: Received, response: Response, since: float) -> None:
        """Close only our half after it: closing both at once could drop the unread answer."""
        length = len(response.body)
        top = head(response.status, response.headers, length, self._general_lines(), False)
        self._written_bytes += len(top) + length
        self._transport.write(top + response.body)
        self._lingering = True
        now = self._loop.time()
        if self._edge.log is not None:
            client = request.client.address
            self._edge.log(request, response.status, length, 1000 * (now - since), client)
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
        """Close the connection as soon as everything written is sent."""
        self._open = False
        self._closing = True
        self._transport.close()

    def _abort(self) -> None:
        """Cut the connection. The reset makes the kernel drop unsent data instead of retrying."""
        self._open = False
        self._closing = True
        socket = self._transport.get_extra_info("socket")
        if socket is not None:  # As it is of a transport that is closed already.
            with suppress(OSError):
                socket.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
        self._transport.abort()
