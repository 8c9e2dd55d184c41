"""The iteration order of Java's hash maps, where clients can see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.keys import ContentKey


def string_hash(text: str) -> int:
    """Java's hash of a string, as an unsigned number."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def spread(hash: int) -> int:
    """The hash that a hash map uses: its buckets depend on the upper bits as well."""
    return hash ^ (hash >> 16)


def hash_map_order(keys: Sequence[ContentKey]) -> list[ContentKey]:
    """The order in which a hash map iterates over distinct keys that were added one by one."""
    size = 16
    while 4 * len(keys) > 3 * size:
        size *= 2
    return sorted(keys, key=lambda key: spread(_key_hash(key)) & (size - 1))


def _key_hash(key: ContentKey) -> int:
    value = 1
    for element in key.elements:
        value = (31 * value + string_hash(element)) & 0xFFFFFFFF
    return value
