"""A response whose body is sent in pieces, no faster than its client reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from morag.api.http import Piece

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import BodyStream
    from morag.server.edge import Edge
    from morag.server.request_parser import Received
    from morag.server.response_writer import ResponseWriter


class Reader(Protocol):
    """The connection of the client that reads the response."""

    @property
    def takes_pieces(self) -> bool:
        """Whether the client has read enough of the earlier pieces for the next one."""
        ...

    def hang_up(self) -> None: ...


class ResponseStream:
    """Requests one piece at a time, and none while the client still reads another.

    `ended` is called with the size of the body after the last piece. Until then, or until `cancel`,
    the edge counts the request as pending.
    """

    __slots__ = (
        "_body",
        "_edge",
        "_ended",
        "_is_over",
        "_is_requested",
        "_reader",
        "_request",
        "_sent_bytes",
        "_writer",
    )

    def __init__(
        self,
        reader: Reader,
        edge: Edge,
        writer: ResponseWriter,
        request: Received,
        body: BodyStream,
        ended: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._edge = edge
        self._writer = writer
        self._request = request
        self._body = body
        self._ended = ended
        self._sent_bytes = 0
        self._is_requested = False
        self._is_over = False

    def begin(self, first: bytes) -> None:
        self._edge.begin_stream()
        self._send(Piece(first, is_last=False))

    def request_piece(self) -> None:
        """Request the next piece, unless one is being produced or the client does not read."""
        if not self._is_requested and self._reader.takes_pieces:
            self._is_requested = True
            self._edge.next_piece(self._request, self._body, self._made, self._failed)

    def cancel(self) -> None:
        """The client has disconnected: the piece that is being produced is dropped."""
        if not self._is_over:
            self._is_over = True
            self._edge.end_stream()

    def _made(self, piece: Piece) -> None:
        self._is_requested = False
        if not self._is_over:
            self._send(piece)

    def _failed(self) -> None:
        if not self._is_over:
            self._reader.hang_up()  # Otherwise the client would take the part for the whole.

    def _send(self, piece: Piece) -> None:
        self._sent_bytes += len(piece.body)
        self._writer.send_piece(self._request, piece)
        if piece.is_last:
            self.cancel()
            self._ended(self._sent_bytes)
        else:
            self.request_piece()
