"""The order of a commit's headers, which is part of its id."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from morag.model.java_hash_order import spread, string_hash

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW_NAMES: Final = 32
_SHORT_NAMES: Final = 1024
"""Characters of all names together. Longer ones are not cached, to save memory."""


def java_header_order(names: Sequence[str], *, before_jdk_19: bool = False) -> list[str]:
    """The order in which Nessie stores headers that were added in the given order.

    `names` are distinct and in lower case. Nessie keeps headers in a Java hash map and stores a
    copy of that map. A commit is valid with any order, but only this one gives the id that Nessie
    (on JDK 19 or later) computes for the same commit. Earlier JDKs made larger copies.
    """
    return list(_ordered(tuple(names), before_jdk_19))


def orders_before_rewrites(names: Sequence[str]) -> set[tuple[str, ...]]:
    """All orders in which headers may have been hashed if they are stored in the given order.

    Nessie hashes and stores the same order. But when it reads a commit and stores it again, as its
    `cut-history` does, it copies the headers into another map. That reverses headers that share a
    bucket. It also sorts by other buckets if an earlier JDK wrote the commit, because `cut-history`
    needs JDK 21. A map of the writer's JDK restores the order. After an even number of rewrites,
    headers that share a bucket have to be reversed once more.
    """
    stored = tuple(names)
    reversed_once = _ordered(stored, False)
    return {stored, reversed_once, _ordered(stored, True), _ordered(reversed_once, True)}


def _ordered(names: tuple[str, ...], before_jdk_19: bool) -> tuple[str, ...]:
    # Almost all commits of a repository have the same few header names.
    is_usual = len(names) <= _FEW_NAMES and sum(map(len, names)) <= _SHORT_NAMES
    return (_cached if is_usual else _sorted)(names, before_jdk_19)


@lru_cache(maxsize=1024)
def _cached(names: tuple[str, ...], before_jdk_19: bool) -> tuple[str, ...]:
    return _sorted(names, before_jdk_19)


def _sorted(names: tuple[str, ...], before_jdk_19: bool) -> tuple[str, ...]:
    assert len(set(names)) == len(names), f"header names repeat: {names}"
    hashes = {name: spread(string_hash(name)) for name in names}
    count = len(names)

    # The map doubles its size before it adds a header if it is more than three quarters full. A new
    # header comes first in its bucket. Sorting is stable.
    size = 16
    while 4 * (count - 1) > 3 * size:
        size *= 2
    order = list(reversed(names))
    order.sort(key=lambda name: hashes[name] & (size - 1))

    # The copy is made just large enough and keeps the order inside a bucket. Before JDK 19 it had
    # room for one more than that.
    needed = 4 * count // 3 + 1 if before_jdk_19 else -(-4 * count // 3)
    copy_size = 1
    while copy_size < needed:
        copy_size *= 2
    order.sort(key=lambda name: hashes[name] & (copy_size - 1))
    return tuple(order)
