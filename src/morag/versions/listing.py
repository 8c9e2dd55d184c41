"""Listings, to iterate over or to read page by page."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from morag.errors import BadRequest
from morag.format.key_order import key_from_utf8, key_to_utf8
from morag.model.results import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LARGEST_PAGE: Final = 1 << 31  # More than fits into memory; `islice` takes no larger number.


class Listing(Generic[T]):
    """Items that are read lazily, from the start each time.

    To continue after a page, create a listing with its `page.token`. If the search for the next
    item may take long, `has_pauses` is set, and `items` yields None now and then, which only
    `with_pauses` passes on.
    """

    def __init__(
        self,
        items: Callable[[], Iterator[T | None]],
        token_of: Callable[[T], str],
        *,
        has_pauses: bool = False,
    ) -> None:
        self.with_pauses = items
        self.token_of = token_of
        self.has_pauses = has_pauses

    def __iter__(self) -> Iterator[T]:
        items = self.with_pauses()
        if self.has_pauses:
            return (item for item in items if item is not None)
        return cast("Iterator[T]", items)

    def through(self, is_last: Callable[[T], bool]) -> Listing[T]:
        """The items up to and including the first one that satisfies `is_last`."""
        return Listing(
            lambda: _through(self.with_pauses(), is_last),
            self.token_of,
            has_pauses=self.has_pauses,
        )

    def page(self, limit: int | None) -> Page[T]:
        """The first items, up to the limit; None means no limit."""
        if limit is None:
            return Page(tuple(self), None)
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        items = tuple(islice(self, min(limit, _LARGEST_PAGE) + 1))
        token = self.token_of(items[limit]) if len(items) > limit else None
        return Page(items[:limit], token)


def _through(items: Iterator[T | None], is_last: Callable[[T], bool]) -> Iterator[T | None]:
    for item in items:
        yield item
        if item is not None and is_last(item):
            return


def key_token(key: bytes) -> str:
    """A store key as a text for URLs, in Nessie's form, so that either server can continue."""
    return key_to_utf8(key).hex()


def token_key(token: str) -> bytes:
    if len(token) % 2:
        raise BadRequest("Invalid token string representation")
    for letter in token:
        if letter not in _HEX:
            raise BadRequest(f"Illegal hex character '{letter}'")
    # Any text is a position, even if no server issued it; other bytes sort after all keys.
    return key_from_utf8(bytes.fromhex(token).decode(errors="replace").encode())
