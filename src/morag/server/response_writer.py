"""Writes responses to the transport of a connection: HTTP/1.1 framing only."""

from __future__ import annotations

import struct
from contextlib import suppress
from http import HTTPStatus
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from uvicorn.server import ServerState

    from morag.api.http import Header, Piece, Response
    from morag.server.request_parser import Received

_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CHUNKED: Final = (b"transfer-encoding", b"chunked")
_LAST_CHUNK: Final = b"0\r\n\r\n"
_COPY_BYTES: Final = 16 * 1024
_RESET: Final = struct.pack("ii", 1, 0)


class ResponseWriter:
    """Counts the bytes that it writes. The connection decides the order of responses."""

    __slots__ = ("_general", "_general_from", "_server_state", "_transport", "written_bytes")

    def __init__(self, transport: asyncio.Transport, server_state: ServerState) -> None:
        self.written_bytes = 0
        self._transport = transport
        self._server_state = server_state
        self._general = b""
        self._general_from: object = None

    def send(self, request: Received, response: Response, keep: bool) -> int:
        """Write a whole response. Returns the size of its body."""
        status, body = response.status, response.body
        length: int | None = len(body) if response.stream is None else None
        if status == 204 or status == 304:
            body, length = b"", None
        elif request.method == "HEAD":
            body = b""
        self._write_whole(status, response.headers, length, body, keep)
        return len(body)

    def send_last(self, response: Response) -> None:
        """Write the response that refuses a request; the method may not be known."""
        body = response.body
        self._write_whole(response.status, response.headers, len(body), body, keep=False)

    def send_continue(self) -> None:
        """Write the interim response 100."""
        self._write(_CONTINUE)

    def begin_stream(self, request: Received, response: Response, keep: bool) -> None:
        """Write the head of a response whose body follows in pieces."""
        headers = response.headers
        if request.takes_chunks:
            headers += (_CHUNKED,)
        self._write(self._head(response.status, headers, None, keep))

    def send_piece(self, request: Received, piece: Piece) -> None:
        """Write a piece of a body. An empty piece is no chunk, because that would end the body."""
        data = piece.body
        if request.takes_chunks:
            data = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
            if piece.is_last:
                data += _LAST_CHUNK
        self._write(data)

    def abort(self) -> None:
        """Cut the connection. The reset makes the kernel drop unsent data instead of retrying."""
        socket = self._transport.get_extra_info("socket")
        if socket is not None:  # A closed transport has none.
            with suppress(OSError):
                socket.setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
        self._transport.abort()

    def _write_whole(
        self,
        status: int,
        headers: tuple[Header, ...],
        length: int | None,
        body: bytes,
        keep: bool,
    ) -> None:
        head = self._head(status, headers, length, keep)
        self.written_bytes += len(head) + len(body)
        if len(body) < _COPY_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def _write(self, data: bytes) -> None:
        self.written_bytes += len(data)
        self._transport.write(data)

    def _head(
        self, status: int, headers: tuple[Header, ...], length: int | None, keep: bool
    ) -> bytes:
        """The status line and the headers."""
        lines = self._server_state.default_headers  # The date, which uvicorn renews every second.
        if lines is not self._general_from:
            self._general_from = lines
            self._general = b"".join(name + b": " + value + b"\r\n" for name, value in lines)
        parts = [_STATUS_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode()]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        if length is not None:
            parts.append(b"content-length: %d\r\n" % length)
        parts.append(self._general)
        parts.append(b"\r\n" if keep else b"connection: close\r\n\r\n")
        return b"".join(parts)
