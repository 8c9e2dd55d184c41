"""What goes in and out of the API, whichever HTTP server carries it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from morag.versions.tickets import Spawn

Header: TypeAlias = tuple[bytes, bytes]


class Client(Struct, gc=False):
    """The client of a request. `gone` is set when its connection has ended.

    All clients of one `network` share what a single client may have; usually that is one address.
    """

    address: str = "-"
    gone: bool = False
    network: str = ""

    def __post_init__(self) -> None:
        if not self.network:
            self.network = self.address


class Request(Struct, gc=False):
    """A complete request. Path and query are as sent, percent-encoded; header names are lower-case.

    The body is plain: whoever received it has undone the content encoding.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes = b""
    client: Client = field(default_factory=Client)

    def header(self, name: bytes) -> str | None:
        """The first value of that name."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None


class Rest(Protocol):
    """The part of a large answer that is made as the client reads it."""

    def next(self, done: Callable[[bytes, bool], None], failed: Callable[[], None]) -> None:
        """Begin to make the next piece, and hand it to `done` with whether it is the last one.

        One of the two is called exactly once, from any thread, perhaps before this returns.
        """
        ...


class Response(Struct, frozen=True, gc=False):
    """The carrier adds the length; everything else is here. With a `rest`, `body` is the start."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()
    rest: Rest | None = None


class Later(Protocol):
    """An answer that has to wait for something: a lane, or a thread that may block."""

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        """Begin. `done` is called exactly once, from any thread, perhaps before this returns."""
        ...
