"""JSON requests and answers: structs go in, structs or the server's errors come out."""

from __future__ import annotations

import gzip
import re
import zlib
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

import msgspec

from morag.client.answers import error_of
from morag.client.errors import UnexpectedAnswer
from morag.client.wire import UNREADABLE
from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag.client.http1 import Reply
    from morag.client.paging import Query
    from morag.client.pool import Pool
    from morag.client.uris import ServerUri

T = TypeVar("T")

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e\xa0-\xff](?:[\t\x20-\x7e\xa0-\xff]*)?|")
_OWN_HEADERS: Final = {
    "accept": "application/json",
    "accept-encoding": "gzip",
    "nessie-client-spec": "2",  # Errors then carry their details.
    "user-agent": "morag",
}
_TAKEN_HEADERS: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "expect"}
)


class Http:
    """Paths are given percent-encoded, from `api` or `own` on; queries are not yet encoded."""

    def __init__(self, server: ServerUri, pool: Pool, headers: Mapping[str, str]) -> None:
        self._origin = server.origin
        self._pool = pool
        self._headers = _header_lines(server, headers)
        self.api = server.api
        self.own = server.own

    def get(self, path: str, answer: msgspec.json.Decoder[T], query: Query = ()) -> T:
        return self._ask("GET", path, query, None, answer, repeatable=True)

    def read(self, path: str, body: object, answer: msgspec.json.Decoder[T]) -> T:
        """A question that is too long for a URL. It changes nothing."""
        return self._ask("POST", path, (), body, answer, repeatable=True)

    def post(
        self, path: str, body: object, answer: msgspec.json.Decoder[T], query: Query = ()
    ) -> T:
        return self._ask("POST", path, query, body, answer, repeatable=False)

    def put(self, path: str, body: object, answer: msgspec.json.Decoder[T]) -> T:
        return self._ask("PUT", path, (), body, answer, repeatable=False)

    def delete(self, path: str, answer: msgspec.json.Decoder[T]) -> T:
        return self._ask("DELETE", path, (), None, answer, repeatable=False)

    def _ask(
        self,
        method: str,
        path: str,
        query: Query,
        body: object,
        answer: msgspec.json.Decoder[T],
        *,
        repeatable: bool,
    ) -> T:
        target = path + _query_text(query)
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}"
        if body is None:
            request = f"{head}\r\n".encode("latin-1")
        else:
            sent = _encoded(body)
            head += f"content-type: application/json\r\ncontent-length: {len(sent)}\r\n\r\n"
            request = head.encode("latin-1") + sent
        reply = self._pool.ask(request, repeatable=repeatable)
        url = self._origin + target
        found = _plain_body(reply, method, url)
        if reply.status != 200:
            raise error_of(reply, found, method, url, repeatable=repeatable)
        try:
            return answer.decode(found)
        except UNREADABLE as error:
            raise UnexpectedAnswer(
                f"the answer holds something that this client does not know: {error}",
                http_status=reply.status,
                method=method,
                url=url,
            ) from error


def _header_lines(server: ServerUri, headers: Mapping[str, str]) -> str:
    """The headers of every request. What they hold is never shown: it may be a secret."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _TAKEN_HEADERS:
            raise BadRequest(f"Header {name!r} cannot be set")
        if not _HEADER_VALUE.fullmatch(value):
            raise BadRequest(f"Header {name!r} has a value that no header can have")
    asked = {name.lower(): value for name, value in headers.items()}
    lines = {"host": server.authority, **_OWN_HEADERS, **asked}
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items())


def _query_text(query: Query) -> str:
    if not query:
        return ""
    try:
        return "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query)
    except (UnicodeEncodeError, TypeError) as error:
        raise BadRequest(f"The request holds what cannot be sent: {error}") from None


def _encoded(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise BadRequest(f"The request holds what cannot be sent: {error}") from None


def _plain_body(reply: Reply, method: str, url: str) -> bytes:
    coding = reply.headers.get(b"content-encoding", b"identity").lower()
    if coding == b"identity":
        return reply.body
    problem = "the answer is encoded in a way that was not asked for"
    if coding == b"gzip":
        try:
            return gzip.decompress(reply.body)
        except (OSError, EOFError, zlib.error) as error:
            problem = f"the answer cannot be decompressed: {error}"
    raise UnexpectedAnswer(problem, http_status=reply.status, method=method, url=url)
