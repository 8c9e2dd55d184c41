"""Requests and responses of the API, independent of the HTTP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct, field

Header: TypeAlias = tuple[bytes, bytes]


class Client(Struct, gc=False):
    """The client of a request. `gone` is set when its connection has ended.

    All clients of one `network`, usually one address, share the limits of a single client.
    """

    address: str = "-"
    gone: bool = False
    network: str = ""

    def __post_init__(self) -> None:
        if not self.network:
            self.network = self.address


class Memo(Struct):
    """The route and the arguments in the head of a request, that is in all but its body.

    Requests with the same head may share it, so that the API interprets the head only once.
    """

    route: Any = None  # The `Route`.
    result: Any = None  # Of `Call.once`.


class Request(Struct, gc=False):
    """A complete request. Path and query are as sent, percent-encoded; header names are lower-case.

    The body is decoded: the server has undone the content encoding.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes = b""
    client: Client = field(default_factory=Client)
    memo: Memo = field(default_factory=Memo)

    def header(self, name: bytes) -> str | None:
        """The first value of that name."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None


class Piece(Struct, frozen=True, gc=False):
    """A part of a large body."""

    body: bytes
    is_last: bool


class BodyStream(Protocol):
    """The rest of a large body, produced as the client reads it."""

    def next(self, done: Callable[[Piece | Exception], None]) -> None:
        """Start producing the next piece.

        `done` is called once, from any thread, perhaps before this method returns: with the piece,
        or with the exception that ends the body too early.
        """
        ...


class Response(Struct, frozen=True, gc=False):
    """A response; the server adds its length. With a `stream`, `body` is only the start."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    stream: BodyStream | None = None
