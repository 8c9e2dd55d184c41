"""Listings over many responses, to iterate over or to take page by page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.results import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
S = TypeVar("S")

Query: TypeAlias = "Sequence[tuple[str, str]]"
"""Names and values, not percent-encoded."""

_PAGE_SIZE: Final = 1000
_MOST: Final = (1 << 31) - 1  # The API reads it as a 32-bit number.


class Part(Struct, Generic[T], frozen=True):
    """The items of one response, and the path of the next request.

    That path names the commit of this response, because a branch may move while it is read.
    """

    items: Sequence[T]
    token: str | None
    path: str


class Listing(Generic[T]):
    """Items that are requested as they are needed, from the start each time.

    The first request is sent when the first item is needed. One iteration sees one state of the
    catalog; the next one may see a newer state. `page.token` starts the listing of the items after
    a page.
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
            part = self._read(path, _paging_query(_PAGE_SIZE, token))
            yield from part.items
            if part.token is None:
                return
            path, token = part.path, part.token

    def page(self, limit: int) -> Page[T]:
        """Up to `limit` items, from several requests if the server returns fewer at once."""
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        items: list[T] = []
        path, token = self._path(), self._token
        while True:
            part = self._read(path, _paging_query(limit - len(items), token))
            items += part.items
            if part.token is None or len(items) >= limit:
                return Page(tuple(items), part.token)
            path, token = part.path, part.token

    def map(self, change: Callable[[T], S]) -> Listing[S]:
        """The listing with `change` applied to each item."""

        def read(path: str, query: Query) -> Part[S]:
            part = self._read(path, query)
            return Part([change(item) for item in part.items], part.token, part.path)

        return Listing(read, self._path, self._token)


def _paging_query(limit: int, token: str | None) -> Query:
    size = ("max-records", str(min(limit, _MOST)))
    return [size, ("page-token", token)] if token else [size]
