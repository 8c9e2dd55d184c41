"""The request parser of a connection: bytes become requests, within limits.

It is built on httptools, whose callbacks are the `on_...` methods. The memory that a client can
occupy is limited: one head, one body, and the bytes of one read. A body counts from its second
piece until it is answered, and a few of the largest allowed bodies fit into the limit
(`memory_limits.py`). Most GET requests were received before, byte by byte, and are not parsed again
(`repeated_requests.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import httptools

from morag.api.http import Memo, Request
from morag.errors import MoragError, RequestTooLarge
from morag.server.connection_states import BODY, ENDED, HEAD, IDLE, ReadState
from morag.server.fixed_responses import (
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
    from collections.abc import Callable

    from morag.api.http import Client, Header, Response
    from morag.server.edge import Edge
    from morag.server.repeated_requests import Parsed

_CHECKED: Final = frozenset((b"host", b"transfer-encoding", b"origin", b"sec-fetch-site"))
_VERSIONS: Final = ("1.1", "1.0")
_OFFERS: Final = (b"upgrade", b"http2-settings")


class Received(Request, gc=False):
    """A request. `held_bytes` of the memory for large bodies are its own until it is answered."""

    held_bytes: int = 0
    takes_chunks: bool = True
    is_probed: bool = False  # Whether an interim response was sent.


class Receiver(Protocol):
    """The connection, as the parser sees it."""

    def accept(self, request: Received, keep: bool) -> None:
        """A request is complete; `keep` if another one may follow."""
        ...

    def refuse(self, response: Response, request: Received | None = None) -> None:
        """A request is invalid: send this response, and read no more requests."""
        ...

    def expect(self) -> None:
        """The client waits for permission to send its body."""
        ...

    def ignore(self, data: bytes) -> None:
        """Data arrived after the last request that is read."""
        ...


class RequestParser:
    """Parses the requests of one connection.

    `state` moves IDLE → HEAD → BODY → IDLE with each request, and from each of them to ENDED.
    `since` is when the connection began to read the current request, or when it became idle.
    """

    __slots__ = (
        "_body",
        "_edge",
        "_fed_bytes",
        "_headers",
        "_held_bytes",
        "_is_first",
        "_method",
        "_only",
        "_parser",
        "_peer",
        "_receiver",
        "_time",
        "_url",
        "_version",
        "client",
        "received_bytes",
        "since",
        "state",
    )

    def __init__(
        self, receiver: Receiver, edge: Edge, peer: Client, time: Callable[[], float]
    ) -> None:
        self.state: ReadState = IDLE
        self.since = time()
        self.client = peer  # The client of the latest request.
        self.received_bytes: int
        self._receiver = receiver
        self._edge = edge
        self._peer = peer  # The other end of the connection; may be a proxy.
        self._time = time
        self._parser = self._new_parser()
        # The request that is completed by the data that is being parsed, if it is the only one and
        # began there. `_is_first` until a request is completed by data that begins with a request.
        self._only: Received | None = None
        self._is_first = False
        self._held_bytes = 0
        self._method: str
        self._url: bytes
        self._version: str
        self._headers: list[Header]
        self._body: bytes | bytearray
        self._fed_bytes: int  # Since this request began, or since the last piece of its body.
        self._start_over()

    @property
    def is_reading(self) -> bool:
        """Whether a part of a request has arrived."""
        return self.state is HEAD or self.state is BODY

    @property
    def has_head(self) -> bool:
        """Whether a complete head has arrived, and its body not yet."""
        return self.state is BODY

    def end(self) -> None:
        """Read no more requests."""
        self.state = ENDED

    def close(self) -> None:
        """The connection is lost: drop everything that was read."""
        self.state = ENDED
        self._start_over()
        del self._parser, self._receiver  # Both refer to this object, and it to them.

    def parse(self, data: bytes) -> None:
        if self.state is IDLE:
            parsed = self._edge.repeated_requests.find(data)
            if parsed is not None:
                self._accept_again(parsed)
                return
        while data:
            if self.state is ENDED:
                self._receiver.ignore(data)
                return
            data = self._feed(data)

    def on_message_begin(self) -> None:
        if self.state is IDLE:
            self.state = HEAD
            self.since = self._time()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.state is not BODY:  # Trailers are ignored.
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._method = self._parser.get_method().decode("ascii")
        if self.state is ENDED:
            return
        self.state = BODY
        self.client = self._edge.client_addresses.client(self._peer, self._headers)
        limit = self._edge.settings.max_head_bytes
        if self._fed_bytes > limit:  # May include the start of the body.
            size = len(self._url) + sum(len(name) + len(value) for name, value in self._headers)
            if size > limit:
                self._receiver.refuse(HEAD_TOO_LARGE)
                return
        self._version = self._parser.get_http_version()
        if self._method == "CONNECT":  # Not in `_admit`, which skips most checks for most requests.
            self._receiver.refuse(NO_TUNNEL, self._take_head())
        elif self._admit() and self._method != "GET":
            self._await_body()

    def on_body(self, body: bytes) -> None:
        if self.state is ENDED:
            return
        self._fed_bytes = 0
        self.received_bytes += len(body)
        if self.received_bytes > self._edge.settings.max_request_bytes:
            self._refuse_body()
        elif not self._body:
            self._body = body
        elif self._hold(len(body)):
            if type(self._body) is not bytearray:
                self._body = bytearray(self._body)
            self._body += body

    def on_message_complete(self) -> None:
        parser = self._parser
        if self.state is ENDED or parser.should_upgrade():
            return
        # HTTP/1.0 keeps a connection only if the response allows it, and Morag's does not.
        keep = parser.should_keep_alive() and self._version == "1.1"
        if not keep:
            self.state = ENDED
        request = self._take()
        self._only = request if self._is_first else None
        self._is_first = False
        self._receiver.accept(request, keep)

    def _feed(self, data: bytes) -> bytes:
        """Pass data to the parser. Returns data that must be parsed again."""
        self._is_first = self.state is IDLE
        self._only = None
        self.on_message_begin()  # For the parser, line ends before a request are no part of it.
        self._fed_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._without_offer(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError:
            raise  # A bug in a callback: the event loop logs it and ends the connection.
        except httptools.HttpParserError as error:
            self._receiver.refuse(plain(400, f"This is not HTTP: {error}"))
            return b""
        self._remember(data)
        # A head, extensions of a chunk or trailers: the parser keeps all of them in memory.
        if self._fed_bytes > self._edge.settings.max_head_bytes:
            self._receiver.refuse(HEAD_TOO_LARGE)
        return b""

    def _remember(self, data: bytes) -> None:
        """Remember data that was exactly one request, with nothing before or after it."""
        request, self._only = self._only, None
        if request is not None and self.state is IDLE:
            self._edge.repeated_requests.remember(data, request)

    def _accept_again(self, parsed: Parsed) -> None:
        self.since = self._time()
        self.client = self._edge.client_addresses.client(self._peer, parsed.headers)
        request = Received(
            "GET", parsed.path, parsed.query, parsed.headers, b"", self.client, parsed.memo
        )
        self._receiver.accept(request, True)

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Data after a request with `Connection: close` is ignored, instead of being an error.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def _start_over(self) -> None:
        self._method, self._url, self._body = "", b"", b""
        self._headers = []
        if self.state is not ENDED:
            self.state = IDLE
        self._fed_bytes = self.received_bytes = 0
        self._release()

    def _take(self) -> Received:
        """The request, as far as it was read."""
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
            self.client,
            Memo(),
            held_bytes,
            self._version == "1.1",
        )
        self._held_bytes = 0
        self._start_over()
        return request

    def _take_head(self) -> Received:
        """The request without its body, for a refusal."""
        self._release()
        self._body = b""
        return self._take()

    def _admit(self) -> bool:
        """Check the head of a request. Returns False if it was refused.

        Nearly all requests have only one header that must be checked, a known Host. This is a loop,
        because in Python 3.11 everything else takes a microsecond.
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
            self._receiver.refuse(problem, self._take_head())
            return False
        try:
            self._edge.admission.check(self._method, self._url, self._headers)
        except MoragError as error:
            request = self._take_head()
            self._receiver.refuse(self._edge.failure(request, error), request)
            return False
        return True

    def _head_problem(self) -> Response | None:
        """Find requests that the parser accepts, but that a proxy may interpret differently."""
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
            self._receiver.expect()

    def _hold(self, more_bytes: int) -> bool:
        """Count the bytes of a body. Refuses the request if it exceeds the memory limits."""
        self._held_bytes += more_bytes
        if self._edge.large_bodies.hold(self.client.network, more_bytes):
            return True
        self._receiver.refuse(NO_ROOM, self._take_head())
        return False

    def _release(self) -> None:
        if self._held_bytes:
            self._edge.large_bodies.release(self.client.network, self._held_bytes)
            self._held_bytes = 0

    def _refuse_body(self) -> None:
        request = self._take_head()
        limit = self._edge.settings.max_request_bytes
        error = RequestTooLarge(f"The request body is larger than {limit} bytes")
        self._receiver.refuse(self._edge.failure(request, error), request)

    def _without_offer(self, rest: bytes) -> bytes:
        """The data of a request without its offer to upgrade, which a server may ignore.

        The parser ends such a request after its head, although clients that offer HTTP/2 (as Java's
        can) send the body in HTTP/1.1. So a new parser reads the request without the offer.
        """
        if self.state is ENDED:
            return b""
        line = b"%b %b HTTP/%b" % (self._method.encode(), self._url, self._version.encode())
        kept = [header for header in self._headers if header[0] not in _OFFERS]
        if len(kept) == len(self._headers):  # The new parser would stop at the same position.
            self._receiver.refuse(plain(400, "This is not HTTP: an upgrade without an offer"))
            return b""
        head = [line, *(name + b": " + value for name, value in kept)]
        self._start_over()
        self._parser = self._new_parser()
        return b"\r\n".join(head) + b"\r\n\r\n" + rest


def _origin_form(url: bytes) -> bytes:
    """The path and the query of `http://host/path?query`, the form that clients send to proxies."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError:
        return url
    path = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path
