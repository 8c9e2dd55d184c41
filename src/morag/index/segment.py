"""One sorted run of keys and entries, with the bytes it serializes to.

Encoding an index key by key would cost more than the rest of a commit, so each key is encoded only
once: an entry is kept as its chunk of the serialized form. A chunk has the number of bytes of the
previous key to drop, the bytes to append, and the entry itself. All chunks are in one byte string,
with the offsets at which they end. A changed segment is put together from runs of chunks, which are
copied as a whole: only a chunk whose previous key is another one now gets a new head.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.index_bytes import chunk_head, chunk_heads, split_index, whole_index
from morag.format.key_order import END

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.index.keys import KeyRange

Entry = tuple[bytes, bytes]

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
        entries = list(entries)
        keys = [key for key, _ in entries]
        chunks = [head + op for head, (_, op) in zip(chunk_heads(keys), entries, strict=True)]
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

    def part(self, low: int, high: int) -> Iterator[Entry]:
        """The entries at these positions."""
        data, find, start = self.data, self.data.find, self._start(low)
        for key, end in zip(self.keys[low:high], self.ends[low:high], strict=True):
            yield key, data[find(END, start + 1) + 2 : end]  # As in `_op_start`.
            start = end

    def slice(self, range: KeyRange) -> list[Entry]:
        """The entries whose keys are in the range."""
        return list(self.part(*self.bounds(range)))

    def bounds(self, range: KeyRange) -> tuple[int, int]:
        """The positions of the first key in the range, and of the first key after it."""
        low = bisect_left(self.keys, range.lower) if range.lower else 0
        high = len(self.keys) if range.upper is None else bisect_left(self.keys, range.upper)
        return low, high

    def keys_with(self, action: bytes) -> list[bytes]:
        """The keys of the entries with this action."""
        if END + action not in self.data:
            return []  # In most cases that is enough. Ids may contain the same bytes.
        return [key for key, op in self.items() if op.startswith(action)]

    def with_actions(self, actions: bytes, keys: Iterable[bytes] | None = None) -> Segment:
        """A copy with other actions, by a table as for `bytes.translate`, in all entries or in
        those of these keys, which must be here."""
        data, find, ends = bytearray(self.data), self.data.find, self.ends
        positions = (
            range(len(ends)) if keys is None else [bisect_left(self.keys, key) for key in keys]
        )
        for at in positions:
            op_start = find(END, (ends[at - 1] if at else 0) + 1) + 2  # As in `_op_start`.
            data[op_start] = actions[data[op_start]]
        return Segment(self.keys, bytes(data), ends)

    def with_entry(self, key: bytes, op: bytes) -> Segment:
        """A copy with this entry, like `merged`, in a fraction of its time."""
        keys, data, ends = self.keys, self.data, self.ends
        at, count = bisect_left(keys, key), len(keys)
        if at < count and keys[at] == key:
            op_start, op_end = self._op_start(at), ends[at]
            if len(op) == op_end - op_start:  # Nothing moves.
                return Segment(keys, data[:op_start] + op + data[op_end:], ends)
            return self.merged(Segment.build([(key, op)]))
        start = self._start(at)
        chunk = chunk_head(keys[at - 1] if at else None, key) + op
        end = start + len(chunk)
        next_head, rest = (
            (chunk_head(key, keys[at]), self._op_start(at)) if at < count else (b"", start)
        )
        moved = end + len(next_head) - rest
        return Segment(
            (*keys[:at], key, *keys[at:]),
            b"".join((data[:start], chunk, next_head, data[rest:])),
            ends[:at] + array("I", [end, *[later + moved for later in ends[at:]]]),
        )

    def merged(self, other: Segment) -> Segment:
        """A copy with the entries of another segment, which replace those with the same keys."""
        if not other.keys:
            return self
        keys, count = self.keys, len(self.keys)
        # Each run of the other segment, and the run of this one that follows it.
        pairs: list[tuple[_Run, _Run]] = []
        mine = theirs = 0  # The positions up to which both are in the runs.
        replaced = 0
        for at, key in enumerate(other.keys):
            if mine < count and keys[mine] < key:
                start, mine = mine, bisect_left(keys, key, mine)
                pairs.append(((other, theirs, at), (self, start, mine)))
                theirs = at
            if mine < count and keys[mine] == key:
                mine += 1
                replaced += 1
        pairs.append(((other, theirs, len(other.keys)), (self, mine, count)))
        if replaced < len(other.keys):
            return _of_runs(list(chain.from_iterable(pairs)))
        # Versions of a segment share their keys, because many of them are in the cache.
        return self._overwritten(pairs) or Segment(keys, *_chunks(chain.from_iterable(pairs)))

    def _overwritten(self, pairs: Iterable[tuple[_Run, _Run]]) -> Segment | None:
        """Runs of another segment written over entries with the same keys, so that nothing moves
        and no key is encoded. None if an entry has another length.

        Each run comes with the run of this segment behind the entries that it replaces.
        """
        pieces: list[bytes] = []
        done = 0
        for (other, low, high), (_, behind, _) in pairs:
            if low == high:
                continue
            first = behind - (high - low)
            start, their_start = self._op_start(first), other._op_start(low)
            moved = start - their_start
            their_ends = other.ends[low:high]
            if self.ends[first:behind] != array("I", [end + moved for end in their_ends]):
                return None
            pieces += (self.data[done:start], other.data[their_start : their_ends[-1]])
            done = self.ends[behind - 1]
        pieces.append(self.data[done:])
        return Segment(self.keys, b"".join(pieces), self.ends)

    def without(self, keys: Iterable[bytes]) -> Segment:
        """A copy without the entries of these keys, which come in key order."""
        runs: list[_Run] = []
        mine, count = 0, len(self.keys)
        for key in keys:
            at = bisect_left(self.keys, key, mine)
            if at < count and self.keys[at] == key:
                runs.append((self, mine, at))
                mine = at + 1
        return _of_runs([*runs, (self, mine, count)]) if runs else self

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

    def between(self, low: int, high: int) -> Segment:
        """The entries at these positions as a segment."""
        return _of_runs([(self, low, high)])

    def divided(self, parts: int) -> list[Segment]:
        """Cut into parts with nearly equal numbers of entries; the last one takes the rest."""
        count = len(self.keys)
        size = max(1, count // parts)
        cuts = [*range(0, min(size * parts, count), size), count]
        return [self.between(low, high) for low, high in pairwise(cuts)]

    def joined(self, other: Segment) -> Segment:
        """This segment followed by another whose keys are all greater."""
        if not self.keys or not other.keys:
            return self if self.keys else other
        return _of_runs([(self, 0, len(self.keys)), (other, 0, len(other.keys))])

    def check_order(self) -> None:
        if any(one >= other for one, other in pairwise(self.keys)):
            raise ValueError("the keys of an index are out of order")

    def __len__(self) -> int:
        return len(self.keys)

    def _start(self, at: int) -> int:
        return self.ends[at - 1] if at else 0

    def _op_start(self, at: int) -> int:
        # A key ends with its first two zeros in a row, and a drop count has none. The first byte is
        # skipped, because a damaged drop count may end in a zero. Loops over keys have copies of
        # this expression: a call per key would double their time.
        return self.data.find(END, self._start(at) + 1) + 2


_Run = tuple[Segment, int, int]
"""The entries of a segment from a position up to, but not including, another one."""


def _of_runs(runs: Sequence[_Run]) -> Segment:
    """The segment of these runs, which come in key order."""
    return Segment(_keys(runs), *_chunks(runs))


def _keys(runs: Iterable[_Run]) -> tuple[bytes, ...]:
    return tuple(chain.from_iterable([segment.keys[low:high] for segment, low, high in runs]))


def _chunks(runs: Iterable[_Run]) -> tuple[bytes, array[int]]:
    """The chunks of these runs and their ends. The first chunk of a run may need a new head."""
    pieces: list[bytes] = []
    ends, size = array("I"), 0
    previous: bytes | None = None
    for segment, low, high in runs:
        if low == high:
            continue
        keys, run_ends = segment.keys, segment.ends[low:high]
        before, start = (keys[low - 1], segment.ends[low - 1]) if low else (None, 0)
        if previous != before:
            head = chunk_head(previous, keys[low])
            pieces.append(head)
            size += len(head)
            start = segment._op_start(low)
        stop, moved = run_ends[-1], size - start
        pieces.append(segment.data[start:stop])
        ends += array("I", [end + moved for end in run_ends]) if moved else run_ends
        size += stop - start
        previous = keys[high - 1]
    return b"".join(pieces), ends


EMPTY: Final = Segment((), b"", array("I"))
