"""JSON over HTTP: sends structs, and returns structs or raises the server's errors."""

from __future__ import annotations

import gzip
import re
import zlib
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from morag.client.decoders import UNREADABLE
from morag.client.error_responses import SentRequest, error_of, undecodable, unexpected
from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag.client.connections import Connections, Reply
    from morag.client.listing import Query
    from morag.client.server_uris import ServerUri

T = TypeVar("T")

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e\xa0-\xff](?:[\t\x20-\x7e\xa0-\xff]*)?|")
_OWN_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "gzip",
    "nessie-client-spec": "2",  # Errors then carry their details.
    "user-agent": "morag",
}
_RESERVED_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "expect"}
)
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS: Final = 5


class Http:
    """Requests to one server. Paths start with `api` or `own` and are percent-encoded; queries are
    not."""

    def __init__(
        self, server: ServerUri, connections: Connections, headers: Mapping[str, str]
    ) -> None:
        self._origin = server.origin
        self._connections = connections
        self._headers = _checked_headers(server, headers)
        self._headers_with_body = self._headers | {"content-type": "application/json"}
        self.api = server.api
        self.own = server.own

    def get(self, path: str, decoder: msgspec.json.Decoder[T], query: Query = ()) -> T:
        return self._send("GET", path, query, None, decoder, repeatable=True)

    def read(self, path: str, body: object, decoder: msgspec.json.Decoder[T]) -> T:
        """A read whose parameters are too long for a URL. It changes nothing."""
        return self._send("POST", path, (), body, decoder, repeatable=True)

    def post(
        self, path: str, body: object, decoder: msgspec.json.Decoder[T], query: Query = ()
    ) -> T:
        return self._send("POST", path, query, body, decoder, repeatable=False)

    def put(self, path: str, body: object, decoder: msgspec.json.Decoder[T]) -> T:
        return self._send("PUT", path, (), body, decoder, repeatable=False)

    def delete(self, path: str, decoder: msgspec.json.Decoder[T]) -> T:
        return self._send("DELETE", path, (), None, decoder, repeatable=False)

    def _send(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        decoder: msgspec.json.Decoder[T],
        *,
        repeatable: bool,
    ) -> T:
        target = path + _query_text(query)
        headers, sent = self._headers, None
        if body is not None:
            headers, sent = self._headers_with_body, _encoded(body)
        reply = self._connections.send(method, target, headers, sent, repeatable=repeatable)
        redirects = 0
        while method == "GET" and (followed := self._redirected(target, reply)) is not None:
            redirects += 1
            if redirects > _MOST_REDIRECTS:
                problem = (
                    f"the server redirects more than {_MOST_REDIRECTS} times, now to {followed}"
                )
                request = self._sent_request(method, target, repeatable)
                raise unexpected(reply, request, f"{problem}: check the server's URI")
            target = followed
            reply = self._connections.send(method, target, headers, None, repeatable=True)
        request = self._sent_request(method, target, repeatable)
        found = _plain_body(reply, request)
        if reply.status != 200:
            raise error_of(reply, found, request)
        try:
            return decoder.decode(found)
        except UNREADABLE as error:
            raise undecodable(reply, found, request, error) from error

    def _sent_request(self, method: str, target: str, repeatable: bool) -> SentRequest:
        has_credentials = "authorization" in self._headers
        return SentRequest(method, self._origin + target, repeatable, has_credentials)

    def _redirected(self, target: str, reply: Reply) -> str | None:
        """The target of a redirect on the same server: another one must not get the token."""
        location = reply.headers.get("location")
        if reply.status not in _REDIRECTS or location is None:
            return None
        split = urlsplit(urljoin(self._origin + target, location))
        if f"{split.scheme}://{split.netloc}" != self._origin:
            return None
        return f"{split.path}?{split.query}" if split.query else split.path


def _checked_headers(server: ServerUri, headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of every request. No message shows their values, which may be secret."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise BadRequest(f"Header {name!r} cannot be set")
        if not _HEADER_VALUE.fullmatch(value):
            raise BadRequest(f"Header {name!r} has a value that HTTP does not allow")
    own = {"host": server.authority, **_OWN_HEADERS}
    return own | {name.lower(): value for name, value in headers.items()}


def _query_text(query: Query) -> str:
    if not query:
        return ""
    try:
        return "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
    except (UnicodeEncodeError, TypeError) as error:
        raise BadRequest(f"The request contains something that cannot be sent: {error}") from None


def _encoded(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise BadRequest(f"The request contains something that cannot be sent: {error}") from None


def _plain_body(reply: Reply, request: SentRequest) -> bytes:
    coding = reply.headers.get("content-encoding", "identity").lower()
    if coding == "identity":
        return reply.body
    problem = "the response has an encoding that the request did not accept"
    if coding == "gzip":
        try:
            return gzip.decompress(reply.body)
        except (OSError, EOFError, zlib.error) as error:
            problem = f"the response cannot be decompressed: {error}"
    raise unexpected(reply, request, problem)
