"""Listings: iterate over all of it, or take it page by page."""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from morag.errors import BadRequest
from morag.persist.order import key_from_utf8, key_to_utf8

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

_LARGEST_PAGE: Final = 1 << 31  # More than anybody has memory for; `islice` takes no larger ones.


class Page(Struct, Generic[T], frozen=True):
    """Some items, and the token of the first one that is left; None at the end."""

    items: tuple[T, ...]
    token: str | None


class Listing(Generic[T]):
    """Items that are read as they are asked for, from the start each time.

    To go on after a page, ask for a listing from `page.token` on.
    """

    def __init__(self, items: Callable[[], Iterator[T]], token_of: Callable[[T], str]) -> None:
        self._items = items
        self._token_of = token_of

    def __iter__(self) -> Iterator[T]:
        return self._items()

    def page(self, limit: int) -> Page[T]:
        if limit < 1:
            raise BadRequest("A page must have room for at least one item")
        items = tuple(islice(self._items(), min(limit, _LARGEST_PAGE) + 1))
        token = self._token_of(items[limit]) if len(items) > limit else None
        return Page(items[:limit], token)


def key_token(key: bytes) -> str:
    """A store key as a text that fits a URL."""
    return urlsafe_b64encode(key_to_utf8(key)).rstrip(b"=").decode()


def token_key(token: str) -> bytes:
    try:
        utf8 = b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        utf8.decode()
    except (BadBase64, UnicodeDecodeError, ValueError):
        raise BadRequest("Invalid token string representation") from None
    return key_from_utf8(utf8)
