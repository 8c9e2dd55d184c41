"""Finds out whether a client that waits for its response is still connected.

The transport does not notice while it does not read: after the client closed its half, or while
further requests of the client wait.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio

    from morag.server.request_parser import Received
    from morag.server.response_writer import ResponseWriter

_RESET_SECONDS: Final = 0.05
_SILENT_SECONDS: Final = 5.0  # For HTTP/1.0 clients that closed their half.
_CLOSED_ITS_HALF: Final = getattr(select, "POLLRDHUP", 0)  # Only Linux reports it.


class Probed(Protocol):
    """The connection of the client."""

    @property
    def is_closed(self) -> bool: ...

    @property
    def unanswered(self) -> Received | None:
        """The current request, until the first part of its response is sent."""
        ...

    def hang_up(self) -> None: ...


class ClientProbe:
    __slots__ = ("_connection", "_loop", "_transport", "_writer")

    def __init__(
        self,
        connection: Probed,
        transport: asyncio.Transport,
        writer: ResponseWriter,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._transport = transport
        self._writer = writer
        self._loop = loop

    def check(self) -> None:
        """Hang up if the client has closed both halves of its connection."""
        socket = self._transport.get_extra_info("socket")
        if self._connection.is_closed or socket is None:
            return
        poll = select.poll()
        poll.register(socket.fileno(), _CLOSED_ITS_HALF)  # Errors and hang-ups are always reported.
        for _, events in poll.poll(0):
            if events & (select.POLLHUP | select.POLLERR):
                self._connection.hang_up()
            else:
                self.probe()

    def probe(self) -> None:
        """Find out whether a client that closed its half still reads.

        A client that closed both halves looks the same until the server sends data, which its
        system answers with a reset. So a client that waits gets an interim response. It is 100,
        because Python's http.client and older versions of Java's HttpURLConnection take any other
        one for the final response. HTTP/1.0 has none: reads of its clients end after a time-out.
        """
        request = self._connection.unanswered
        if self._connection.is_closed or request is None or request.is_probed:
            return
        request.is_probed = True
        if request.takes_chunks:
            self._writer.send_continue()
            self._loop.call_later(_RESET_SECONDS, self.check)
        elif request.method in ("GET", "HEAD"):  # Changes are carried out anyway.
            self._loop.call_later(_SILENT_SECONDS, self._give_up, request)

    def _give_up(self, request: Received) -> None:
        """End a read whose client closed its half, unless its response has begun."""
        if self._connection.unanswered is request and not self._connection.is_closed:
            self._connection.hang_up()
