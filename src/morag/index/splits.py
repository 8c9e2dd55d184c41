"""Cutting the keys of a commit into ranges that can be read side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from morag.index.layered import CommitIndex


def split_keys(index: CommitIndex, parts: int) -> list[bytes]:
    """Where to cut for at most `parts` ranges of about the same size; each key starts a range.

    Stripes are of about the same size, and a range is a run of whole ones: nothing but their
    directory is read. What is small enough for one stripe stays in one piece.
    """
    firsts = [stripe.first for stripe in index.directory.stripes]
    parts = min(parts, len(firsts))
    return [firsts[part * len(firsts) // parts] for part in range(1, parts)]
