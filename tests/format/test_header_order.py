"""The order of headers: recorded orders, and properties of all orders."""

from __future__ import annotations

import json
import math
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from morag.format import header_order
from morag.format.header_order import java_header_order, orders_before_rewrites

RECORDED: list[dict[str, list[str]]] = json.loads(
    (Path(__file__).parent.parent / "data" / "header-orders.json").read_text(encoding="utf-8")
)
NAMES = st.lists(st.text(), unique=True, max_size=60)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{len(case['added'])} headers")
def test_recorded_orders_are_reproduced(case: dict[str, list[str]]) -> None:
    assert java_header_order(case["added"]) == case["stored"]


@given(NAMES)
@example([])
@example(["Aa", "BB"])  # Two names with the same hash.
def test_every_header_is_stored_once(names: list[str]) -> None:
    assert sorted(java_header_order(names)) == sorted(names)


@given(NAMES, st.booleans())
def test_the_order_is_that_of_a_copied_hash_map(names: list[str], before_jdk_19: bool) -> None:
    """The map here grows one header at a time; the code computes the final size."""
    buckets: list[list[str]] = [[] for _ in range(16)]
    for count, name in enumerate(names):
        if count > len(buckets) * 3 // 4:
            buckets = rehashed(buckets, 2 * len(buckets))
        buckets[java_hash(name) % len(buckets)].insert(0, name)
    least = int(len(names) / 0.75 + 1) if before_jdk_19 else math.ceil(len(names) / 0.75)
    size = next(2**n for n in range(9) if 2**n >= least)
    copy = rehashed(buckets, size)
    # With eight names in one bucket, Java also grows the map or turns the bucket into a tree.
    assume(all(len(bucket) < 8 for bucket in buckets + copy))
    order = java_header_order(names, before_jdk_19=before_jdk_19)
    assert order == [name for bucket in copy for name in bucket]


def rehashed(buckets: list[list[str]], size: int) -> list[list[str]]:
    fresh: list[list[str]] = [[] for _ in range(size)]
    for bucket in buckets:
        for name in bucket:
            fresh[java_hash(name) % size].append(name)
    return fresh


def java_hash(text: str) -> int:
    raw = text.encode("utf-16-be")
    units = [int.from_bytes(raw[i : i + 2], "big") for i in range(0, len(raw), 2)]
    plain = reduce(lambda so_far, unit: 31 * so_far + unit, units, 0) % 2**32
    return plain ^ plain >> 16


def test_names_with_equal_hashes_are_in_reverse_order() -> None:
    assert java_header_order(["Aa", "BB"]) == ["BB", "Aa"]
    assert java_header_order(["BB", "Aa"]) == ["Aa", "BB"]


# Printed by Java: JDK 17 and JDK 25, for headers that were added in the first order.
JDK_17_AND_25 = [
    (
        "application-type x-3 x-8",
        "x-8 application-type x-3",
        "application-type x-8 x-3",
    ),
    (
        "_signed-off-by x-9 x-13 x-5 x-16 _commit-time",
        "x-13 x-5 x-9 _signed-off-by _commit-time x-16",
        "x-13 x-5 _signed-off-by x-9 _commit-time x-16",
    ),
]


@pytest.mark.parametrize(("added", "before", "since"), JDK_17_AND_25)
def test_jdks_before_19_copy_a_map_to_a_larger_one(added: str, before: str, since: str) -> None:
    assert java_header_order(added.split(), before_jdk_19=True) == before.split()
    assert java_header_order(added.split()) == since.split()


@given(NAMES, st.booleans(), st.integers(0, 4))
@example([f"x-{n}" for n in range(12)], False, 1)
@example([f"x-{n}" for n in range(12)], True, 2)
def test_the_order_before_rewrites_is_a_candidate(
    names: list[str], before_jdk_19: bool, rewrites: int
) -> None:
    written = order = java_header_order(names, before_jdk_19=before_jdk_19)
    for _ in range(rewrites):
        order = java_header_order(order)
    assert tuple(written) in orders_before_rewrites(order)


def test_a_caller_may_change_the_returned_list() -> None:
    java_header_order(["date", "author"]).clear()
    assert sorted(java_header_order(["date", "author"])) == ["author", "date"]


def test_a_repeated_name_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="repeat"):
        java_header_order(["author", "author"])


@pytest.mark.parametrize(
    "names", [[f"x-{n}" for n in range(1000)], ["x" * 2000, "y"]], ids=["many", "long"]
)
def test_unusual_names_are_not_cached(names: list[str]) -> None:
    """Otherwise a client could fill the memory."""
    before = header_order._cached.cache_info().currsize
    assert sorted(java_header_order(names)) == sorted(names)
    assert header_order._cached.cache_info().currsize == before
