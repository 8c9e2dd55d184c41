"""Header orders that the original server stored, and what must hold for all others."""

from __future__ import annotations

import json
import math
from functools import reduce
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from morag.persist.header_order import java_header_order

RECORDED: list[dict[str, list[str]]] = json.loads(
    (Path(__file__).parent.parent / "data" / "header-orders.json").read_text(encoding="utf-8")
)
NAMES = st.lists(st.text(), unique=True, max_size=60)


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: f"{len(case['added'])} headers")
def test_recorded_orders_are_reproduced(case: dict[str, list[str]]) -> None:
    assert java_header_order(case["added"]) == case["stored"]


@given(NAMES)
@example([])
@example(["Aa", "BB"])  # Two names with one hash.
def test_every_header_is_stored_once(names: list[str]) -> None:
    assert sorted(java_header_order(names)) == sorted(names)


@given(NAMES)
def test_the_order_is_that_of_a_copied_hash_map(names: list[str]) -> None:
    """A map that really grows, one header at a time, where the code computes the final size."""
    buckets: list[list[str]] = [[] for _ in range(16)]
    for count, name in enumerate(names):
        if count > len(buckets) * 3 // 4:
            buckets = rehashed(buckets, 2 * len(buckets))
        buckets[java_hash(name) % len(buckets)].insert(0, name)
    size = next(2**n for n in range(9) if 2**n >= math.ceil(len(names) / 0.75))
    copy = rehashed(buckets, size)
    # Java also grows a map, or turns a bucket into a tree, when eight names meet in one bucket.
    assume(all(len(bucket) < 8 for bucket in buckets + copy))
    assert java_header_order(names) == [name for bucket in copy for name in bucket]


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


def test_of_two_names_with_one_hash_the_later_comes_first() -> None:
    assert java_header_order(["Aa", "BB"]) == ["BB", "Aa"]
    assert java_header_order(["BB", "Aa"]) == ["Aa", "BB"]


def test_a_caller_may_change_the_list_it_got() -> None:
    java_header_order(["date", "author"]).clear()
    assert sorted(java_header_order(["date", "author"])) == ["author", "date"]


def test_a_repeated_name_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="repeat"):
        java_header_order(["author", "author"])
