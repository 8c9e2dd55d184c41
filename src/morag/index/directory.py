"""The stripes of a reference index, and where a key belongs among them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format import ids
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.objects import Index, IndexSegments, Stripe
from morag.index.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.format.objects import Commit
    from morag.format.records import ObjId
    from morag.persist.persist import Persist

Replacement = tuple[int, int, list[tuple[Stripe, Index | None]]]
"""Positions from, to, and the replacement: stripes, with their segments if these are new."""


class Directory:
    """Stripes in key order, none overlapping another. `lasts` are their last keys, if known.

    Each stripe keeps its encoded and its hashed form, so that a spill that changes a few of many
    thousand stripes encodes only those few.
    """

    def __init__(self, stripes: Iterable[Stripe], lasts: Iterable[bytes] | None = None) -> None:
        self.stripes = tuple(stripes)
        self.lasts = tuple([stripe.last for stripe in self.stripes] if lasts is None else lasts)

    @cached_property
    def segment_ids(self) -> frozenset[ObjId]:
        return frozenset(stripe.segment for stripe in self.stripes)

    def holding(self, key: bytes) -> Stripe | None:
        """The only stripe that can hold the key."""
        at = bisect_left(self.lasts, key)
        if at == len(self.lasts):
            return None
        stripe = self.stripes[at]
        return stripe if stripe.first <= key else None

    def holding_all(self, keys: Sequence[bytes]) -> Iterator[tuple[Stripe, Sequence[bytes]]]:
        """The stripes that can hold some of the keys, which come in order, each with its keys."""
        done = 0
        while done < len(keys):
            at = bisect_left(self.lasts, keys[done])
            if at == len(self.lasts):
                return
            stripe = self.stripes[at]
            low = bisect_left(keys, stripe.first, done)
            done = bisect_right(keys, stripe.last, low)
            if low < done:
                yield stripe, keys[low:done]

    def position(self, key: bytes) -> int:
        """The stripe that a key belongs to, whether or not it is there."""
        return min(bisect_left(self.lasts, key), len(self.lasts) - 1)

    def replaced(self, replacements: Sequence[Replacement]) -> Directory:
        """A copy with runs of stripes replaced; the runs are disjoint and in order."""
        stripes, lasts = list(self.stripes), list(self.lasts)
        encoded, hashed = list(self._encoded), list(self._hashed)
        for low, high, new in reversed(replacements):
            run = [stripe for stripe, _ in new]
            stripes[low:high] = run
            lasts[low:high] = [stripe.last for stripe in run]
            encoded[low:high] = [codec.encoded_stripe(stripe) for stripe in run]
            hashed[low:high] = [codec.hashed_stripe(stripe) for stripe in run]
        changed = Directory(stripes, lasts)
        changed._encoded, changed._hashed = tuple(encoded), tuple(hashed)
        return changed

    def as_object(self) -> IndexSegments:
        segments = IndexSegments(ids.segments_id(self._hashed), b"".join(self._encoded))
        segments.memo.form = self
        return segments

    @cached_property
    def _encoded(self) -> tuple[bytes, ...]:
        return tuple([codec.encoded_stripe(stripe) for stripe in self.stripes])

    @cached_property
    def _hashed(self) -> tuple[bytes, ...]:
        return tuple([codec.hashed_stripe(stripe) for stripe in self.stripes])

    def __len__(self) -> int:
        return len(self.stripes)


EMPTY: Final = Directory([])


def directory_of(persist: Persist, commit: Commit) -> Directory:
    if commit.reference_index is None:
        if not commit.stripes:
            return EMPTY
        _check_order(commit.id, commit.stripes)
        return Directory(commit.stripes)
    obj = persist.fetch_any(commit.reference_index)
    if isinstance(obj, Index):
        segment = segment_of(obj)
        if not segment:
            return EMPTY
        return Directory([Stripe(segment.keys[0], segment.keys[-1], obj.id)])
    if not isinstance(obj, IndexSegments):
        raise RepositoryCorrupt.object(obj.id, "is not a reference index")
    form = obj.memo.form  # Read once: another thread may replace the stripes by a directory.
    if not isinstance(form, Directory):
        stripes = form or codec.decode_stripes(obj.encoded)
        _check_order(obj.id, stripes)
        form = obj.memo.form = Directory(stripes)
    return form


def _check_order(id: ObjId, stripes: Iterable[Stripe]) -> None:
    """Refuse stripes that overlap: a diff of them would never end.

    The id of a commit does not cover the stripes in it.
    """
    before: bytes | None = None
    for stripe in stripes:
        if (before is not None and stripe.first <= before) or stripe.last < stripe.first:
            raise RepositoryCorrupt.object(id, "has the stripes of its index out of order")
        before = stripe.last


def segment_of(index: Index) -> Segment:
    """The segment in its decoded form, decoded at most once while it is cached."""
    try:
        return index.decoded(Segment.decode)
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(index.id, f"is not a readable index ({damage})") from damage


def segments_of(persist: Persist, stripes: Iterable[Stripe]) -> list[Segment]:
    found = persist.fetch_all(Index, [stripe.segment for stripe in stripes])
    return [segment_of(index) for index in found]
