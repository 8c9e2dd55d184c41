"""Finds the differences between two commits, without reading the segments that they share."""

from __future__ import annotations

from collections import deque
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.format.index_entries import value_of
from morag.index.keys import ALL, KeyRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.format.objects import Stripe
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex
    from morag.index.segment import Segment

    Island = tuple[list[Stripe], list[Stripe], bytes]
    """Stripes of both sides that overlap, and their last key."""

Difference = tuple[bytes, bytes | None, bytes | None]
"""A key and its entries on both sides; None if it does not exist."""

_MOST_AHEAD: Final = 16  # Islands whose stripes are read together.
_LARGEST_ISLAND: Final = 8  # Stripes of both sides that are compared together.


def diff(one: CommitIndex, other: CommitIndex, range: KeyRange = ALL) -> Iterator[Difference]:
    """Keys whose values differ, in key order.

    A segment that both sides have is the same on both sides, so only other segments and the two
    incremental indexes can hold a difference.
    """
    return (found for found in diff_with_pauses(one, other, range) if found is not None)


def diff_with_pauses(
    one: CommitIndex, other: CommitIndex, range: KeyRange = ALL
) -> Iterator[Difference | None]:
    """Like `diff`, with None for each key that was compared and is the same on both sides.

    There is such a key every few milliseconds at least, so that a caller with little time can stop
    there.
    """
    overlay = sorted({k for side in (one, other) for k, _ in side.incremental.slice(range)})
    previous = None
    for key in merge(_candidates(one, other, range), overlay):
        if key == previous:
            continue
        previous = key
        yield difference(one, other, key)


def difference(one: CommitIndex, other: CommitIndex, key: bytes) -> Difference | None:
    """The entries of one key, unless it has the same value, or none, on both sides."""
    left, right = one.get(key), other.get(key)
    if left is None or right is None:
        return None if left is right else (key, left, right)
    return None if value_of(left) == value_of(right) else (key, left, right)


def _candidates(one: CommitIndex, other: CommitIndex, range: KeyRange) -> Iterator[bytes]:
    """Keys that the two reference indexes may disagree on, and the last key of each island."""
    if one.directory is other.directory:
        return
    shared = one.directory.segment_ids & other.directory.segment_ids
    left, right = _unshared(one, shared, range), _unshared(other, shared, range)
    islands, ahead = _islands(left, right), 1
    done = b""
    while group := list(islice(islands, ahead)):
        ahead = min(2 * ahead, _MOST_AHEAD)
        loaded = iter(one.segments([s for *sides, _ in group for side in sides for s in side]))
        for ours, theirs, last in group:
            before, after = list(islice(loaded, len(ours))), list(islice(loaded, len(theirs)))
            differing = (key for key in _differing(before, after) if done < key < last)
            yield from (key for key in (*differing, last) if key in range)
            done = last


def _unshared(side: CommitIndex, shared: frozenset[ObjId], range: KeyRange) -> list[Stripe]:
    return [
        stripe
        for stripe in side.directory.stripes
        if stripe.segment not in shared
        and stripe.last >= range.lower
        and (range.upper is None or stripe.first < range.upper)
    ]


def _islands(left: list[Stripe], right: list[Stripe]) -> Iterator[Island]:
    """Runs of stripes that overlap those of the other side, each with its last key, in key order.

    Most islands are one stripe on each side: the same stripe before and after a change. A long run
    is cut into several islands; a stripe that reaches beyond the cut is in both.
    """
    lefts, rights = deque(left), deque(right)
    while lefts or rights:
        ours: list[Stripe] = []
        theirs: list[Stripe] = []
        sides = ((lefts, ours), (rights, theirs))
        last = min(stripes[0].last for stripes in (lefts, rights) if stripes)
        while any(stripes and stripes[0].first <= last for stripes in (lefts, rights)):
            if len(ours) + len(theirs) >= _LARGEST_ISLAND:
                last = min(ours[-1].last, theirs[-1].last)
                for stripes, side in sides:
                    if side[-1].last > last:
                        stripes.appendleft(side[-1])
                break
            for stripes, side in sides:
                if stripes and stripes[0].first <= last:
                    side.append(stripes.popleft())
                    last = max(last, side[-1].last)
        yield ours, theirs, last


def _differing(before: list[Segment], after: list[Segment]) -> Iterator[bytes]:
    if len(before) == len(after) == 1 and before[0].keys == after[0].keys:
        yield from before[0].differing(after[0])
        return
    were = dict(entry for segment in before for entry in segment.items())
    are = dict(entry for segment in after for entry in segment.items())
    yield from sorted(key for key, _ in were.items() ^ are.items())
