"""Finds the differences between two commits, without reading the segments that they share."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.index_entries import NONE, exists, value_of, with_action
from morag.index.keys import ALL, KeyRange
from morag.index.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from morag.format.objects import Stripe
    from morag.format.records import ObjId
    from morag.index.layered import CommitIndex

    Island = tuple[list[Stripe], list[Stripe], bytes]
    """Stripes of both sides that overlap, and their last key."""

Difference = tuple[bytes, bytes | None, bytes | None]
"""A key and its entries on both sides, with any action; None if it does not exist."""

_MOST_AHEAD: Final = 16  # Islands whose stripes are read together.
_LARGEST_ISLAND: Final = 8  # Stripes of both sides that are compared together.
_KEYS_AT_ONCE: Final = 32
_FEW: Final = 4  # One key in four can be looked up in the time in which all are compared.


class _Island(Struct, frozen=True):
    """All keys from `first` to `last`, both inclusive, and the stripes of both sides that hold
    them. No other stripe does. Stripes may have more keys than that."""

    first: bytes
    last: bytes
    before: list[Segment]
    after: list[Segment]

    @property
    def is_update(self) -> bool:
        """Whether one stripe became another with the same keys."""
        one, other = self.before, self.after
        return len(one) == len(other) == 1 and one[0].keys == other[0].keys


def diff(one: CommitIndex, other: CommitIndex, range: KeyRange = ALL) -> Iterator[Difference]:
    """Keys whose values differ, in key order.

    A segment that both sides have is the same on both sides, so only other segments and the two
    incremental indexes can hold a difference.
    """
    return (found for found in diff_with_pauses(one, other, range) if found is not None)


def diff_with_pauses(
    one: CommitIndex, other: CommitIndex, range: KeyRange = ALL
) -> Iterator[Difference | None]:
    """Like `diff`, with None after each few keys that were compared.

    There is an item every few milliseconds at least, so that a caller with little time can stop
    there.
    """
    # Sorting two sorted runs takes no more than merging them.
    both = sorted((*_overlay_keys(one, range), *_overlay_keys(other, range)))
    overlay = list(dict.fromkeys(both))
    compared = 0
    for island in _loaded_islands(one, other, range):
        first = bisect_left(overlay, island.first, compared)
        yield from differences(one, other, overlay[compared:first])
        compared = bisect_right(overlay, island.last, first)
        overlaid = overlay[first:compared]
        inside = range.within(KeyRange(island.first, island.last + b"\0"))
        if island.is_update and _FEW * len(overlaid) < len(island.before[0]):
            updated = (k for k in island.before[0].differing(island.after[0]) if k in inside)
            yield from differences(one, other, sorted({*updated, *overlaid}))
        else:
            were, are = _entries(one, island.before, inside), _entries(other, island.after, inside)
            yield from _unequal(were, are)
        yield None
    yield from differences(one, other, overlay[compared:])


def differences(
    one: CommitIndex, other: CommitIndex, keys: Iterable[bytes]
) -> Iterator[Difference | None]:
    """The keys, given in order, whose values differ; and None after each few keys."""
    rest = iter(keys)
    while batch := list(islice(rest, _KEYS_AT_ONCE)):
        before, after = one.get_all(batch), other.get_all(batch)
        yield from _unequal(before, after)
        yield None


def _unequal(before: Mapping[bytes, bytes], after: Mapping[bytes, bytes]) -> Iterator[Difference]:
    """The keys whose values differ, in order. Entries of most keys are equal as bytes."""
    for key in sorted({key for key, _ in before.items() ^ after.items()}):
        left, right = before.get(key), after.get(key)
        if left is None or right is None or value_of(left) != value_of(right):
            yield key, left, right


def _overlay_keys(side: CommitIndex, range: KeyRange) -> Sequence[bytes]:
    low, high = side.incremental.bounds(range)
    return side.incremental.keys[low:high]


def _entries(side: CommitIndex, segments: list[Segment], range: KeyRange) -> dict[bytes, bytes]:
    """The entries of a side in a range that only these segments cover.

    All have the action of a stripe, so that those of both sides can be compared.
    """
    found = dict(entry for segment in segments for entry in segment.slice(range))
    for key, op in side.incremental.slice(range):
        if exists(op):
            found[key] = with_action(NONE, op)
        else:
            found.pop(key, None)
    return found


def _loaded_islands(one: CommitIndex, other: CommitIndex, range: KeyRange) -> Iterator[_Island]:
    """The parts of the two reference indexes that may differ, in key order."""
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
            first = max(done, min(stripe.first for stripe in (*ours, *theirs)))
            before, after = list(islice(loaded, len(ours))), list(islice(loaded, len(theirs)))
            yield _Island(first, last, before, after)
            done = last + b"\0"


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
