"""Pages of a listing may end early, but are not empty; a listing without pages is complete."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.service import paging
from morag.service.paging import Found, Paging
from morag.versions.listing import Listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST: int = 1000


class Clock:
    """A CPU clock that advances only while a filter checks an item."""

    def __init__(self, seconds_per_item: float = 0.0) -> None:
        self.seconds = 0.0
        self.looked_at = 0
        self._seconds_per_item = seconds_per_item

    def __call__(self) -> float:
        return self.seconds

    def costly(self, wanted: Callable[[int], bool]) -> Callable[[int], bool]:
        def judge(item: int) -> bool:
            self.seconds += self._seconds_per_item
            self.looked_at += 1
            return wanted(item)

        return judge


def numbers(count: int, token: str | None = None) -> Listing[int]:
    return Listing(lambda: iter(range(int(token or 0), count)), str)


def taken(found: Found[int]) -> list[int]:
    return list(chain.from_iterable(found))


def pages(
    count: int, limit: int | None, wanted: Callable[[int], bool] | None, clock: Clock
) -> Iterator[list[int]]:
    """All pages, as a client gets them that follows the tokens."""
    token: str | None = "0"
    while token is not None:
        found = Found(numbers(count, token), Paging(limit, token), clock, wanted=wanted)
        yield taken(found)
        token = found.token


@given(count=st.integers(0, 700), limit=st.integers(1, 300), step=st.integers(1, 400))
def test_pages_together_are_the_whole_listing(count: int, limit: int, step: int) -> None:
    expected = [n for n in range(count) if n % step == 0]
    found = list(pages(count, limit, lambda n: n % step == 0, Clock()))
    assert list(chain.from_iterable(found)) == expected
    assert [len(page) for page in found[:-1]] == [limit] * (len(found) - 1)
    assert list(chain.from_iterable(pages(count, limit, None, Clock()))) == list(range(count))


@given(count=st.integers(1, 400), step=st.integers(1, 100), seconds=st.sampled_from([0.1, 0.7]))
def test_pages_that_end_early_lose_nothing_and_are_never_empty_before_the_end(
    count: int, step: int, seconds: float
) -> None:
    """Nessie's Java client takes an empty page with a token for a broken server."""
    clock = Clock(seconds)
    limit = 1000
    found = list(pages(count, limit, clock.costly(lambda n: n % step == 0), clock))
    assert list(chain.from_iterable(found)) == [n for n in range(count) if n % step == 0]
    assert all(found[:-1])


def test_a_costly_page_ends_early() -> None:
    clock = Clock(0.1)
    found = Found(numbers(MOST), Paging(500), clock, wanted=clock.costly(lambda n: True))
    assert 0 < len(taken(found)) < 100
    assert found.token is not None
    assert clock.seconds < 2 * paging.PAGE_CPU_SECONDS


def test_a_listing_without_pages_is_never_cut_short() -> None:
    clock = Clock(0.05)
    found = Found(numbers(MOST), Paging(), clock, wanted=clock.costly(lambda n: n % 2 == 0))
    assert taken(found) == list(range(0, MOST, 2))
    assert found.token is None
    assert clock.seconds > paging.PAGE_CPU_SECONDS


@pytest.mark.parametrize(
    ("page", "advice"),
    [
        (Paging(), "request it in pages"),
        (Paging(10), "narrow the listing"),
    ],
)
def test_a_filter_that_takes_too_long_is_refused_with_a_message(page: Paging, advice: str) -> None:
    clock = Clock(1.0)
    found = Found(numbers(MOST), page, clock, wanted=clock.costly(lambda n: False))
    with pytest.raises(BadRequest, match=advice):
        taken(found)
    assert clock.seconds < 2 * paging.WHOLE_CPU_SECONDS


@pytest.mark.parametrize("page", [Paging(), Paging(limit=100_000)])
def test_a_filter_that_fails_on_the_last_item_fails_before_any_item_is_sent(page: Paging) -> None:
    def wanted(item: int) -> bool:
        if item == 6999:
            raise BadRequest("Filter fails")
        return True

    given: list[int] = []
    with pytest.raises(BadRequest):
        for batch in Found(numbers(7000), page, Clock(), wanted=wanted):
            given += batch
    assert given == []


def test_a_filter_is_not_applied_to_items_that_are_left_for_the_next_page() -> None:
    """The filter may fail on them, and Nessie does not apply it either."""
    clock = Clock()
    found = Found(numbers(MOST), Paging(10), clock, wanted=clock.costly(lambda n: n % 2 == 0))
    assert taken(found) == list(range(0, 20, 2))
    assert found.token == "20"
    assert clock.looked_at == 21


def test_a_large_filtered_listing_checks_each_item_once() -> None:
    clock = Clock()
    wanted = clock.costly(lambda n: n % 3 != 0)
    assert taken(Found(numbers(20_000), Paging(), clock, wanted=wanted)) == [
        n for n in range(20_000) if n % 3
    ]
    assert clock.looked_at == 20_000


def test_a_page_without_a_filter_has_a_maximum_size() -> None:
    found = Found(numbers(paging.MOST_ITEMS + 5), Paging(limit=10**9), Clock())
    assert len(taken(found)) == paging.MOST_ITEMS
    assert found.token == str(paging.MOST_ITEMS)


@pytest.mark.parametrize("wanted", [None, lambda n: True])
def test_the_last_item_ends_the_listing(wanted: Callable[[int], bool] | None) -> None:
    found = Found(
        numbers(MOST), Paging(50), Clock(), wanted=wanted, is_last=lambda n: n == 20, page_size=250
    )
    assert taken(found) == list(range(21))
    assert found.token is None


def test_a_listing_with_its_own_pages_always_uses_them() -> None:
    found = Found(numbers(MOST), Paging(), Clock(), page_size=250)
    assert taken(found) == list(range(250))
    assert found.token == "250"


def test_large_items_come_one_by_one_and_small_ones_together() -> None:
    found = Found(numbers(MOST), Paging(), Clock(), size_of=lambda n: 100_000 if n < 10 else 10)
    batches = list(found)
    assert [len(batch) for batch in batches[:9]] == [1] * 9
    assert {len(batch) for batch in batches[15:-1]} == {20}
    assert list(chain.from_iterable(batches)) == list(range(MOST))


class Thing:
    """An item that counts how many of its kind are alive."""

    held: ClassVar = WeakSet["Thing"]()

    def __init__(self, number: int) -> None:
        self.number = number
        self.held.add(self)


@pytest.mark.parametrize("size", [None, 100_000])
def test_a_slow_reader_of_a_filtered_listing_keeps_few_items_in_memory(size: int | None) -> None:
    listing = Listing(lambda: map(Thing, range(20_000)), lambda thing: str(thing.number))
    size_of = None if size is None else lambda thing: size
    found = Found(listing, Paging(), Clock(), wanted=lambda thing: True, size_of=size_of)
    read = 0
    for batch in found:
        read += len(batch)
        assert len(Thing.held) * (size or paging.USUAL_BYTES) < 2 * 1024 * 1024
    assert read == 20_000


def test_a_filtered_listing_that_cannot_be_read_again_is_bounded() -> None:
    many = numbers(paging.MOST_ITEMS + 600)
    found = Found(many, Paging(), Clock(), wanted=lambda n: True, repeatable=False)
    with pytest.raises(BadRequest, match="request it in pages"):
        taken(found)


def sparse(count: int, step: int, clock: Clock) -> Listing[int]:
    """One number in `step`, and three milliseconds of work for each of the others."""

    def items() -> Iterator[int | None]:
        for number in range(count):
            clock.seconds += 0.003
            yield number if number % step == 0 else None

    return Listing(items, str, has_pauses=True)


@pytest.mark.parametrize("wanted", [None, lambda n: True])
@pytest.mark.parametrize("limit", [None, 3])
def test_a_search_for_the_next_item_pauses(
    wanted: Callable[[int], bool] | None, limit: int | None
) -> None:
    clock = Clock()
    found = Found(sparse(MOST, 200, clock), Paging(limit), clock, wanted=wanted)
    read, before = list[int](), clock.seconds
    for batch in found:
        assert clock.seconds - before < 0.02
        read += batch
        before = clock.seconds
    assert read == list(range(0, MOST, 200))[:limit]
    assert found.token == (None if limit is None else "600")


def test_short_pauses_do_not_end_a_batch() -> None:
    """Otherwise the contents of each item would be read by itself."""
    items = [n if n % 2 else None for n in range(80)]
    listing = Listing(lambda: iter(items), str, has_pauses=True)
    assert [len(batch) for batch in Found(listing, Paging(), Clock())] == [40]
