"""The half of a connection that reads: bytes become requests, within limits.

The parser is httptools, whose `on_...` callbacks these are. What a client can make the process hold
is bounded: one head, one body, and what one read brings. All bodies together, from their second
piece on until they are answered, may be as large as a few of the largest allowed (`Edge.hold`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httptools

from morag.api.http import Header, Request, Response
from morag.errors import RequestTooLarge
from morag.server.heads import HEAD_TOO_LARGE, NO_ROOM, NO_TUNNEL, plain

if TYPE_CHECKING:
    from morag.server.edge import Edge

_OFFERS: Final = (b"upgrade", b"http2-settings")


class Received(Request, gc=False):
    """A request, and how much of the room for large bodies it takes until it is answered."""

    held_bytes: int = 0


class Reading(asyncio.Protocol):
    """Calls `accept` with each request that is complete, and `refuse` with what ends it all."""

    __slots__ = (
        "_body",
        "_edge",
        "_fed_bytes",
        "_head_done",
        "_headers",
        "_held_bytes",
        "_loop",
        "_method",
        "_open",
        "_parser",
        "_reading",
        "_received_bytes",
        "_since",
        "_url",
    )

    def __init__(self, edge: Edge, loop: asyncio.AbstractEventLoop) -> None:
        self._edge = edge
        self._loop = loop
        self._open = True  # For more requests.
        self._since = loop.time()  # Since when what happens now goes on: reading, or nothing.
        self._parser = self._new_parser()
        self._held_bytes = 0
        self._method: str
        self._url: bytes
        self._headers: list[Header]
        self._body: bytes | bytearray
        self._reading: bool
        self._head_done: bool
        self._fed_bytes: int  # Since this request began, or since the last piece of its body.
        self._received_bytes: int
        self._start_over()

    def accept(self, request: Received, keep: bool) -> None:
        raise NotImplementedError

    def refuse(self, response: Response, request: Received | None = None) -> None:
        raise NotImplementedError

    def expect(self) -> None:
        """The client waits to be told that its body is welcome."""
        raise NotImplementedError

    def ignore(self, data: bytes) -> None:
        """It came after the last request that was to be read."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if not self._open:
            self.ignore(data)
            return
        while data and self._open:
            data = self._feed(data)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # Else it is a trailer, which nobody here understands.
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        self._method = self._parser.get_method().decode("ascii")
        if not self._open:
            return
        limit = self._edge.settings.max_head_bytes
        if self._fed_bytes > limit:  # Or is it the body, which came together with the head?
            size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
            if size > limit:
                self.refuse(HEAD_TOO_LARGE)
                return
        if self._method != "GET":
            self._await_body()

    def on_body(self, body: bytes) -> None:
        if not self._open:
            return
        self._fed_bytes = 0
        self._received_bytes += len(body)
        if self._received_bytes > self._edge.settings.max_request_bytes:
            self._refuse_body()
        elif not self._body:
            self._body = body
        elif self._hold(len(body)):
            if type(self._body) is not bytearray:
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        parser = self._parser
        if not self._open or parser.should_upgrade():
            return
        # A client of HTTP/1.0 that asks to go on would have to be told so; it is let go instead.
        keep = parser.should_keep_alive() and parser.get_http_version() == "1.1"
        if not keep:
            self._open = False
        self.accept(self._take(), keep)

    def end_reading(self) -> None:
        """Nothing more comes from this client. Lets go of all that was read."""
        self._open = False
        self._start_over()
        del self._parser  # It refers to us, and we to it.

    def _feed(self, data: bytes) -> bytes:
        """Have the parser read; what it has to read once more is returned."""
        if not self._reading:
            self._reading = True
            self._since = self._loop.time()
        self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_offer(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise  # It is our own fault: the event loop logs it and ends the connection.
        except httptools.HttpParserError as error:
            self.refuse(plain(400, f"This is not HTTP: {error}"))
            return b""
        # A head, or else the extension of a chunk, or trailers: the parser collects them.
        if self._fed_bytes > self._edge.settings.max_head_bytes:
            self.refuse(HEAD_TOO_LARGE)
        return b""

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What comes after a request that asked to close is ignored, instead of being an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _start_over(self) -> None:
        self._method, self._url, self._body = "", b"", b""
        self._headers = []
        self._head_done = self._reading = False
        self._fed_bytes = self._received_bytes = 0
        if self._held_bytes:
            self._edge.release(self._held_bytes)
            self._held_bytes = 0

    def _take(self) -> Received:
        """What was read so far, as a request."""
        url = self._url
        if not url.startswith(b"/"):
            url = _origin_form(url)
        path, _, query = url.decode("latin-1").partition("?")
        body, held_bytes = bytes(self._body), self._held_bytes
        request = Received(self._method, path, query, self._headers, body, held_bytes)
        self._held_bytes = 0
        self._start_over()
        return request

    def _take_head(self) -> Received:
        """What was read so far, to be told of only: the body is let go of."""
        self._edge.release(self._held_bytes)
        self._held_bytes = 0
        self._body = b""
        return self._take()

    def _await_body(self) -> None:
        """Refuse at once what is too large by its own account."""
        expected = False
        for name, value in self._headers:
            if name == b"content-length":
                if int(value) > self._edge.settings.max_request_bytes:
                    self._refuse_body()
                    return
            elif name == b"expect" and value.lower() == b"100-continue":
                expected = True
        if expected:
            self.expect()

    def _hold(self, more_bytes: int) -> bool:
        """Make sure that all the bodies fit into memory."""
        self._held_bytes += more_bytes
        if self._edge.hold(more_bytes):
            return True
        self.refuse(NO_ROOM, self._take_head())
        return False

    def _refuse_body(self) -> None:
        request = self._take_head()
        limit = self._edge.settings.max_request_bytes
        error = RequestTooLarge(f"The request body is larger than {limit} bytes")
        self.refuse(self._edge.failure(request, error), request)

    def _without_offer(self, rest: bytes) -> bytes:
        """What to read instead, to go on in HTTP/1.1, as a server may.

        The parser takes the request for complete at the end of its head, although clients that
        offer HTTP/2 (Java's can) send the body all the same. So a new parser gets to read the
        request without the offer.
        """
        if self._method == "CONNECT":
            self.refuse(NO_TUNNEL, self._take_head())
            return b""
        head = [self._method.encode() + b" " + self._url + b" HTTP/1.1"]
        head += [name + b": " + value for name, value in self._headers if name not in _OFFERS]
        self._start_over()
        self._parser = self._new_parser()
        return b"\r\n".join(head) + b"\r\n\r\n" + rest


def _origin_form(url: bytes) -> bytes:
    """Of `http://host/path?query`, as proxies are sent it, only the path and the query."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError:
        return url
    path = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path
