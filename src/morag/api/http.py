"""What goes in and out of the API, whichever HTTP server carries it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from morag.versions.tickets import Spawn

Header: TypeAlias = tuple[bytes, bytes]


class Request(Struct, gc=False):
    """A complete request. Path and query are as sent, percent-encoded; header names are lower-case.

    The body is plain: whoever received it has undone the content encoding.
    """

    method: str
    path: str
    query: str = ""
    headers: Sequence[Header] = ()
    body: bytes = b""

    def header(self, name: bytes) -> str | None:
        """The first value of that name."""
        for known, value in self.headers:
            if known == name:
                return value.decode("latin-1")
        return None


class Response(Struct, frozen=True, gc=False):
    """The carrier adds the length; everything else is here."""

    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()


class Later(Protocol):
    """An answer that has to wait for something: a lane, or a thread that may block."""

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        """Begin. `done` is called exactly once, from any thread, perhaps before this returns."""
        ...
