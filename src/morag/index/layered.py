"""All keys of a commit: its reference index, overlaid by its incremental index."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.damage import UNREADABLE
from morag.format.index_entries import content_id_of, exists, is_current
from morag.format.objects import Index
from morag.index.directory import EMPTY as NO_STRIPES
from morag.index.directory import directory_of, segment_of, segments_of
from morag.index.keys import ALL, KeyRange
from morag.index.segment import EMPTY as NO_ENTRIES
from morag.index.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.format.objects import Commit, Stripe
    from morag.index.directory import Directory
    from morag.index.segment import Entry
    from morag.persist.persist import Persist

_MOST_AHEAD: Final = 16  # Stripes that a scan reads together.
_SPLIT_ENTRIES: Final = 64  # This many entries outside the stripes count as one stripe.


class Run(Struct, frozen=True, gc=False):
    """Consecutive entries of a stripe, or of the incremental index if `stripe` is None."""

    stripe: Index | None
    segment: Segment
    low: int
    high: int

    def items(self) -> Iterator[Entry]:
        """The entries that exist."""
        entries = self.segment.part(self.low, self.high)
        if self.stripe is not None:
            return entries
        return (entry for entry in entries if exists(entry[1]))


class CommitIndex:
    """`own` are the keys of the commit's own operations, if the caller has them."""

    __slots__ = ("_own", "_persist", "directory", "incremental")

    def __init__(
        self,
        persist: Persist,
        incremental: Segment,
        directory: Directory,
        own: tuple[bytes, ...] | None = None,
    ) -> None:
        self._persist = persist
        self._own = own
        self.incremental = incremental
        self.directory = directory

    def get(self, key: bytes) -> bytes | None:
        """The entry of a key that exists."""
        op = self.incremental.find(key)
        if op is not None:
            return op if exists(op) else None
        stripe = self.directory.holding(key)
        if stripe is None:
            return None
        return segment_of(self._persist.fetch(Index, stripe.segment)).find(key)

    def get_all(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The entries of those keys that exist. Their stripes are read together."""
        wanted = sorted(keys)
        overlay = self.incremental.find_all(wanted)
        found = {key: op for key, op in overlay.items() if exists(op)}
        rest = [key for key in wanted if key not in overlay]
        striped = list(self.directory.holding_all(rest))
        if striped:
            segments = self.segments([stripe for stripe, _ in striped])
            for segment, (_, held) in zip(segments, striped, strict=True):
                found |= segment.find_all(held)
        return found

    def items(self, range: KeyRange = ALL) -> Iterator[Entry]:
        """Every key that exists, with its entry, in key order."""
        for run in self.runs(range):
            yield from run.items()

    def runs(self, range: KeyRange = ALL) -> Iterator[Run]:
        """Like `items`: the stripes, cut wherever the incremental index overlays them."""
        # The overlay is not copied in advance: it may be large, and a listing may wait long for
        # a slow client.
        overlay = self.incremental
        done, end = overlay.bounds(range)
        for last, stripe, segment, low, high in self._stripes(range):
            upto = bisect_right(overlay.keys, last, done, end)
            for at, key in enumerate(overlay.keys[done:upto], done):
                cut = bisect_left(segment.keys, key, low, high)
                if low < cut:
                    if done < at:
                        yield Run(None, overlay, done, at)
                        done = at
                    yield Run(stripe, segment, low, cut)
                low = cut + (cut < high and segment.keys[cut] == key)
            if low < high:
                if done < upto:
                    yield Run(None, overlay, done, upto)
                    done = upto
                yield Run(stripe, segment, low, high)
        yield Run(None, overlay, done, end)

    @property
    def own(self) -> tuple[bytes, ...]:
        """The keys of the commit's own operations."""
        if self._own is None:
            self._own = tuple(key for key, op in self.incremental.items() if is_current(op))
        return self._own

    def operations(self) -> Iterator[Entry]:
        """The commit's own operations."""
        for key in self.own:
            op = self.incremental.find(key)
            assert op is not None, "own keys are in the incremental index"
            yield key, op

    def segments(self, stripes: Sequence[Stripe]) -> list[Segment]:
        return segments_of(self._persist, stripes)

    def _stripes(self, range: KeyRange) -> Iterator[tuple[bytes, Index, Segment, int, int]]:
        """The reference index within the range: the last key of each stripe, and its entries."""
        stripes = self.directory.stripes
        low = bisect_left(self.directory.lasts, range.lower)
        upper = range.upper
        high = None if upper is None else bisect_left(self.directory.lasts, upper, low) + 1
        # The last of them may begin at the upper bound or after it.
        wanted = (s for s in islice(stripes, low, high) if upper is None or s.first < upper)
        ahead = 1
        while group := list(islice(wanted, ahead)):
            # Start small: a reader of one page should read little more than it needs.
            ahead = min(2 * ahead, _MOST_AHEAD)
            found = self._persist.fetch_all(Index, [stripe.segment for stripe in group])
            for stripe, index in zip(group, found, strict=True):
                segment = segment_of(index)
                inside = range.lower <= stripe.first and (upper is None or stripe.last < upper)
                low, high = (0, len(segment)) if inside else segment.bounds(range)
                yield stripe.last, index, segment, low, high


def index_of(persist: Persist, commit: Commit | None) -> CommitIndex:
    """The index of a commit; empty for None."""
    if commit is None:
        return CommitIndex(persist, NO_ENTRIES, NO_STRIPES)
    index: CommitIndex | None = commit.memo.form
    if index is None:
        incremental = _incremental_of(commit)
        index = commit.memo.form = CommitIndex(persist, incremental, directory_of(persist, commit))
    return index


def split_keys(index: CommitIndex, parts: int) -> list[bytes]:
    """The keys at which to cut for at most `parts` ranges of similar size; each starts a range.

    Stripes have similar sizes; the entries of a large commit may not be in stripes yet. Only the
    directory of stripes is read. A small index is not cut.
    """
    stripes = [stripe.first for stripe in index.directory.stripes]
    starts = sorted({*stripes, *index.incremental.keys[_SPLIT_ENTRIES::_SPLIT_ENTRIES]})
    parts = min(parts, len(starts) + (not stripes))
    return [starts[part * len(starts) // parts] for part in range(1, parts)]


def replaced(before: CommitIndex, changes: Iterable[Entry]) -> list[Entry]:
    """The entries of the index that the changes replace by other content."""
    added = {key: op for key, op in changes if exists(op)}
    return [
        (key, old)
        for key, old in before.get_all(list(added)).items()
        if content_id_of(old) != content_id_of(added[key])
    ]


def _incremental_of(commit: Commit) -> Segment:
    try:
        return Segment.decode(commit.incremental)
    except UNREADABLE as damage:
        raise RepositoryCorrupt.object(
            commit.id, f"has no readable incremental index ({damage})"
        ) from damage
