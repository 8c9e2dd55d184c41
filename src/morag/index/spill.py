"""Grows an index by one commit, and spills it when it is too large.

Stripe sizes follow the repository. A spill rewrites about one stripe per changed key and the list
of all stripes once, so with S bytes per stripe the first costs S and the second total/S: the
best S grows with the square root of the total.
"""

from __future__ import annotations

from bisect import bisect_right
from math import isqrt
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.index_entries import (
    ADD,
    INCREMENTAL_ADD,
    INCREMENTAL_REMOVE,
    NONE,
    REMOVE,
    exists,
)
from morag.format.objects import Index, IndexSegments, Stripe
from morag.format.records import ObjId
from morag.index.directory import Directory, segments_of
from morag.index.layered import CommitIndex, index_of
from morag.index.segment import EMPTY, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.config import Settings
    from morag.format.objects import Commit
    from morag.index.directory import Replacement
    from morag.index.segment import Entry
    from morag.persist.persist import Persist

ENTRY_BYTES: Final = 64  # About what an entry takes in an index, without its key.
_STRIPE_ENTRY_BYTES: Final = 96  # About what one more stripe adds to the list of stripes.
_LARGEST_LIMIT_BYTES: Final = 50 * 1024
_LARGE_BYTES: Final = 64 * 1024  # More than the limit of an incremental index.
_MANY_STRIPES: Final = 4000  # A spill then rewrites more than a hundred of them.
_MOST_ADDED_ONE_BY_ONE: Final = 16
"""Much faster than a merge for updates, and hardly slower for new keys."""
_EARLIER: Final = bytes.maketrans(ADD + REMOVE, INCREMENTAL_ADD + INCREMENTAL_REMOVE)
"""The actions of a commit's own operations, as its child inherits them."""
_STORED: Final = bytes.maketrans(INCREMENTAL_ADD, NONE)
"""The actions of entries that exist, as a stripe has them."""


class NewIndex(Struct, frozen=True):
    """The index of a new commit, in the form that its object needs."""

    index: CommitIndex
    incremental: bytes
    reference_index: ObjId | None
    stripes: tuple[Stripe, ...]
    objects: tuple[Index | IndexSegments, ...] = ()


def grows_quickly(persist: Persist, head: Commit, added_bytes: Callable[[], int]) -> bool:
    """Whether a child of this commit gets its index within milliseconds.

    `added_bytes` estimates the size of its entries. It is called only if there are many stripes.
    """
    if len(head.incremental) > _LARGE_BYTES:  # Then `head` is a large commit, which must spill.
        return False
    directory = index_of(persist, head).directory
    if len(directory) <= _MANY_STRIPES:
        return True
    return len(head.incremental) + added_bytes() <= _limit_bytes(persist.settings, directory)


def grown_index(
    persist: Persist,
    parent: CommitIndex,
    inherited: tuple[ObjId | None, tuple[Stripe, ...]],
    operations: Sequence[Entry],
) -> NewIndex:
    """The parent's index with a new commit's operations, which come in key order.

    `inherited` is the parent's reference to its reference index; unless the index spills, the new
    commit has the same.
    """
    earlier = aged(parent)
    grown, own = earlier, None
    if len(operations) > _MOST_ADDED_ONE_BY_ONE:
        own = Segment.build(operations)
        grown = earlier.merged(own)
    else:
        for key, op in operations:
            grown = grown.with_entry(key, op)
    incremental = grown.serialize()
    if len(incremental) <= _limit_bytes(persist.settings, parent.directory):
        keys = tuple([key for key, _ in operations])
        index = CommitIndex(persist, grown, parent.directory, keys)
        return NewIndex(index, incremental, *inherited)
    if inherited[0] is not None:
        persist.demote([inherited[0]])
    return _spilled(persist, parent.directory, earlier, own or Segment.build(operations))


def checkpoint_index(
    persist: Persist, before: CommitIndex, changes: Segment, operations: Sequence[Entry]
) -> NewIndex:
    """The index of a commit that is some commits after `before`, without the ones in between.

    `changes` are the last operations of the commits in between, one for each key. As after a
    spill, all keys but those of the commit's own operations are in stripes.
    """
    earlier = aged(before).merged(changes.with_actions(_EARLIER))
    return _spilled(persist, before.directory, earlier, Segment.build(operations))


def aged(parent: CommitIndex) -> Segment:
    """The parent's entries as a child inherits them: its own operations become earlier ones.

    Without a reference index, removed keys need no entry.
    """
    aged = parent.incremental.with_actions(_EARLIER, parent.own)
    if parent.directory:
        return aged
    return aged.without([key for key, op in parent.operations() if not exists(op)])


def _spilled(persist: Persist, directory: Directory, earlier: Segment, own: Segment) -> NewIndex:
    """The index of a commit with its own operations only; the earlier ones move to stripes."""
    earlier = earlier.without(own.keys)
    removed = earlier.keys_with(INCREMENTAL_REMOVE)
    added = earlier.without(removed).with_actions(_STORED)
    replacements = _changed_runs(persist, directory, added, removed)
    after = directory.replaced(replacements) if replacements else directory
    persist.demote(
        stripe.segment for low, high, _ in replacements for stripe in directory.stripes[low:high]
    )
    objects: list[Index | IndexSegments] = [
        index for _, _, run in replacements for _, index in run if index is not None
    ]
    index = CommitIndex(persist, own, after, own.keys)
    if len(after) <= persist.settings.max_inlined_stripes:
        return NewIndex(index, own.serialize(), None, after.stripes, tuple(objects))
    segments = after.as_object()
    objects.append(segments)
    return NewIndex(index, own.serialize(), segments.id, (), tuple(objects))


def _changed_runs(
    persist: Persist, directory: Directory, added: Segment, removed: Sequence[bytes]
) -> list[Replacement]:
    """The stripes to replace, and their replacements with the added and without the removed."""
    if not directory:
        target = _target_bytes(persist.settings, directory, _size_bytes(added))
        return [(0, 0, _stripes(added, target))] if added else []
    adding, removing = _by_stripe(directory, added.keys), _by_stripe(directory, removed)
    touched = sorted(adding.keys() | removing.keys())
    if not touched:
        return []
    loaded = segments_of(persist, [directory.stripes[at] for at in touched])
    total = sum(map(_size_bytes, loaded)) * len(directory) // len(loaded)
    runs = _Runs(persist, directory, _target_bytes(persist.settings, directory, total))
    for at, segment in zip(touched, loaded, strict=True):
        low, high = adding.get(at, (0, 0))
        first, end = removing.get(at, (0, 0))
        runs.change(at, segment, added.between(low, high), removed[first:end])
    return runs.closed()


def _by_stripe(directory: Directory, keys: Sequence[bytes]) -> dict[int, tuple[int, int]]:
    """Where the keys of each stripe begin and end among these keys, which are in order."""
    found = {}
    low = 0
    while low < len(keys):
        at = directory.position(keys[low])
        is_last = at == len(directory) - 1
        high = len(keys) if is_last else bisect_right(keys, directory.lasts[at], low)
        found[at] = low, high
        low = high
    return found


class _Runs:
    """Collects rewritten stripes, from left to right; neighbours are merged while they fit.

    The open run replaces the stripes from `low` up to `high` by the entries in `held`. Earlier runs
    are closed.
    """

    def __init__(self, persist: Persist, directory: Directory, target: int) -> None:
        self._persist = persist
        self._directory = directory
        self._target = target
        self._closed: list[Replacement] = []
        self._low = self._high = 0
        self._held = EMPTY

    def change(self, at: int, segment: Segment, added: Segment, removed: Sequence[bytes]) -> None:
        if at < self._high:
            # A tiny stripe before this one was already merged with it.
            self._held = self._held.without(removed).merged(added)
        else:
            self._append(at, segment.without(removed).merged(added))
        if 4 * _size_bytes(self._held) < self._target:
            self._join_neighbour()

    def closed(self) -> list[Replacement]:
        self._close()
        return self._closed

    def _append(self, at: int, segment: Segment) -> None:
        joined = _size_bytes(self._held) + _size_bytes(segment)
        if at == self._high and joined <= self._target:
            self._held = self._held.joined(segment)
        else:
            self._close()
            self._low, self._held = at, segment
        self._high = at + 1

    def _join_neighbour(self) -> None:
        """Merge a run that is too small with the next stripe, or with the previous one if it is
        last.

        A previous stripe that is rewritten itself had no room for it.
        """
        untouched = self._closed[-1][1] if self._closed else 0
        if self._high < len(self._directory):
            self._held = self._held.joined(self._stored(self._high))
            self._high += 1
        elif untouched < self._low:
            self._low -= 1
            self._held = self._stored(self._low).joined(self._held)

    def _close(self) -> None:
        if self._low < self._high:
            self._closed.append((self._low, self._high, _stripes(self._held, self._target)))

    def _stored(self, at: int) -> Segment:
        (segment,) = segments_of(self._persist, [self._directory.stripes[at]])
        return segment


def _size_bytes(segment: Segment) -> int:
    return len(segment.data)


def _limit_bytes(settings: Settings, directory: Directory) -> int:
    """The limit of an incremental index: with more stripes, a spill costs more."""
    most = min(_LARGEST_LIMIT_BYTES, settings.max_object_bytes // 2)
    return max(settings.max_incremental_index_bytes, min(2 * len(directory), most))


def _target_bytes(settings: Settings, directory: Directory, total: int) -> int:
    best = isqrt(total * _STRIPE_ENTRY_BYTES * ENTRY_BYTES)
    best //= isqrt(max(settings.max_incremental_index_bytes, len(directory))) or 1
    best = max(settings.min_index_segment_bytes, min(best, settings.max_index_segment_bytes // 2))
    # The list of stripes is an object, too. Like a stripe it may take a quarter of the limit.
    quarter = settings.max_object_bytes // 4 or 1
    return max(best, min(_STRIPE_ENTRY_BYTES * total // quarter, quarter))


def _stripes(segment: Segment, target: int) -> list[tuple[Stripe, Index | None]]:
    """The segment as one stripe, or as several if it is larger than the target."""
    return [_stripe(part) for part in _parts(segment, target)] if segment else []


def _parts(segment: Segment, target: int) -> list[Segment]:
    """Parts with equal numbers of entries, cut further if long keys make them too large."""
    size = _size_bytes(segment)
    if size <= 2 * target or len(segment) == 1:
        return [segment]
    parts = segment.divided(max(2, size // target))
    return [small for part in parts for small in _parts(part, target)]


def _stripe(segment: Segment) -> tuple[Stripe, Index]:
    index = Index(segment.serialize(), segment)
    return Stripe(segment.keys[0], segment.keys[-1], index.id), index
