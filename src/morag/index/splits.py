"""Cutting the keys of a commit into ranges that can be read side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from morag.index.layered import CommitIndex

_FEW: Final = 64  # Entries that count as much as a stripe does.


def split_keys(index: CommitIndex, parts: int) -> list[bytes]:
    """Where to cut for at most `parts` ranges of about the same size; each key starts a range.

    Stripes are of about the same size; what a large commit added has not been put into stripes
    yet. Nothing but the directory of stripes is read. What is small stays in one piece.
    """
    stripes = [stripe.first for stripe in index.directory.stripes]
    starts = sorted({*stripes, *index.incremental.keys[_FEW::_FEW]})
    parts = min(parts, len(starts) + (not stripes))
    return [starts[part * len(starts) // parts] for part in range(1, parts)]
