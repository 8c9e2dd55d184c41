"""Rows whose bytes were hit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume

from morag.backend.base import Row

if TYPE_CHECKING:
    from collections.abc import Sequence


def damaged(row: Row, hits: Sequence[tuple[int, int]], size: int | None) -> Row:
    """The row with the bits of a mask flipped at each place, cut off at a size if there is one.

    A test is left if nothing has changed by that.
    """
    data = bytearray(row.data)
    for at, mask in hits:
        data[at % len(data)] ^= mask
    assume(data[:size] != row.data)
    return Row(row.id, row.kind, bytes(data[:size]))
