"""How answers begin as bytes, and the few answers that the edge gives by itself."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from morag.api.http import Response

if TYPE_CHECKING:
    from morag.api.http import Header

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
CHUNKED: Final = (b"transfer-encoding", b"chunked")
LAST_CHUNK: Final = b"0\r\n\r\n"


def chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def head(
    status: int, headers: tuple[Header, ...], length: int | None, general: bytes, keep: bool
) -> bytes:
    """Everything before the body. `general` holds the header lines that all answers have."""
    parts = [_STATUS.get(status) or f"HTTP/1.1 {status} \r\n".encode()]
    for name, value in headers:
        parts += (name, b": ", value, b"\r\n")
    if length is not None:
        parts.append(b"content-length: %d\r\n" % length)
    parts.append(general)
    parts.append(b"\r\n" if keep else b"connection: close\r\n\r\n")
    return b"".join(parts)


def plain(status: int, text: str, *headers: Header) -> Response:
    """An answer to somebody who may not be a client of the API at all."""
    kind = (b"content-type", b"text/plain; charset=utf-8")
    return Response(status, f"{text}\n".encode(), (kind, *headers))


BROKEN: Final = plain(500, "Internal error; the server's log has the details")
BUSY: Final = plain(503, "Too many connections", (b"retry-after", b"1"))
CODING_UNKNOWN: Final = plain(400, "The only transfer coding understood here is chunked, once")
CODING_TOO_NEW: Final = plain(400, "HTTP/1.0 has no Transfer-Encoding")
HEAD_TOO_LARGE: Final = plain(431, "The request line and headers are too large")
NO_HOST: Final = plain(400, "A request of HTTP/1.1 needs a Host header")
NO_ROOM: Final = plain(
    503, "Too many large requests at once; try again later, with fewer", (b"retry-after", b"1")
)
NO_TUNNEL: Final = plain(405, "This is no proxy")
TOO_SLOW: Final = plain(408, "The request took too long to arrive")
TWO_HOSTS: Final = plain(400, "A request has one Host header")
VERSION_UNKNOWN: Final = plain(400, "Only HTTP/1.1 and HTTP/1.0 are spoken here")
