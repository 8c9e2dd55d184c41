"""The bytes of an index: a version, a count, and one chunk for each key.

A chunk has a drop count (how many bytes of the previous key to drop), the bytes to append, and the
entry of the key. The first chunk has no drop count. This module finds and builds the chunks that
`index/` works on.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.format.key_order import END, sortable, to_utf8
from morag.protobuf import SMALL_VARINTS, read_varint, varint

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NEWEST_VERSION: Final = b"\x02"
ACTIONS: Final = frozenset(b"NARar")
OWN_ACTIONS: Final = frozenset(b"AR")
"""The actions of entries that the commit itself added or removed."""
_LONGEST_USUAL: Final = len(b"\0\0A") + 1 + 1 + 32 + 16
"""The length from the end of a key to the end of its entry, with a value id of 32 bytes."""
_DROPS_TOO_MUCH: Final = "a key drops more than the previous one has"

# A chunk, its drop count, and its key bytes. The quantifiers are possessive, because there is only
# one way to read a key: up to its first empty element.
_CHUNK: Final = re.compile(
    rb"(([\x80-\xff]*+[\x00-\x7f])((?:[^\x00]++\x00)++\x00)"
    rb"[NARar][\x00-\x7f](?:\x20.{32}|\x00).{16})",
    re.DOTALL,
)
# The drop count and the key bytes of a chunk, and its entry if that is the commit's own.
_SOUGHT: Final = re.compile(
    rb"([\x80-\xff]*+[\x00-\x7f])((?:[^\x00]++\x00)++\x00)"
    rb"(?:[Nar][\x00-\x7f](?:\x20.{32}|\x00).{16}|([AR][\x00-\x7f](?:\x20.{32}|\x00).{16}))",
    re.DOTALL,
)


def whole_index(count: int, chunks: bytes) -> bytes:
    """The index with these chunks."""
    return _NEWEST_VERSION + varint(count) + chunks


def chunk_head(previous: bytes | None, key: bytes) -> bytes:
    """The part of a chunk before the entry: `key`, relative to the key `previous` before it."""
    if previous is None:
        return to_utf8(key)
    shared = min(len(previous), len(key))
    differs = int.from_bytes(previous[:shared], "big") ^ int.from_bytes(key[:shared], "big")
    shared -= (differs.bit_length() + 7) // 8
    return varint(len(previous) - shared) + to_utf8(key[shared:])


def chunk_heads(keys: Sequence[bytes]) -> list[bytes]:
    """The heads of all chunks of an index, as `chunk_head` makes them.

    Here each key becomes a number only once, and most keys need no call: that takes a third of the
    time, which shows in commits of many operations.
    """
    if not keys:
        return []
    number_of = int.from_bytes
    first = keys[0]
    heads = [to_utf8(first)]
    size, number = len(first), number_of(first, "big")
    for key in islice(keys, 1, None):
        size_before, before = size, number
        size, number = len(key), number_of(key, "big")
        if size == size_before:
            differs, dropped = before ^ number, 0
        elif size > size_before:
            differs, dropped = before ^ number >> 8 * (size - size_before), 0
        else:
            dropped = size_before - size
            differs = before >> 8 * dropped ^ number
        dropped += (differs.bit_length() + 7) // 8
        rest = key[size_before - dropped :]
        rest = rest if rest.isascii() else to_utf8(rest)
        heads.append((SMALL_VARINTS[dropped] if dropped < 128 else varint(dropped)) + rest)
    return heads


def split_index(data: bytes) -> tuple[list[bytes], list[bytes]]:
    """The keys as sortable bytes (`key_order.py`), and their chunks. Raises if it is damaged."""
    version = data[0]
    if version not in (1, 2):
        raise ValueError(f"version {version} is not known")
    count, at = read_varint(data, 1) if version == 2 else (None, 1)
    if at == len(data):
        if count:
            raise ValueError("its entries are missing")
        return [], []
    start = at
    first, at = _read_entry(data, at)
    keys, chunks = [first], [data[start:at]]
    found = _CHUNK.findall(data, at)
    # A search skips bytes that it cannot read. If the sizes add up, nothing was skipped.
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
        _split_slowly(data, at, keys, chunks)
    joined = b"".join(keys)
    if not joined.isascii():
        joined.decode()  # Raises if a key is not UTF-8: it could not be shown later.
        keys = [sortable(key) for key in keys]
    if count is not None and count != len(keys):
        raise ValueError(f"it should have {count} entries and has {len(keys)}")
    return keys, chunks


def own_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of the commit's own operations, with their keys in UTF-8 without the end mark.

    To list a commit in a log, no more is needed of its index. This takes a fraction of the time of
    `split_index`, because it stops at the last such entry and builds nothing. Unreadable bytes are
    skipped: the caller compares a hash of the result. Ids may contain the bytes that are searched
    for; then the search stops later than necessary, but never too early.
    """
    last = max(data.rfind(b"\0\0A"), data.rfind(b"\0\0R"))
    if last < 0 or data[0] not in (1, 2):
        return
    at = read_varint(data, 1)[1] if data[0] == 2 else 1
    start = at
    key, at = _read_entry(data, at)
    if data[start + len(key)] in OWN_ACTIONS:
        yield key[:-2], data[start + len(key) : at]
    for drop, rest, own in _SOUGHT.findall(data, at, last + _LONGEST_USUAL):
        key = key[: len(key) - (drop[0] if len(drop) == 1 else read_varint(drop, 0)[0])] + rest
        if own:
            yield key[:-2], own


def _split_slowly(data: bytes, at: int, keys: list[bytes], chunks: list[bytes]) -> None:
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
    """The key bytes, and the position after the entry that follows them."""
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
    if size > 127:  # Readers of entries rely on a length of one byte.
        raise ValueError("a value's id is too long")
    at += 3 + size + 16
    if at > len(data):
        raise ValueError("it is cut short")
    return rest, at
