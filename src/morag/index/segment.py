"""One sorted run of keys and entries, with the pieces its bytes are joined from.

Encoding an index key by key costs more than a whole commit may, so it happens once per key: each
entry is kept as the chunk that stands for it in the serialized form. That is how many bytes of the
previous key to drop, what to append, and the entry itself. A change touches the chunks of its
neighbours only, and serializing is one join.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct

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

# A chunk, its drop count, and its key bytes. The quantifiers are possessive, because there is only
# one way to read a key: up to its first empty element.
_CHUNK: Final = re.compile(
    rb"(([\x80-\xff]*+[\x00-\x7f])((?:[^\x00]++\x00)++\x00)"
    rb"[NARar][\x00-\x7f](?:\x20.{32}|\x00).{16})",
    re.DOTALL,
)


class Segment(Struct, frozen=True, gc=False):
    """Immutable: whoever wants another segment makes a new one.

    Tuples of bytes, in an object that is not tracked: there are thousands of these in a cache, and
    the garbage collector has no business with any of them.
    """

    keys: tuple[bytes, ...]
    chunks: tuple[bytes, ...]

    @classmethod
    def build(cls, entries: Iterable[Entry]) -> Segment:
        """From entries in key order."""
        keys, chunks = [], []
        previous: bytes | None = None
        for key, op in entries:
            keys.append(key)
            chunks.append(_head(previous, key) + op)
            previous = key
        return cls(tuple(keys), tuple(chunks))

    @classmethod
    def decode(cls, data: bytes) -> Segment:
        try:
            return _decode(data)
        except (IndexError, ValueError) as damage:
            raise RepositoryCorrupt(f"An index is not readable: {damage}") from damage

    def serialize(self) -> bytes:
        return b"".join((_VERSION, varint(len(self.keys)), *self.chunks))

    @property
    def ops(self) -> list[bytes]:
        return [_op(chunk) for chunk in self.chunks]

    def find(self, key: bytes) -> bytes | None:
        at = bisect_left(self.keys, key)
        if at < len(self.keys) and self.keys[at] == key:
            return _op(self.chunks[at])
        return None

    def items(self) -> Iterator[Entry]:
        return zip(self.keys, map(_op, self.chunks), strict=True)

    def slice(self, range: KeyRange) -> list[Entry]:
        """The entries whose keys are in the range."""
        low = bisect_left(self.keys, range.lower) if range.lower else 0
        high = len(self.keys) if range.upper is None else bisect_left(self.keys, range.upper)
        return list(zip(self.keys[low:high], map(_op, self.chunks[low:high]), strict=True))

    def changed(self, changes: Sequence[Change]) -> Segment:
        """A copy with the changes applied. They come in key order, each key once."""
        if 4 * len(changes) > len(self.keys):
            return self._rebuilt(changes)
        updated = self._updated(changes)
        if updated is not None:
            return updated
        keys, chunks = list(self.keys), list(self.chunks)
        for key, op in reversed(changes):  # From the end, so that positions stay true.
            at = bisect_left(keys, key)
            found = at < len(keys) and keys[at] == key
            if found and op is not None:
                chunk = chunks[at]
                chunks[at] = chunk[: _op_start(chunk)] + op
                continue
            if found:
                del keys[at], chunks[at]
            elif op is not None:
                keys.insert(at, key)
                chunks.insert(at, _head(keys[at - 1] if at else None, key) + op)
                at += 1
            else:
                continue
            if at < len(keys):
                chunks[at] = _head(keys[at - 1] if at else None, keys[at]) + _op(chunks[at])
        return Segment(tuple(keys), tuple(chunks))

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
        seam = _head(self.keys[-1], other.keys[0]) + _op(other.chunks[0])
        return Segment(self.keys + other.keys, (*self.chunks, seam, *other.chunks[1:]))

    def __len__(self) -> int:
        return len(self.keys)

    def _part(self, low: int, high: int) -> Segment:
        first = _head(None, self.keys[low]) + _op(self.chunks[low])
        return Segment(self.keys[low:high], (first, *self.chunks[low + 1 : high]))

    def _updated(self, changes: Sequence[Change]) -> Segment | None:
        """A copy that shares its keys with this one, if the changes are updates only."""
        found: list[tuple[int, bytes]] = []
        for key, op in changes:
            at = bisect_left(self.keys, key)
            if op is None or at == len(self.keys) or self.keys[at] != key:
                return None
            found.append((at, op))
        chunks = list(self.chunks)
        for at, op in found:
            chunks[at] = chunks[at][: _op_start(chunks[at])] + op
        return Segment(self.keys, tuple(chunks))

    def _rebuilt(self, changes: Sequence[Change]) -> Segment:
        merged: dict[bytes, bytes | None] = dict(self.items())
        merged.update(changes)
        return Segment.build((k, op) for k, op in sorted(merged.items()) if op is not None)


EMPTY: Final = Segment((), ())


def _op_start(chunk: bytes) -> int:
    # Neither a drop count nor a key holds two zeros in a row before the key ends by them. The
    # first byte is passed over, because a drop count may end in a zero where damage put one.
    return chunk.find(END, 1) + 2


def _op(chunk: bytes) -> bytes:
    return chunk[chunk.find(END, 1) + 2 :]


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
    if at == len(data):
        if count:
            raise ValueError("its entries are missing")
        return EMPTY
    start = at
    first, at = _read_entry(data, at)
    keys, chunks = [first], [data[start:at]]
    found = _CHUNK.findall(data, at)
    # A search skips what it cannot read; that the chunks add up shows that nothing was skipped.
    if sum(len(chunk) for chunk, _, _ in found) == len(data) - at:
        key = first
        for chunk, drop, rest in found:
            kept = len(key) - (drop[0] if len(drop) == 1 else read_varint(drop, 0)[0])
            if kept < 0:
                raise ValueError(_DROPS_TOO_MUCH)
            key = key[:kept] + rest
            keys.append(key)
            chunks.append(chunk)
    else:
        _decode_slowly(data, at, keys, chunks)
    joined = b"".join(keys)
    if not joined.isascii():
        joined.decode()  # Who shows a key later must not stumble over it.
        keys = [sortable(key) for key in keys]
    if count is not None and count != len(keys):
        raise ValueError(f"it should have {count} entries and has {len(keys)}")
    return Segment(tuple(keys), tuple(chunks))


def _decode_slowly(data: bytes, at: int, keys: list[bytes], chunks: list[bytes]) -> None:
    """For entries with values of unusual length."""
    key = keys[0]
    while at < len(data):
        start = at
        dropped, at = read_varint(data, at)
        if dropped > len(key):
            raise ValueError(_DROPS_TOO_MUCH)
        rest, at = _read_entry(data, at)
        key = key[: len(key) - dropped] + rest
        keys.append(key)
        chunks.append(data[start:at])


def _read_entry(data: bytes, at: int) -> tuple[bytes, int]:
    """Key bytes, and where the entry behind them ends."""
    start = at
    while data[at]:
        at = data.index(0, at) + 1
    at += 1
    rest = data[start:at]
    if not rest.endswith(END):
        raise ValueError("a key does not end")
    if data[at] not in ACTIONS:
        raise ValueError(f"action {data[at]} is not known")
    if data[at + 1] > 127:
        raise ValueError(f"payload {data[at + 1]} is not one byte")
    size = data[at + 2]
    if size > 127:  # Who takes the id out of an entry counts on one byte before it.
        raise ValueError("a value's id is too long")
    at += 3 + size + 16
    if at > len(data):
        raise ValueError("it is cut short")
    return rest, at
