"""Rows with damaged bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume

from morag.format.records import Row

if TYPE_CHECKING:
    from collections.abc import Sequence


def damaged(row: Row, hits: Sequence[tuple[int, int]], size: int | None) -> Row:
    """The row with the bits of each mask flipped at its offset, cut off at `size` if it is given.

    Hypothesis discards the example if the row stays the same.
    """
    data = bytearray(row.data)
    for at, mask in hits:
        data[at % len(data)] ^= mask
    assume(data[:size] != row.data)
    return Row(row.id, row.kind, bytes(data[:size]))
