"""One client's connection: bytes become requests, answers become bytes, in order and in time.

uvicorn runs this in place of its own ASGI protocol (docs/decisions/0006-http-server.md says why).
The parser is httptools, as there. A request that the API answers at once is answered within the
call that delivered its last byte: no task, no queue, no copy.

A client can hold no more than: one head, one body, one answer, and the requests of one read that
it sent ahead. `check` is called now and then and ends what takes too long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools

from morag.api.http import Header, Request, Response
from morag.errors import RequestTooLarge
from morag.server.heads import CONTINUE, head

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

    from morag.server.edge import Edge

SLOWEST_BYTES_PER_SECOND: Final = 16 * 1024
LINGER_SECONDS: Final = 5.0
LINGER_BYTES: Final = 16 * 1024 * 1024
_NO_HEADERS: Final[tuple[Header, ...]] = ()
_BUSY: Final = Response(503, b"Too many connections\n", ((b"retry-after", b"1"),))
_HEAD_TOO_LARGE: Final = Response(431, b"The request line and headers are too large\n")
_TOO_SLOW: Final = Response(408, b"The request took too long to arrive\n")
_NO_TUNNEL: Final = Response(405, b"This is no proxy\n")


class Connection(asyncio.Protocol):
    __slots__ = (
        "_answering",
        "_body",
        "_client",
        "_closing",
        "_edge",
        "_general",
        "_general_from",
        "_head_bytes",
        "_head_done",
        "_headers",
        "_keep",
        "_lingered_bytes",
        "_lingering",
        "_loop",
        "_method",
        "_parser",
        "_reading",
        "_received_bytes",
        "_since",
        "_state",
        "_stopping",
        "_tls",
        "_transport",
        "_unsent_bytes",
        "_url",
        "_waiting",
        "_writing_since",
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
        self._state = server_state
        self._general = b""
        self._general_from: object = None
        self._transport: asyncio.Transport
        self._client = "-"
        self._tls = False
        self._parser = self._new_parser()

        # The request that is being read.
        self._reading = False
        self._head_done = False
        self._head_bytes = 0
        self._received_bytes = 0
        self._method = "GET"
        self._url = b""
        self._headers: list[Header] = []
        self._body: bytes | bytearray = b""

        # What happens to those that are complete.
        self._answering = False
        self._waiting: deque[tuple[Request | Response, bool, float]] = deque()
        self._writing_since: float | None = None
        self._unsent_bytes = 0
        self._since = self._loop.time()

        # The end.
        self._keep = True
        self._closing = self._lingering = self._stopping = False
        self._lingered_bytes = 0

    # What uvicorn and the event loop call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert not TYPE_CHECKING or isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._tls = transport.get_extra_info("sslcontext") is not None
        peer = transport.get_extra_info("peername")
        self._client = str(peer[0]) if peer else "-"
        connections: set[Any] = self._state.connections
        connections.add(self)
        self._edge.connections.add(self)
        if len(connections) > self._edge.settings.max_connections:
            self._refuse(_BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        """What was accepted goes on; only its answer has nowhere to go."""
        connections: set[Any] = self._state.connections
        connections.discard(self)
        self._edge.connections.discard(self)
        self._closing = True
        self._waiting.clear()
        self._headers, self._body = [], b""
        del self._parser  # It refers to us, and we to it.

    def data_received(self, data: bytes) -> None:
        if self._lingering or not self._keep:
            self._ignore(data)
            return
        if not self._reading:
            self._reading = True
            self._since = self._loop.time()
        if not self._head_done:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(Response(400, f"Not an HTTP request: {error}\n".encode()))
            return
        if not self._head_done and self._head_bytes > self._edge.settings.max_head_bytes:
            self._refuse(_HEAD_TOO_LARGE)

    def eof_received(self) -> bool:
        """A client may send all it has to say, close its half, and wait for the answer."""
        if not self._answering and not self._waiting:
            return False
        self._keep = False
        return not self._tls  # TLS has no half-closed connections.

    def pause_writing(self) -> None:
        self._writing_since = self._loop.time()
        self._unsent_bytes = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._writing_since = None
        self._since = self._loop.time()
        self._go_on()

    def shutdown(self) -> None:
        """The server is to stop: finish what was accepted, then close."""
        self._edge.stop()
        self._stopping = True
        if not self._answering and not self._waiting and not self._head_done:
            self._close()

    # What the parser calls.

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_done:  # Else it is a trailer, which nobody here understands.
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._head_done = True
        self._method = self._parser.get_method().decode("ascii")
        if self._head_bytes > self._edge.settings.max_head_bytes:
            size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
            if size > self._edge.settings.max_head_bytes:
                self._refuse(_HEAD_TOO_LARGE)
                return
        if self._method != "GET":
            self._expect_body()

    def on_body(self, body: bytes) -> None:
        if not self._keep:
            return
        self._received_bytes += len(body)
        if self._received_bytes > self._edge.settings.max_request_bytes:
            self._refuse_body()
        elif not self._body:
            self._body = body
        elif type(self._body) is bytearray:
            self._body += body
        else:
            self._body = bytearray(self._body) + body

    def on_message_complete(self) -> None:
        parser = self._parser
        if not self._keep or parser.should_upgrade():
            return
        keep = parser.should_keep_alive() and parser.get_http_version() == "1.1"
        request = self._take_request()
        if self._answering or self._waiting or self._writing_since is not None:
            if not self._waiting:
                self._transport.pause_reading()
            self._waiting.append((request, keep, self._since))
        else:
            self._answer(request, keep, self._since)
        self._keep = self._keep and keep

    # What the server calls now and then.

    def check(self, now: float) -> None:
        """End what takes too long: sending, receiving, or doing neither."""
        settings = self._edge.settings
        unsent = self._transport.get_write_buffer_size()
        if self._lingering:
            if now - self._since > LINGER_SECONDS:
                self._transport.abort()
        elif unsent:
            if self._writing_since is None:
                self._writing_since, self._unsent_bytes = now, unsent
            sent = max(0, self._unsent_bytes - unsent)
            if now - self._writing_since > _patience(settings.slow_client_seconds, sent):
                self._transport.abort()
        elif self._answering or self._waiting or self._closing:
            pass
        elif self._reading:
            patience = _patience(settings.slow_client_seconds, self._received_bytes)
            if now - self._since > patience:
                self._refuse(_TOO_SLOW)
        elif now - self._since > settings.idle_timeout_seconds:
            self._close()

    # Reading.

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # What comes after a request that asked to close is ignored instead of being an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _take_request(self) -> Request:
        """Of what was read, and make room for the next."""
        url = self._url
        if not url.startswith(b"/"):
            url = _origin_form(url)
        path, _, query = url.decode("latin-1").partition("?")
        request = Request(self._method, path, query, self._headers, bytes(self._body))
        self._url, self._headers, self._body = b"", [], b""
        self._head_done = self._reading = False
        self._head_bytes = self._received_bytes = 0
        return request

    def _expect_body(self) -> None:
        """Refuse early what is too large by its own account; send on who waits to be told."""
        expects = False
        for name, value in self._headers:
            if name == b"content-length":
                if int(value) > self._edge.settings.max_request_bytes:
                    self._refuse_body()
                    return
            elif name == b"expect" and value.lower() == b"100-continue":
                expects = True
        if expects and not self._answering and not self._waiting:
            self._transport.write(CONTINUE)

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Go on in HTTP/1.1, as a server may.

        The parser takes the request for complete at the end of its head, although clients that
        offer HTTP/2 (Java's does) send the body all the same. So it gets to read it once more,
        without the offer.
        """
        if self._method == "CONNECT":
            self._refuse(_NO_TUNNEL)
            return
        lines = [f"{self._method} ".encode() + self._url + b" HTTP/1.1"]
        lines += [
            name + b": " + value
            for name, value in self._headers
            if name not in (b"upgrade", b"http2-settings")
        ]
        self._url, self._headers, self._head_done = b"", [], False
        self._head_bytes = 0
        self._parser = self._new_parser()
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _refuse_body(self) -> None:
        request = self._take_request()
        limit = self._edge.settings.max_request_bytes
        error = RequestTooLarge(f"The request body is larger than {limit} bytes")
        self._refuse(self._edge.failure(request, error), request)

    def _refuse(self, response: Response, request: Request | None = None) -> None:
        """The last answer on this connection, after those that are due before it."""
        if not self._keep:
            return
        self._keep = False
        self._reading = False
        if self._answering or self._waiting:
            self._waiting.append((response, False, self._since))
        else:
            self._send_last(response)

    def _ignore(self, data: bytes) -> None:
        self._lingered_bytes += len(data)
        if self._lingered_bytes > LINGER_BYTES:
            self._transport.abort()

    # Answering.

    def _answer(self, request: Request, keep: bool, since: float) -> None:
        answer = self._edge.answer(request)
        if type(answer) is Response:
            self._dress(request, answer, keep, since)
            return
        self._answering = True
        self._edge.start(answer, lambda response: self._answered(request, response, keep, since))

    def _answered(self, request: Request, response: Response, keep: bool, since: float) -> None:
        self._answering = False
        if self._closing:
            return
        self._dress(request, response, keep, since)
        self._go_on()

    def _dress(self, request: Request, response: Response, keep: bool, since: float) -> None:
        dressed = self._edge.dressed(request, response)
        if type(dressed) is Response:
            self._send(request, dressed, keep, since)
            return
        self._answering = True

        def packed(response: Response) -> None:
            self._answering = False
            if not self._closing:
                self._send(request, response, keep, since)
                self._go_on()

        self._edge.start(dressed, packed)

    def _go_on(self) -> None:
        """With the requests that were sent ahead."""
        if not self._waiting:
            return
        while self._waiting and not self._answering and self._writing_since is None:
            request, keep, since = self._waiting.popleft()
            if self._closing:
                return
            if isinstance(request, Response):
                self._send_last(request)
            else:
                self._answer(request, keep, since)
        if not self._waiting and not self._closing:
            self._transport.resume_reading()

    def _send(self, request: Request, response: Response, keep: bool, since: float) -> None:
        keep = keep and not self._stopping
        body = response.body
        bare = response.status in (204, 304)
        top = head(
            response.status,
            response.headers,
            None if bare else len(body),
            self._general_lines(),
            keep,
        )
        if bare or request.method == "HEAD":
            body = b""
        if len(body) < 16_384:
            self._transport.write(top + body)
        else:
            self._transport.writelines([top, body])
        now = self._loop.time()
        if self._edge.log is not None:
            self._edge.log(
                request, response.status, len(body), 1000 * (now - since), self._client
            )
        if not self._reading:
            self._since = now
        if not keep:
            self._close()

    def _send_last(self, response: Response) -> None:
        """And then let the client read it: closing at once would discard it on its way."""
        self._transport.write(
            head(response.status, response.headers, len(response.body), self._general_lines(), False)
            + response.body
        )
        self._lingering = True
        self._since = self._loop.time()
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
        self._keep = False
        self._closing = True
        self._transport.close()


def _patience(seconds: float, moved_bytes: int) -> float:
    return seconds + moved_bytes / SLOWEST_BYTES_PER_SECOND


def _origin_form(url: bytes) -> bytes:
    """Of `http://host/path?query`, as proxies are sent it, only the path and the query."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError:
        return url
    path = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path
