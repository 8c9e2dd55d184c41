"""Which commits lie between two places of a branch, and where two histories parted."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from morag.client.places import NO_ANCESTOR

if TYPE_CHECKING:
    from collections.abc import Iterable

    from morag.client import Client
    from morag.versions.repository import Repository


def commits_after(catalog: Repository | Client, after: str, head: str) -> list[str] | None:
    """The commits that lead from `after` to `head`, newest first; None if none do.

    Only first parents count: what a merge brought is in the merge commit.
    """
    if head == after:
        return []
    if head == NO_ANCESTOR:
        return None
    if after == NO_ANCESTOR:
        return list(catalog.history.hashes(f"@{head}"))
    found = list(catalog.history.hashes(f"@{head}", until=after))
    return found[:-1] if found[-1] == after else None


def fork_of(catalog: Repository | Client, one: str, other: str) -> str:
    """The newest commit that two histories share; where they share none, their beginning."""
    seen: set[str] = set()
    # Side by side: both may be long, but the fork is near.
    for pair in zip_longest(_history(catalog, one), _history(catalog, other)):
        for hash in pair:
            if hash in seen:
                return hash
            if hash is not None:
                seen.add(hash)
    return NO_ANCESTOR


def _history(catalog: Repository | Client, head: str) -> Iterable[str]:
    return () if head == NO_ANCESTOR else catalog.history.hashes(f"@{head}")
