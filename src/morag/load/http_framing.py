"""Finds the end of an HTTP response with as little parsing as possible."""

from __future__ import annotations

import re
from typing import Final

from morag.client.errors import ServerUnreachable

OK: Final = b"HTTP/1.1 200 "

_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_CHUNKED: Final = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)
_LAST_CHUNK: Final = b"\r\n0\r\n\r\n"
"""JSON contains no line break of HTTP, so this can only be the end of a chunked response."""

# Values of `Incoming._missing` besides a number of bytes.
_HEAD: Final = -1
_CHUNKS: Final = -2


class Incoming:
    """The response that a connection is receiving."""

    __slots__ = ("_missing", "_pieces", "_tail")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._missing = _HEAD
        self._tail = b""

    def add(self, data: bytes) -> bytes | None:
        """The whole response, head and body as received; None if it is still incomplete."""
        pieces = self._pieces
        if self._missing == _HEAD:
            if pieces:
                data = b"".join((*pieces, data))
                pieces.clear()
            missing = _missing(data)
        elif self._missing == _CHUNKS:
            missing = _CHUNKS
        else:
            missing = self._missing - len(data)
        if missing == _CHUNKS:
            size = len(_LAST_CHUNK)
            self._tail = data[-size:] if len(data) >= size else (self._tail + data)[-size:]
            if self._tail == _LAST_CHUNK:
                missing = 0
        if missing:
            pieces.append(data)
            self._missing = missing
            return None
        self._missing = _HEAD
        if not pieces:
            return data
        whole = b"".join((*pieces, data))
        pieces.clear()
        return whole


def status_of(response: str) -> int:
    return int(response.split(" ", 2)[1])


def body_of(response: bytes) -> bytes:
    head, _, body = response.partition(_HEAD_END)
    if _LENGTH.search(head + b"\r\n"):
        return body
    pieces: list[bytes] = []
    while True:
        length, _, body = body.partition(b"\r\n")
        size = int(length.partition(b";")[0], 16)
        if not size:
            return b"".join(pieces)
        pieces.append(body[:size])
        body = body[size + 2 :]


def _missing(data: bytes) -> int:
    """How many bytes of this response are missing, or `_HEAD`, or `_CHUNKS`."""
    head = data.find(_HEAD_END)
    if head < 0:
        return _HEAD
    length = _LENGTH.search(data, 0, head + 2)
    if length is not None:
        missing = head + len(_HEAD_END) + int(length[1]) - len(data)
        if missing >= 0:
            return missing
        raise ServerUnreachable("The server sent more than one response to a request")
    if _CHUNKED.search(data, 0, head + 2):
        return _CHUNKS
    raise ServerUnreachable("The server sent a response without a length")
