"""Finds the commits between two positions of a branch, and the fork of two histories."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from morag.model.names import NO_ANCESTOR_HASH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.catalog import Catalog


def commits_after(catalog: Catalog, after: str, head: str) -> list[str] | None:
    """The commits that lead from `after` to `head`, newest first; None if none do.

    Only first parents count: a merge commit contains the merged changes.
    """
    if head == after:
        return []
    if head == NO_ANCESTOR_HASH:
        return None
    if after == NO_ANCESTOR_HASH:
        return list(catalog.history.hashes(f"@{head}"))
    found = list(catalog.history.hashes(f"@{head}", until=after))
    return found[:-1] if found[-1] == after else None


def fork_of(catalog: Catalog, one: str, other: str) -> str:
    """The newest commit that two histories share, or the empty beginning."""
    seen: set[str] = set()
    # Side by side: both may be long, but the fork is near.
    for pair in zip_longest(_history(catalog, one), _history(catalog, other)):
        for hash in pair:
            if hash in seen:
                return hash
            if hash is not None:
                seen.add(hash)
    return NO_ANCESTOR_HASH


def _history(catalog: Catalog, head: str) -> Iterable[str]:
    return () if head == NO_ANCESTOR_HASH else catalog.history.hashes(f"@{head}")
