"""The items of one response, read in short batches, so that no listing occupies a thread for long.

A requested page may end early, with fewer items than the client allows, and a token for the next
page. It is never empty before the end, because Nessie's Java client takes an empty page with a
token for a broken server. A listing without pages is never cut short, because clients such as
Iceberg's NessieCatalog read the first response only: it is returned completely, or refused.
"""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from morag.errors import BadRequest
from morag.versions.content_batches import CONTENT_BATCH_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.versions.encoded_entries import EncodedEntries
    from morag.versions.listing import Listing

T = TypeVar("T")
U = TypeVar("U")
Item = TypeVar("Item", covariant=True)

MOST_ITEMS: Final = 100_000
"""The limit of items in a page, even if the client requests more."""
PAGE_CPU_SECONDS: Final = 2.0
"""A page ends after this much work, if it has any items."""
WHOLE_CPU_SECONDS: Final = 120.0
"""A listing is refused after this much work, if it must not end early or has no items."""

USUAL_BYTES: Final = 512
"""The size of an item without long texts."""

_FIRST_BATCH: Final = 100
_LARGEST_BATCH: Final = 500
_FIRST_SIZED: Final = 5  # Few, because all may be large.
_LARGEST_SIZED: Final = 20  # The batch size in which history is read.
_FIRST_FILTERED: Final = 16
_BRIEF_SECONDS: Final = 0.002
_LONG_SECONDS: Final = 0.01
_KEPT_BYTES: Final = 1024 * 1024


class Paging(Struct, frozen=True):
    """The requested part of a listing: all of it, if there is neither a limit nor a token."""

    limit: int | None = None
    token: str | None = None

    @property
    def is_page(self) -> bool:
        return self.limit is not None or self.token is not None


class Items(Protocol[Item]):
    """The items of a response in batches. A large batch has only one item.

    An empty batch means that there was work, but no item. `token` starts the next page, and is
    known after the last batch.
    """

    @property
    def token(self) -> str | None: ...

    def __iter__(self) -> Iterator[Sequence[Item]]: ...


class Found(Generic[T]):
    """The items of a listing that belong to the response.

    `wanted` is called once for each item, in order. `size_of` estimates the bytes of an item, where
    items may be large. With a `page_size`, there are pages even if the client requests none. A
    listing that is not `repeatable` may have other items when it is read again.
    """

    def __init__(
        self,
        listing: Listing[T],
        paging: Paging,
        cpu_seconds: Callable[[], float],
        *,
        wanted: Callable[[T], bool] | None = None,
        is_last: Callable[[T], bool] | None = None,
        size_of: Callable[[T], int] | None = None,
        page_size: int | None = None,
        may_end_early: bool = True,
        repeatable: bool = True,
    ) -> None:
        self.token: str | None = None
        self._listing = listing
        self._limit: int | None = None
        if page_size is not None or paging.is_page:
            most = page_size or MOST_ITEMS
            self._limit = min(paging.limit or most, most)
        self._is_page = paging.is_page
        self._may_end_early = paging.is_page and may_end_early
        self._wanted = wanted
        self._is_last = is_last
        self._size_of = size_of
        self._repeatable = repeatable
        self._cpu_seconds = cpu_seconds

    def __iter__(self) -> Iterator[Sequence[T]]:
        return self._plain() if self._wanted is None else self._filtered(self._wanted)

    def _plain(self) -> Iterator[Sequence[T]]:
        listing = self._listing if self._is_last is None else self._listing.through(self._is_last)
        items = listing.with_pauses()
        if self._limit is None:
            yield from self._batches(items)
        else:
            first = _first if listing.has_pauses else islice
            yield from self._batches(first(items, self._limit))
            yield from self._find_token(items)

    def _filtered(self, wanted: Callable[[T], bool]) -> Iterator[Sequence[T]]:
        """Filters all items before it yields the first, because a filter may fail on the last one.

        Only a limited number is kept in memory meanwhile, because clients may be slow readers. If
        there are more, the listing is read again.
        """
        marks = bytearray()
        kept: list[T] | None = []
        size = 0
        for judged in self._judged(self._listing.with_pauses(), wanted):
            for item, is_kept in judged:
                marks.append(is_kept)
                if is_kept and kept is not None:
                    kept.append(item)
                    size += self._size(item)
            if kept is not None and not self._may_keep(len(kept), size):
                kept = None
            yield ()
        if kept is None:
            yield from self._batches(_marked(self._listing.with_pauses(), marks))
        else:
            yield from in_batches(iter(kept), self._size_of)

    def _size(self, item: T) -> int:
        return USUAL_BYTES if self._size_of is None else self._size_of(item)

    def _may_keep(self, count: int, size: int) -> bool:
        if self._repeatable:
            return size <= _KEPT_BYTES
        if count > MOST_ITEMS:
            raise BadRequest(
                f"More than {MOST_ITEMS} items pass the filter, too many for one response;"
                " request it in pages"
            )
        return True

    def _judged(
        self, items: Iterator[T | None], wanted: Callable[[T], bool]
    ) -> Iterator[list[tuple[T, bool]]]:
        """Items, and whether each belongs to the response, in batches that take milliseconds.

        The filter is not called for items after the first one of the next page: it may fail there.
        """
        room = inf if self._limit is None else self._limit
        most, seconds, looked_at, found = _FIRST_FILTERED, 0.0, 0, 0
        is_over = False
        while not is_over:
            started = self._cpu_seconds()
            judged: list[tuple[T, bool]] = []
            size = steps = 0
            for steps, item in enumerate(islice(items, most), 1):  # noqa: B007 - Used below.
                if item is None:
                    if self._cpu_seconds() - started > _LONG_SECONDS:
                        break
                    continue
                is_kept = wanted(item)
                if is_kept and found == room:
                    self.token = self._listing.token_of(item)
                    is_over = True
                    break
                found += is_kept
                judged.append((item, is_kept))
                if is_kept and self._is_last is not None and self._is_last(item):
                    is_over = True
                    break
                size += self._size(item)
                if size >= CONTENT_BATCH_BYTES:
                    break
            else:
                is_over = steps < most
            took = self._cpu_seconds() - started
            if took < _BRIEF_SECONDS:
                most = min(2 * most, _LARGEST_BATCH)
            elif took > _LONG_SECONDS:
                most = max(1, most // 2)
            seconds += took
            looked_at += len(judged)
            yield judged
            if is_over:
                return
            if self._may_end_early and found and seconds > PAGE_CPU_SECONDS:
                for _ in self._find_token(items):
                    yield []
                return
            if seconds > WHOLE_CPU_SECONDS:
                raise self._too_expensive(looked_at)

    def _batches(self, items: Iterator[T | None]) -> Iterator[Sequence[T]]:
        if self._listing.has_pauses:
            return _batches_between_pauses(items, self._cpu_seconds)
        return in_batches(cast("Iterator[T]", items), self._size_of)

    def _find_token(self, items: Iterator[T | None]) -> Iterator[Sequence[T]]:
        """Set the token to the next item. Yields an empty batch for each pause before it."""
        for item in items:
            if item is not None:
                self.token = self._listing.token_of(item)
                return
            yield ()

    def _too_expensive(self, looked_at: int) -> BadRequest:
        pages = "" if self._is_page else "request it in pages, "
        return BadRequest(
            f"Filter is too expensive: {looked_at} items took more than"
            f" {WHOLE_CPU_SECONDS:.0f} seconds of CPU time; narrow the listing, {pages}or use a"
            " simpler filter"
        )


class EncodedFound:
    """The encoded items of a listing that belong to the response. Nothing is filtered."""

    def __init__(self, batches: Iterator[EncodedEntries], paging: Paging) -> None:
        self.token: str | None = None
        self._batches = batches
        self._limit = min(paging.limit or MOST_ITEMS, MOST_ITEMS) if paging.is_page else inf

    def __iter__(self) -> Iterator[Sequence[bytes]]:
        room = self._limit
        for batch in self._batches:
            if len(batch) > room:
                end = int(room)
                self.token = batch.token(end)
                yield batch.encoded[:end]
                return
            room -= len(batch)
            yield batch.encoded


class Filled(Generic[T, U]):
    """Filters small items, and turns those that pass into the complete items of the response."""

    def __init__(
        self, found: Found[T], fill: Callable[[Sequence[T]], Iterator[Sequence[U]]]
    ) -> None:
        self._found = found
        self._fill = fill

    @property
    def token(self) -> str | None:
        return self._found.token

    def __iter__(self) -> Iterator[Sequence[U]]:
        for batch in self._found:
            if batch:
                yield from self._fill(batch)
            else:
                yield ()


class _IsEncoded(Protocol):
    @property
    def encoded(self) -> bytes: ...


E = TypeVar("E", bound=_IsEncoded)


def encoded_items(found: Found[E]) -> Items[bytes]:
    """The encoded forms of the items."""
    return Filled(found, lambda batch: iter([[each.encoded for each in batch]]))


def in_batches(
    items: Iterator[T],
    size_of: Callable[[T], int] | None = None,
    most: int = _LARGEST_BATCH,
) -> Iterator[Sequence[T]]:
    """Items in batches that grow. Large items have batches of their own."""
    if size_of is not None:
        yield from _sized_batches(items, size_of, min(_LARGEST_SIZED, most))
        return
    count = min(_FIRST_BATCH, most)
    while batch := list(islice(items, count)):
        yield batch
        count = min(2 * count, most)


def _sized_batches(
    items: Iterator[T], size_of: Callable[[T], int], most: int
) -> Iterator[Sequence[T]]:
    count = min(_FIRST_SIZED, most)
    while batch := list(islice(items, count)):
        if sum(map(size_of, batch)) < CONTENT_BATCH_BYTES:
            yield batch
            count = min(2 * count, most)
        else:
            yield from ([item] for item in batch)
            count = 1


def _batches_between_pauses(
    items: Iterator[T | None], cpu_seconds: Callable[[], float]
) -> Iterator[list[T]]:
    """Items in batches. A pause ends a batch that took long."""
    steps_ahead = _FIRST_BATCH
    is_over = False
    while not is_over:
        started = cpu_seconds()
        batch: list[T] = []
        steps = 0
        for steps, item in enumerate(islice(items, steps_ahead), 1):  # noqa: B007 - Used below.
            if item is not None:
                batch.append(item)
            elif cpu_seconds() - started > _LONG_SECONDS:
                break
        else:
            is_over = steps < steps_ahead
            steps_ahead = min(2 * steps_ahead, _LARGEST_BATCH)
        if batch or not is_over:
            yield batch


def _first(items: Iterable[T | None], count: int) -> Iterator[T | None]:
    """The first `count` items, with the pauses before them."""
    for item in items:
        yield item
        count -= item is not None
        if count <= 0:
            return


def _marked(items: Iterable[T | None], marks: Iterable[int]) -> Iterator[T | None]:
    """The items whose mark is set, with all pauses, up to the last mark."""
    rest = iter(marks)
    for item in items:
        if item is None:
            yield None
            continue
        mark = next(rest, None)
        if mark is None:
            return
        if mark:
            yield item
