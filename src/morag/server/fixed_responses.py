"""The responses that the server sends without calling the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.http import Response

if TYPE_CHECKING:
    from morag.api.http import Header


def plain(status: int, text: str, *headers: Header) -> Response:
    """A response in plain text, because the client may not be one of the API."""
    kind = (b"content-type", b"text/plain; charset=utf-8")
    return Response(status, f"{text}\n".encode(), (kind, *headers))


BROKEN: Final = plain(500, "Internal error; the server's log has the details")
BUSY: Final = plain(503, "Too many connections", (b"retry-after", b"1"))
CODING_UNKNOWN: Final = plain(400, "The only supported transfer coding is chunked, once")
CODING_TOO_NEW: Final = plain(400, "HTTP/1.0 has no Transfer-Encoding")
HEAD_TOO_LARGE: Final = plain(431, "The request line and headers are too large")
NO_HOST: Final = plain(400, "A request of HTTP/1.1 needs a Host header")
NO_ROOM: Final = plain(
    503, "Too many large requests at once; try again later, with fewer", (b"retry-after", b"1")
)
NO_TUNNEL: Final = plain(405, "This server is not a proxy")
TOO_SLOW: Final = plain(408, "The request took too long to arrive")
TWO_HOSTS: Final = plain(400, "A request must have only one Host header")
VERSION_UNKNOWN: Final = plain(400, "Only HTTP/1.1 and HTTP/1.0 are supported")
