"""The half of a connection that reads: bytes become requests, within limits.

The parser is httptools, whose `on_...` callbacks these are. What a client can make the process hold
is bounded: one head, one body, and what one read brings. Bodies count from their second piece on
until they are answered, and there is room for a few of the largest allowed (`large_bodies.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import httptools

from morag.api.http import Client, Header, Request, Response
from morag.errors import MoragError, RequestTooLarge
from morag.server.heads import (
    CODING_TOO_NEW,
    CODING_UNKNOWN,
    HEAD_TOO_LARGE,
    NO_HOST,
    NO_ROOM,
    NO_TUNNEL,
    TWO_HOSTS,
    VERSION_UNKNOWN,
    plain,
)

if TYPE_CHECKING:
    from morag.server.edge import Edge

_CHECKED: Final = frozenset((b"host", b"transfer-encoding", b"origin", b"sec-fetch-site"))
_VERSIONS: Final = ("1.1", "1.0")
_OFFERS: Final = (b"upgrade", b"http2-settings")


class Received(Request, gc=False):
    """A request, and how much of the room for large bodies it takes until it is answered."""

    held_bytes: int = 0
    takes_chunks: bool = True
    is_probed: bool = False  # Whether its client was asked for a sign of life.


class Reading(asyncio.Protocol):
    """Calls `accept` with each request that is complete, and `refuse` with what ends it all."""

    __slots__ = (
        "_asker",
        "_body",
        "_client",
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
        "_version",
    )

    def __init__(self, edge: Edge, loop: asyncio.AbstractEventLoop) -> None:
        self._edge = edge
        self._client = Client()  # At the other end of the connection, perhaps a proxy.
        self._asker = self._client  # The client of the latest request.
        self._loop = loop
        self._open = True  # For more requests.
        self._since = loop.time()  # Since when what happens now goes on: reading, or nothing.
        self._parser = self._new_parser()
        self._held_bytes = 0
        self._method: str
        self._url: bytes
        self._version: str
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
        """Answer a client that waits for permission to send its body."""
        raise NotImplementedError

    def ignore(self, data: bytes) -> None:
        """Drop data that came after the last request that was to be read."""
        raise NotImplementedError

    def parse(self, data: bytes) -> None:
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
        self._asker = self._edge.client_addresses.client(self._client, self._headers)
        limit = self._edge.settings.max_head_bytes
        if self._fed_bytes > limit:  # Or is it the body, which came together with the head?
            size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
            if size > limit:
                self.refuse(HEAD_TOO_LARGE)
                return
        self._version = self._parser.get_http_version()
        if self._method == "CONNECT":  # Not in `_admit`, which looks at few requests closely.
            self.refuse(NO_TUNNEL, self._take_head())
        elif self._admit() and self._method != "GET":
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
        # A client of HTTP/1.0 goes on only if the answer says so; ours says that we close.
        keep = parser.should_keep_alive() and self._version == "1.1"
        if not keep:
            self._open = False
        self.accept(self._take(), keep)

    def end_reading(self) -> None:
        """Nothing more comes from this client: drop all that was read."""
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
        self._release()

    def _take(self) -> Received:
        """The request as far as it was read."""
        url = self._url
        if not url.startswith(b"/"):
            url = _origin_form(url)
        path, _, query = url.decode("latin-1").partition("?")
        body, held_bytes = bytes(self._body), self._held_bytes
        request = Received(
            self._method,
            path,
            query,
            self._headers,
            body,
            self._asker,
            held_bytes,
            self._version == "1.1",
        )
        self._held_bytes = 0
        self._start_over()
        return request

    def _take_head(self) -> Received:
        """The request as far as it was read, without its body, to be refused."""
        self._release()
        self._body = b""
        return self._take()

    def _admit(self) -> bool:
        """Refuse a request that is wrong by its head alone.

        Nearly all requests have one header that is checked, a known Host. The check is a loop
        because in Python 3.11 anything else takes a microsecond.
        """
        known, named = self._edge.admission.known_hosts, False
        for header in self._headers:
            if header[0] in _CHECKED:
                if named or header not in known:
                    return self._admit_unusual()
                named = True
        usual = named and self._version == "1.1" and self._url.startswith(b"/")
        return usual or self._admit_unusual()

    def _admit_unusual(self) -> bool:
        problem = self._head_problem()
        if problem is not None:
            self.refuse(problem, self._take_head())
            return False
        try:
            self._edge.admission.check(self._method, self._url, self._headers)
        except MoragError as error:
            request = self._take_head()
            self.refuse(self._edge.failure(request, error), request)
            return False
        return True

    def _head_problem(self) -> Response | None:
        """Find what the parser accepts but proxies on the way may understand differently."""
        if self._version not in _VERSIONS:
            return VERSION_UNKNOWN
        hosts = sum(name == b"host" for name, _ in self._headers)
        if hosts > 1:
            return TWO_HOSTS
        if not hosts and self._version == "1.1":
            return NO_HOST
        codings = [value for name, value in self._headers if name == b"transfer-encoding"]
        if codings and self._version == "1.0":
            return CODING_TOO_NEW
        if any(coding.strip().lower() != b"chunked" for coding in codings):
            return CODING_UNKNOWN
        return None

    def _await_body(self) -> None:
        """Refuse a body at once if its Content-Length is too large."""
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
        if self._edge.large_bodies.hold(self._asker.network, more_bytes):
            return True
        self.refuse(NO_ROOM, self._take_head())
        return False

    def _release(self) -> None:
        if self._held_bytes:
            self._edge.large_bodies.release(self._asker.network, self._held_bytes)
            self._held_bytes = 0

    def _refuse_body(self) -> None:
        request = self._take_head()
        limit = self._edge.settings.max_request_bytes
        error = RequestTooLarge(f"The request body is larger than {limit} bytes")
        self.refuse(self._edge.failure(request, error), request)

    def _without_offer(self, rest: bytes) -> bytes:
        """The data to read instead, to go on in HTTP/1.1, as a server may.

        The parser takes the request for complete at the end of its head, although clients that
        offer HTTP/2 (Java's can) send the body all the same. So a new parser gets to read the
        request without the offer.
        """
        if not self._open:
            return b""
        line = b"%b %b HTTP/%b" % (self._method.encode(), self._url, self._version.encode())
        kept = [header for header in self._headers if header[0] not in _OFFERS]
        if len(kept) == len(self._headers):  # The new parser would stop at the same place.
            self.refuse(plain(400, "This is not HTTP: an upgrade without an offer"))
            return b""
        head = [line, *(name + b": " + value for name, value in kept)]
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
