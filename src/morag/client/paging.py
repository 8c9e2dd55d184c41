"""Listings over many answers: iterate over all of it, or take it page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
S = TypeVar("S")

Query: TypeAlias = "Sequence[tuple[str, str]]"
"""Names and values as they are, not percent-encoded."""

_ASKED_AT_ONCE: Final = 1000
_MOST: Final = (1 << 31) - 1  # The API reads the number as a 32-bit one.


class Page(Struct, Generic[T], frozen=True):
    """Some items, and the token of the first one that is left; None at the end."""

    items: tuple[T, ...]
    token: str | None


class Part(Struct, Generic[T], frozen=True):
    """What one answer had, and the path that the next one is asked at.

    That path names the commit which the answer was about: a branch may move while it is being read.
    """

    items: Sequence[T]
    token: str | None
    path: str


class Listing(Generic[T]):
    """Items that are asked for as they are needed, from the start each time.

    Nothing is asked before the first item is. One iteration sees one state of the catalog, the next
    one may see a newer one. To go on after a page, ask for a listing from `page.token` on.
    """

    def __init__(
        self,
        read: Callable[[str, Query], Part[T]],
        path: Callable[[], str],
        token: str | None = None,
    ) -> None:
        self._read = read
        self._path = path
        self._token = token

    def __iter__(self) -> Iterator[T]:
        path, token = self._path(), self._token
        while True:
            part = self._read(path, _asked(_ASKED_AT_ONCE, token))
            yield from part.items
            if part.token is None:
                return
            path, token = part.path, part.token

    def page(self, limit: int) -> Page[T]:
        """Up to `limit` items. A server that gives fewer at once is asked again."""
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        items: list[T] = []
        path, token = self._path(), self._token
        while True:
            part = self._read(path, _asked(limit - len(items), token))
            items += part.items
            if part.token is None or len(items) >= limit:
                return Page(tuple(items), part.token)
            path, token = part.path, part.token

    def map(self, change: Callable[[T], S]) -> Listing[S]:
        """The same listing, of something that each item has or stands for."""

        def read(path: str, query: Query) -> Part[S]:
            part = self._read(path, query)
            return Part([change(item) for item in part.items], part.token, part.path)

        return Listing(read, self._path, self._token)


def _asked(limit: int, token: str | None) -> Query:
    size = ("max-records", str(min(limit, _MOST)))
    return [size, ("page-token", token)] if token else [size]
