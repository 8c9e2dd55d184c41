"""Cutting all ids into parts, for engines that keep them in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from morag.backend.base import Slice


def id_range(part: Slice) -> tuple[bytes, bytes | None]:
    """The first id of the part, and the first id after it; `None` stands for the end.

    The bounds cut the space of the first four bytes into equal ranges. Compared as byte strings
    they put an id of any length into exactly one part, also an empty one.
    """
    assert 0 <= part.index < part.count <= 1 << 32, f"there is no part {part}"
    low = _bound(part.index, part.count) if part.index else b""
    high = _bound(part.index + 1, part.count) if part.index + 1 < part.count else None
    return low, high


def _bound(index: int, count: int) -> bytes:
    return ((index << 32) // count).to_bytes(4, "big")
