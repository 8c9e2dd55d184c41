"""One sorted run of keys and entries, with the pieces its bytes are joined from.

Encoding an index key by key costs more than a whole commit may, so it happens once per key: each
entry keeps its encoded head (how many bytes of the previous key to drop, and what to append), a
change touches the heads of its neighbours only, and serializing is one join.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.index.ops import ACTIONS
from morag.persist.order import END, sortable, to_utf8
from morag.wire import read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.index.keys import KeyRange

Entry = tuple[bytes, bytes]
Change = tuple[bytes, bytes | None]
"""A key and its new entry, or None to drop it."""

_VERSION: Final = b"\x02"
_DROPS_TOO_MUCH: Final = "a key drops more than the previous one has"

# Head, its drop count, its key bytes, then the entry. The quantifiers are possessive, because there
# is only one way to read a key: up to its first empty element.
_ENTRY: Final = re.compile(
    rb"(([\x80-\xff]*+[\x00-\x7f])((?:[^\x00]++\x00)++\x00))"
    rb"([NARar][\x00-\x7f](?:\x20.{32}|\x00).{16})",
    re.DOTALL,
)


class Segment:
    """Immutable by agreement: whoever wants another segment makes a new one."""

    __slots__ = ("heads", "keys", "ops")

    def __init__(self, keys: list[bytes], heads: list[bytes], ops: list[bytes]) -> None:
        self.keys = keys
        self.heads = heads
        self.ops = ops

    @classmethod
    def build(cls, entries: Iterable[Entry]) -> Segment:
        """From entries in key order."""
        keys, heads, ops = [], [], []
        previous: bytes | None = None
        for key, op in entries:
            keys.append(key)
            heads.append(_head(previous, key))
            ops.append(op)
            previous = key
        return cls(keys, heads, ops)

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        try:
            return _decode(data)
        except (IndexError, ValueError) as damage:
            raise RepositoryCorrupt(f"An index is not readable: {damage}") from damage

    def serialize(self) -> bytes:
        pieces = [b""] * (2 * len(self.keys))
        pieces[::2] = self.heads
        pieces[1::2] = self.ops
        return b"".join((_VERSION, varint(len(self.keys)), *pieces))

    def find(self, key: bytes) -> bytes | None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return self.ops[at]
        return None

    def items(self) -> Iterator[Entry]:
        return zip(self.keys, self.ops, strict=True)

    def bounds(self, range: KeyRange) -> tuple[int, int]:
        """The positions that the range covers."""
        low = bisect_left(self.keys, range.lower) if range.lower else 0
        high = len(self.keys) if range.upper is None else bisect_left(self.keys, range.upper)
        return low, max(low, high)

    def slice(self, range: KeyRange) -> list[Entry]:
        low, high = self.bounds(range)
        return list(zip(self.keys[low:high], self.ops[low:high], strict=True))

    def changed(self, changes: Sequence[Change]) -> Segment:
        """A copy with the changes applied. They come in key order, each key once."""
        if 4 * len(changes) > len(self.keys):
            return self._rebuilt(changes)
        keys, heads, ops = self.keys.copy(), self.heads.copy(), self.ops.copy()
        for key, op in reversed(changes):  # From the end, so that positions stay true.
            at = bisect_left(keys, key)
            found = at < len(keys) and keys[at] == key
            if found and op is not None:
                ops[at] = op
                continue
            if found:
                del keys[at], heads[at], ops[at]
            elif op is not None:
                keys.insert(at, key)
                heads.insert(at, _head(keys[at - 1] if at else None, key))
                ops.insert(at, op)
                at += 1
            else:
                continue
            if at < len(keys):
                heads[at] = _head(keys[at - 1] if at else None, keys[at])
        return Segment(keys, heads, ops)

    def divided(self, parts: int) -> list[Segment]:
        """Cut into parts of nearly equal entry count, the last taking the rest."""
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
        seam = _head(self.keys[-1], other.keys[0])
        heads = [*self.heads, seam, *other.heads[1:]]
        return Segment(self.keys + other.keys, heads, self.ops + other.ops)

    def __len__(self) -> int:
        return len(self.keys)

    def _part(self, low: int, high: int) -> Segment:
        heads = [_head(None, self.keys[low]), *self.heads[low + 1 : high]]
        return Segment(self.keys[low:high], heads, self.ops[low:high])

    def _rebuilt(self, changes: Sequence[Change]) -> Segment:
        merged: dict[bytes, bytes | None] = dict(zip(self.keys, self.ops, strict=True))
        merged.update(changes)
        return Segment.build((k, op) for k, op in sorted(merged.items()) if op is not None)


EMPTY: Final = Segment([], [], [])


def _head(previous: bytes | None, key: bytes) -> bytes:
    if previous is None:
        return to_utf8(key)
    shared = min(len(previous), len(key))
    differs = int.from_bytes(previous[:shared], "big") ^ int.from_bytes(key[:shared], "big")
    shared -= (differs.bit_length() + 7) // 8
    return varint(len(previous) - shared) + to_utf8(key[shared:])


def _decode(data: bytes) -> Segment:
    version = data[0]
    if version not in (1, 2):
        raise ValueError(f"version {version} is not known")
    count, at = read_varint(data, 1) if version == 2 else (None, 1)
    start = at
    if at == len(data):
        if count:
            raise ValueError("its entries are missing")
        return EMPTY
    first, op, at = _read_entry(data, at)
    keys, heads, ops = [first], [first], [op]
    found = _ENTRY.findall(data, at)
    if found:
        more_heads, drops, rests, more_ops = zip(*found, strict=True)
        heads += more_heads
        ops += more_ops
        key = first
        for drop, rest in zip(drops, rests, strict=True):
            kept = len(key) - (drop[0] if len(drop) == 1 else read_varint(drop, 0)[0])
            if kept < 0:
                raise ValueError(_DROPS_TOO_MUCH)
            key = key[:kept] + rest
            keys.append(key)
    # A search skips what it cannot read; that the pieces add up shows that nothing was skipped.
    if sum(map(len, heads)) + sum(map(len, ops)) != len(data) - start:
        return _decode_slowly(data, at, count, Segment([first], [first], [op]))
    return _checked(count, keys, heads, ops)


def _checked(count: int | None, keys: list[bytes], heads: list[bytes], ops: list[bytes]) -> Segment:
    joined = b"".join(keys)
    if not joined.isascii():
        joined.decode()  # Who shows a key later must not stumble over it.
        keys = [sortable(key) for key in keys]
    if count is not None and count != len(keys):
        raise ValueError(f"it should have {count} entries and has {len(keys)}")
    return Segment(keys, heads, ops)


def _decode_slowly(data: bytes, at: int, count: int | None, read: Segment) -> Segment:
    """For entries with values of unusual length. `read` holds the first one."""
    key = read.keys[0]
    while at < len(data):
        start = at
        dropped, at = read_varint(data, at)
        if dropped > len(key):
            raise ValueError(_DROPS_TOO_MUCH)
        drop = data[start:at]
        rest, op, at = _read_entry(data, at)
        key = key[: len(key) - dropped] + rest
        read.keys.append(key)
        read.heads.append(drop + rest)
        read.ops.append(op)
    return _checked(count, read.keys, read.heads, read.ops)


def _read_entry(data: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Key bytes, entry, and where they end."""
    start = at
    while data[at]:
        at = data.index(0, at) + 1
    at += 1
    rest, start = data[start:at], at
    if not rest.endswith(END):
        raise ValueError("a key does not end")
    if data[at] not in ACTIONS:
        raise ValueError(f"action {data[at]} is not known")
    if data[at + 1] > 127:
        raise ValueError(f"payload {data[at + 1]} is not one byte")
    size, value_at = read_varint(data, at + 2)
    at = value_at + size + 16
    if at > len(data):
        raise ValueError("it is cut short")
    return rest, data[start:at], at
