"""How the head of an answer looks as bytes."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from morag.api.http import Header

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}


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
