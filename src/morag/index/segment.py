"""One sorted run of keys and entries, with the bytes it serializes to.

Encoding an index key by key would cost more than the rest of a commit, so each key is encoded only
once: an entry is kept as its chunk of the serialized form. A chunk has the number of bytes of the
previous key to drop, the bytes to append, and the entry itself. All chunks are in one byte string,
with the offsets at which they end: a change splices a few bytes and copies the rest as a whole.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.index_bytes import chunk_head, split_index, whole_index
from morag.format.key_order import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.index.keys import KeyRange

Entry = tuple[bytes, bytes]
Change = tuple[bytes, bytes | None]
"""A key and its new entry, or None to drop it."""

_COMPARED_AT_ONCE: Final = 16


class Segment(Struct, frozen=True, gc=False):
    """Immutable: a change makes a new segment.

    Neither a segment nor its parts are tracked by Python's garbage collector: a cache holds
    thousands of segments.
    """

    keys: tuple[bytes, ...]
    data: bytes
    ends: array[int]

    @classmethod
    def build(cls, entries: Iterable[Entry]) -> Segment:
        """A segment of these entries, which must come in key order."""
        keys, chunks = [], []
        previous: bytes | None = None
        for key, op in entries:
            keys.append(key)
            chunks.append(chunk_head(previous, key) + op)
            previous = key
        return cls.of_chunks(keys, chunks)

    @classmethod
    def of_chunks(cls, keys: Iterable[bytes], chunks: Sequence[bytes]) -> Segment:
        return cls(tuple(keys), b"".join(chunks), array("I", accumulate(map(len, chunks))))

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        """Raises the errors of `split_index`; the caller knows the object of these bytes."""
        keys, chunks = split_index(data)
        return cls.of_chunks(keys, chunks) if keys else EMPTY

    def serialize(self) -> bytes:
        return whole_index(len(self.keys), self.data)

    def find(self, key: bytes) -> bytes | None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return self.data[self._op_start(at) : self.ends[at]]
        return None

    def find_all(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The entries of those keys that are here. The keys come in order."""
        own, data, find, ends = self.keys, self.data, self.data.find, self.ends
        found: dict[bytes, bytes] = {}
        at, end = 0, bisect_right(own, keys[-1]) if keys else 0
        for key in keys:
            if at == end:  # For the first key already, if none of the entries is between the keys.
                break
            if own[at] != key:  # It often is equal: clients read all tables of a namespace.
                at = bisect_left(own, key, at, end)
                if at == end or own[at] != key:
                    continue
            start = ends[at - 1] if at else 0
            found[key] = data[find(END, start + 1) + 2 : ends[at]]  # As in `_op_start`.
            at += 1
        return found

    def items(self) -> Iterator[Entry]:
        return self.part(0, len(self.keys))

    def slice(self, range: KeyRange) -> list[Entry]:
        """The entries whose keys are in the range."""
        return list(self.part(*self.bounds(range)))

    def bounds(self, range: KeyRange) -> tuple[int, int]:
        """The positions of the first key in the range, and of the first key after it."""
        low = bisect_left(self.keys, range.lower) if range.lower else 0
        high = len(self.keys) if range.upper is None else bisect_left(self.keys, range.upper)
        return low, high

    def changed(self, changes: Sequence[Change]) -> Segment:
        """A copy with the changes applied. They come in key order, each key once."""
        updates, others = [], []
        for key, op in changes:
            at = bisect_left(self.keys, key)
            found = at < len(self.keys) and self.keys[at] == key
            if found and op is not None and len(op) == self.ends[at] - self._op_start(at):
                updates.append((at, op))
            elif found or op is not None:
                others.append((key, op))
        if 4 * len(others) > len(self.keys):
            return self._rebuilt(changes)
        segment = self._updated(updates) if updates else self
        for key, op in others:
            segment = segment._without(key) if op is None else segment._with(key, op)
        return segment

    def differing(self, other: Segment) -> Iterator[bytes]:
        """The keys whose entries differ from those of another segment with the same keys."""
        if self.ends != other.ends:
            mine, theirs = self.items(), other.items()
            yield from (k for (k, a), (_, b) in zip(mine, theirs, strict=True) if a != b)
            return
        start = 0
        for low in range(0, len(self.keys), _COMPARED_AT_ONCE):
            high = min(low + _COMPARED_AT_ONCE, len(self.keys))
            end = self.ends[high - 1]
            if self.data[start:end] != other.data[start:end]:
                pairs = zip(self.part(low, high), other.part(low, high), strict=True)
                yield from (k for (k, a), (_, b) in pairs if a != b)
            start = end

    def divided(self, parts: int) -> list[Segment]:
        """Cut into parts with nearly equal numbers of entries; the last one takes the rest."""
        count = len(self.keys)
        size = max(1, count // parts)
        cuts = [*range(0, min(size * parts, count), size), count]
        return [self._part(low, high) for low, high in pairwise(cuts)]

    def joined(self, other: Segment) -> Segment:
        """This segment followed by another whose keys are all greater."""
        if not self.keys:
            return other
        if not other.keys:
            return self
        seam = chunk_head(self.keys[-1], other.keys[0])
        rest = other.data[other._op_start(0) :]
        moved = len(self.data) + len(seam) + len(rest) - len(other.data)
        ends = self.ends + array("I", [end + moved for end in other.ends])
        return Segment(self.keys + other.keys, self.data + seam + rest, ends)

    def __len__(self) -> int:
        return len(self.keys)

    def _start(self, at: int) -> int:
        return self.ends[at - 1] if at else 0

    def _op_start(self, at: int) -> int:
        # A key ends with its first two zeros in a row, and a drop count has none. The first byte is
        # skipped, because a damaged drop count may end in a zero.
        return self.data.find(END, self._start(at) + 1) + 2

    def part(self, low: int, high: int) -> Iterator[Entry]:
        """The entries at these positions."""
        data, find, start = self.data, self.data.find, self._start(low)
        for key, end in zip(self.keys[low:high], self.ends[low:high], strict=True):
            yield key, data[find(END, start + 1) + 2 : end]
            start = end

    def _updated(self, updates: list[tuple[int, bytes]]) -> Segment:
        """Entries replaced by others of the same length, so that nothing moves."""
        pieces: list[bytes] = []
        done = 0
        for at, op in updates:
            pieces += (self.data[done : self._op_start(at)], op)
            done = self.ends[at]
        return Segment(self.keys, b"".join((*pieces, self.data[done:])), self.ends)

    def _with(self, key: bytes, op: bytes) -> Segment:
        """One entry added, or replaced by one of another length."""
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            head = self.data[self._start(at) : self._op_start(at)]
            return self._spliced(at, at + 1, (key,), [head + op])
        chunk = chunk_head(self.keys[at - 1] if at else None, key) + op
        return self._spliced(at, at, (key,), [chunk])

    def _without(self, key: bytes) -> Segment:
        at = bisect_left(self.keys, key)
        return self._spliced(at, at + 1, (), [])

    def _spliced(
        self, low: int, high: int, keys: tuple[bytes, ...], chunks: list[bytes]
    ) -> Segment:
        """Replace the entries from `low` to `high`. The next entry gets a new head."""
        start, new_keys = self._start(low), self.keys[:low] + keys + self.keys[high:]
        stop = self._start(high)
        behind = high
        if high < len(self.keys):
            previous = new_keys[low + len(keys) - 1] if low + len(keys) else None
            op = self.data[self._op_start(high) : self.ends[high]]
            chunks = [*chunks, chunk_head(previous, self.keys[high]) + op]
            stop, behind = self.ends[high], high + 1
        middle = b"".join(chunks)
        moved = start + len(middle) - stop
        ends = self.ends[:low]
        ends.extend(accumulate((len(chunk) for chunk in chunks), initial=start))
        del ends[low]  # The initial value is the start of the first chunk.
        ends.extend([end + moved for end in self.ends[behind:]])
        return Segment(new_keys, self.data[:start] + middle + self.data[stop:], ends)

    def _part(self, low: int, high: int) -> Segment:
        first, at = chunk_head(None, self.keys[low]), self._op_start(low)
        data = first + self.data[at : self.ends[high - 1]]
        moved = len(first) - at
        return Segment(
            self.keys[low:high], data, array("I", [end + moved for end in self.ends[low:high]])
        )

    def _rebuilt(self, changes: Sequence[Change]) -> Segment:
        merged: dict[bytes, bytes | None] = dict(self.items())
        merged.update(changes)
        return Segment.build((k, op) for k, op in sorted(merged.items()) if op is not None)


EMPTY: Final = Segment((), b"", array("I"))
