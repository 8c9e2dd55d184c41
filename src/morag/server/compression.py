"""gzip: request bodies are decompressed within limits, large responses are compressed."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from morag.api.http import Piece, Response
from morag.errors import BadRequest, RequestTooLarge, UnsupportedMediaType

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import BodyStream, Request

_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1  # Faster than zlib's usual level 6; JSON gets a little larger.
_HEADERS: Final = ((b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
_MOST_MEMBERS: Final = 64  # Each member copies the rest. Clients send one.


def decompressed(body: bytes, encoding: str | None, limit: int) -> bytes:
    """The decompressed body. Never decompresses more than the limit."""
    encoding = (encoding or "").strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise UnsupportedMediaType(
            f"Content-Encoding '{encoding}' is not supported; send gzip, or none"
        )
    return _gunzipped(body, limit)


def compressed(response: Response) -> Response:
    """The response with a compressed body. Pieces of a stream are compressed by their threads.

    zlib releases the interpreter's lock, so a thread that compresses does not block the others.
    """
    compressor = Compressor()
    stream = response.stream
    return Response(
        response.status,
        compressor.compressed(response.body, is_last=stream is None),
        response.headers + _HEADERS,
        None if stream is None else _CompressedStream(stream, compressor),
    )


class Compressor:
    """Compresses a body in pieces, so that the client can decompress each piece on arrival."""

    def __init__(self) -> None:
        self._gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)

    def compressed(self, piece: bytes, *, is_last: bool) -> bytes:
        end = zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH
        return self._gzip.compress(piece) + self._gzip.flush(end)


class _CompressedStream:
    def __init__(self, stream: BodyStream, compressor: Compressor) -> None:
        self._stream = stream
        self._compressor = compressor

    def next(self, done: Callable[[Piece | Exception], None]) -> None:
        def made(piece: Piece | Exception) -> None:
            if isinstance(piece, Piece):
                body = self._compressor.compressed(piece.body, is_last=piece.is_last)
                piece = Piece(body, piece.is_last)
            done(piece)

        self._stream.next(made)


def wants_gzip(request: Request) -> bool:
    accepted = request.header(b"accept-encoding")
    if accepted is None or "gzip" not in accepted.lower():
        return False
    for item in accepted.lower().split(","):
        coding, _, parameters = item.partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            return parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _gunzipped(body: bytes, limit: int) -> bytes:
    """The decompressed body, which may have several gzip members."""
    plain = b""
    for _ in range(_MOST_MEMBERS):
        inflater = zlib.decompressobj(_GZIP)
        try:
            plain += inflater.decompress(body, limit + 1 - len(plain))
        except zlib.error as error:
            raise BadRequest(f"The request body is not valid gzip: {error}") from None
        if len(plain) > limit:
            raise RequestTooLarge(
                f"The request body is larger than {limit} bytes when decompressed"
            )
        if not inflater.eof:
            raise BadRequest("The request body is not valid gzip: it ends too early")
        body = inflater.unused_data
        if not body:
            return plain
    raise BadRequest(f"The request body has more than {_MOST_MEMBERS} gzip members")
