"""One client's connection: requests are answered in order, and nothing takes for ever.

uvicorn runs this in place of its own ASGI protocol; docs/decisions/0006-http-server.md says why. A
request that the API answers at once is answered within the call that delivered its last byte: no
task, no queue, no copy.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, cast

from morag.api.http import Response
from morag.server.client_address import client_at
from morag.server.heads import BUSY, CONTINUE, TOO_SLOW
from morag.server.reading import Received
from morag.server.writing import Writing

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState


SLOWEST_BYTES_PER_SECOND: Final = 16 * 1024
SHARE_BYTES: Final = 16 * 1024  # More is sent at once only with large bodies, or many requests.
MOST_IN_PLACE: Final = 4  # Requests; clients hardly ever send the next one before the answer.
_PAUSE_BYTES: Final = 64 * 1024
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 16 * 1024 * 1024
_MOST_REFUSED: Final = 100  # How many connections without a place get an answer; more are cut.
_PROBE_AFTER_SECONDS: Final = 0.2


class Connection(Writing):
    """Between a transport and the edge.

    While a request is being answered, what the client sends ahead waits, and no more of it than one
    read brought. A client that does not take its answer gets no other one. A client that sends more
    than usual at once has it handled in shares (`backlog.py`), and so have all of its connections
    as long as one of them has to wait.
    """

    __slots__ = (
        "_ahead",
        "_backlog",
        "_behind",
        "_ignored_bytes",
        "_in_backlog",
        "_in_place",
    )

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(app_state["edge"], _loop or asyncio.get_running_loop(), server_state)
        self._behind: tuple[float, int] | None = None  # Since when, and what it had taken by then.
        self._ignored_bytes = 0
        self._backlog = self._edge.backlog.senders
        self._in_backlog = False
        self._ahead = memoryview(b"")  # Received, but not parsed yet.
        self._in_place = 0  # How many requests were answered since others had a turn.

    # What uvicorn and the event loop call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # For TLS it would be half a megabyte, and answers that wait count only above this.
        self._transport.set_write_buffer_limits(_PAUSE_BYTES)
        peer = transport.get_extra_info("peername")
        self._client = self._asker = client_at(str(peer[0]) if peer else "-")
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self._edge.descriptors.opened(socket.fileno())
        cast("set[Any]", self._state.connections).add(self)
        self._edge.connections.add(self)
        if not self._edge.places.take(self):
            without_place = len(self._edge.connections) - len(self._edge.places)
            if without_place > _MOST_REFUSED:
                self._abort()
            else:
                self.refuse(BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """Accepted changes are carried out all the same; reads are given up."""
        cast("set[Any]", self._state.connections).discard(self)
        self._edge.connections.discard(self)
        self._edge.places.leave(self)
        self._edge.unread.resumed(self)
        self._closing = True
        self._client.gone = True
        if self._current is not None:
            self._current.client.gone = True
        if self._stream is not None:
            self._end_stream()
        self._ahead = memoryview(b"")
        while self._waiting:
            self._edge.release(self._waiting.popleft()[0])
        self.end_reading()

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self.ignore(data)
        elif len(data) > SHARE_BYTES or (self._backlog and self._asker.network in self._backlog):
            self._transport.pause_reading()
            self._ahead = memoryview(bytes(self._ahead) + data if self._ahead else data)
            self._go_on()
        else:
            self._in_place = 0
            self.parse(data)

    def ignore(self, data: bytes) -> None:
        self._ignored_bytes += len(data)
        if self._ignored_bytes > LINGER_BYTES:
            self._abort()

    def eof_received(self) -> bool:
        """A client may say all it has to say, close its half, and wait for the answer."""
        if self._ahead:  # TLS delivers the end of the stream although reading is paused.
            ahead, self._ahead = bytes(self._ahead), memoryview(b"")
            self.parse(ahead)
        self._open = False
        self._ending = True
        waits = self._answering or bool(self._waiting)
        if not waits or self._transport.get_extra_info("sslcontext") is not None:
            return False
        self._loop.call_later(_PROBE_AFTER_SECONDS, self._probe_reader)
        return True

    def pause_writing(self) -> None:
        self._paused = True
        self._edge.unread.paused(self, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._paused = False
        self._edge.unread.resumed(self)
        self._since = self._loop.time()
        if self._stream is not None:
            self._ask_for_piece(self._stream)
        else:
            self._go_on()

    def shutdown(self) -> None:
        """The server is to stop: finish what was accepted, then close."""
        self._edge.stop()
        self._ending = True
        if self._lingering:
            self._abort()
        elif not (self._answering or self._waiting or self._ahead or self._head_done):
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
        elif self._answering or self._waiting or self._ahead or self._closing:
            if self._answering and not self._closing:
                self._check_reader()
        elif self._reading:
            if now - self._since > _patience(settings.slow_client_seconds, self._received_bytes):
                self.refuse(TOO_SLOW)
        elif now - self._since > settings.idle_timeout_seconds:
            self._close()

    # For the limits that are shared with other connections.

    @property
    def network(self) -> str:
        return self._asker.network

    @property
    def idle_since(self) -> float | None:
        busy = self._reading or self._answering or self._waiting or self._ahead
        return None if busy or self._transport.get_write_buffer_size() else self._since

    @property
    def stalled_since(self) -> float | None:
        if self._transport.get_write_buffer_size():
            return self._loop.time() if self._behind is None else self._behind[0]
        sends = self._in_backlog or (self._reading and not self._answering)
        return self._since if sends else None

    def close_idle(self) -> None:
        if self._lingering:
            self._abort()
        else:
            self._close()

    def hang_up(self) -> None:
        self._abort()

    # What reading leads to.

    def accept(self, request: Received, keep: bool) -> None:
        if self._answering or self._waiting or self._paused or self._in_place >= MOST_IN_PLACE:
            if not self._waiting:
                self._transport.pause_reading()
            self._waiting.append((request, None, keep, self._since))
            self._go_on()
        else:
            self._in_place += 1
            self._answer(request, keep, self._since)

    def refuse(self, response: Response, request: Received | None = None) -> None:
        """The last answer on this connection, after those that are due before it."""
        if not self._open:
            return
        self._open = self._reading = False
        if self._answering or self._waiting:
            self._waiting.append((request or self._unreadable(), response, False, self._since))
        else:
            self._send_last(request or self._unreadable(), response, self._since)

    def expect(self) -> None:
        if not self._answering and not self._waiting:
            self._written_bytes += len(CONTINUE)
            self._transport.write(CONTINUE)

    # Answering.

    def _answer(self, request: Received, keep: bool, since: float) -> None:
        try:
            answer = self._edge.answer(request)
        except Exception as error:  # noqa: BLE001 - It is logged, and the client gets an answer.
            answer = self._edge.broken(request, error)
        if isinstance(answer, Response):
            self._dress(request, answer, keep, since)
            return

        def answered(response: Response) -> None:
            self._answering = False
            self._current = None
            if self._closing:
                self._edge.release(request)
            else:
                self._dress(request, response, keep, since)
                self._go_on()

        self._answering = True
        self._current = request
        self._edge.start(request, answer, answered)

    def _dress(self, request: Received, response: Response, keep: bool, since: float) -> None:
        try:
            dressed = self._edge.dressed(request, response)
        except Exception as error:  # noqa: BLE001 - It is logged, and the client gets an answer.
            dressed = self._edge.broken(request, error)
        if isinstance(dressed, Response):
            self._send(request, dressed, keep, since)
            return

        def packed(response: Response) -> None:
            self._answering = False
            if self._closing:
                self._edge.release(request)
            else:
                self._send(request, response, keep, since)
                self._go_on()

        self._answering = True
        self._edge.start(request, dressed, packed)

    def _go_on(self) -> None:
        """With what was sent ahead, when it is this client's turn."""
        held_up = self._in_backlog or self._answering or self._paused
        if not held_up and (self._waiting or self._ahead):
            self._in_backlog = True
            self._edge.backlog.add(self.network, self)

    def take_share(self) -> bool:
        self._in_place = 0
        if self._waiting:
            self._answer_waiting()
        elif self._ahead and not self._closing:
            share, self._ahead = self._ahead[:SHARE_BYTES], self._ahead[SHARE_BYTES:]
            self.parse(bytes(share))
        is_done = self._closing or not (self._waiting or self._ahead)
        if not is_done and not self._answering and not self._paused:
            return True
        self._in_backlog = False
        if is_done and not self._closing:
            self._transport.resume_reading()
        return False

    def _answer_waiting(self) -> None:
        while self._waiting and self._in_place < MOST_IN_PLACE:
            if self._answering or self._paused or self._closing:
                return
            self._in_place += 1
            request, response, keep, since = self._waiting.popleft()
            if response is None:
                self._answer(request, keep, since)
            else:
                self._send_last(request, response, since)

    def _unreadable(self) -> Received:
        return Received("-", "-", client=self._client)


def _patience(seconds: float, moved_bytes: int) -> float:
    return seconds + moved_bytes / SLOWEST_BYTES_PER_SECOND
