"""The order of a commit's headers, which is part of its id."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from morag.model.java_order import spread, string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence


def java_header_order(names: Sequence[str]) -> list[str]:
    """The order in which the original stores headers that were added in the given order.

    `names` are distinct and in lower case. The original keeps headers in a Java hash map and stores
    a copy of that map. Any order makes a sound commit, but only this one makes the commit id that
    the original (on a JDK of 19 or later) computes for the same commit.
    """
    return list(_ordered(tuple(names)))


@lru_cache(maxsize=1024)  # Almost all commits of a repository have the same few header names.
def _ordered(names: tuple[str, ...]) -> tuple[str, ...]:
    assert len(set(names)) == len(names), f"header names repeat: {names}"
    hashes = {name: spread(string_hash(name)) for name in names}
    count = len(names)

    # The map grows before it takes a header that would find it more than three quarters full, and
    # a new header stands in front of the others in its bucket. Sorting is stable.
    size = 16
    while 4 * (count - 1) > 3 * size:
        size *= 2
    order = list(reversed(names))
    order.sort(key=lambda name: hashes[name] & (size - 1))

    # The copy is made just large enough and keeps the order inside a bucket.
    copy_size = 1
    while 3 * copy_size < 4 * count:
        copy_size *= 2
    order.sort(key=lambda name: hashes[name] & (copy_size - 1))
    return tuple(order)
