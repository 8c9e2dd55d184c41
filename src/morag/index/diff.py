"""What differs between two commits, without reading what they share."""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING

from morag.index.directory import Directory
from morag.index.keys import ALL, KeyRange
from morag.index.ops import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.index.layered import CommitIndex
    from morag.index.segment import Entry

Difference = tuple[bytes, bytes | None, bytes | None]
"""A key and its entries on both sides; None where it does not exist."""


def diff(one: CommitIndex, other: CommitIndex, range: KeyRange = ALL) -> Iterator[Difference]:
    """Keys whose values differ, in key order.

    A segment that both sides have is the same on both sides, so only other segments and the two
    incremental indexes can hold a difference.
    """
    overlay = sorted({k for side in (one, other) for k, _ in side.incremental.slice(range)})
    previous = None
    for key in merge(_candidates(one, other, range), overlay):
        if key == previous:
            continue
        previous = key
        left, right = one.get(key), other.get(key)
        if left is None or right is None:
            if left is not right:
                yield key, left, right
        elif value_of(left) != value_of(right):
            yield key, left, right


def _candidates(one: CommitIndex, other: CommitIndex, range: KeyRange) -> Iterator[bytes]:
    """Keys that the two reference indexes may disagree on."""
    if one.directory is other.directory:
        return
    shared = one.directory.segment_ids & other.directory.segment_ids
    lefts, rights = _unshared(one, shared, range), _unshared(other, shared, range)
    left, right = next(lefts, None), next(rights, None)
    while left is not None and right is not None:
        if left == right:
            left, right = next(lefts, None), next(rights, None)
        elif left[0] < right[0]:
            yield left[0]
            left = next(lefts, None)
        elif left[0] > right[0]:
            yield right[0]
            right = next(rights, None)
        else:
            yield left[0]
            left, right = next(lefts, None), next(rights, None)
    for rest, more in ((left, lefts), (right, rights)):
        if rest is not None:
            yield rest[0]
            yield from (key for key, _ in more)


def _unshared(side: CommitIndex, shared: frozenset[bytes], range: KeyRange) -> Iterator[Entry]:
    only = Directory([s for s in side.directory.stripes if s.segment not in shared])
    return side.with_only(only).items(range)
