"""Compares all that two repositories show, commit by commit. Each commit is read once."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final

from morag.logic.consistency import Consistency
from tests.nessie.catalogs import NOTHING

if TYPE_CHECKING:
    from morag.versions.repository import Repository

_SAMPLED: Final = 20


def assert_same(found: Repository, expected: Repository, sampled: int = _SAMPLED) -> int:
    """Compare references, logs with operations, and the states at some commits.

    Returns the number of commits.
    """
    heads = assert_same_references(found, expected)
    hashes = _assert_same_logs(found, expected, heads)
    assert_same_states(found, expected, sampled_of(hashes, heads, sampled))
    return len(hashes)


def assert_same_references(found: Repository, expected: Repository) -> list[str]:
    """Compare all references; returns their hashes."""
    assert found.default_branch == expected.default_branch
    references = list(expected.references.list())
    assert list(found.references.list()) == references
    return [reference.hash for reference in references]


def sampled_of(hashes: set[str], heads: list[str], count: int) -> list[str]:
    """Some heads and some other commits."""
    chosen = Random(len(hashes)).sample(sorted(hashes), min(count, len(hashes)))
    return [*sorted({*heads} - {NOTHING})[:count], *chosen]


def assert_same_states(found: Repository, expected: Repository, hashes: list[str]) -> None:
    """Compare entries, contents and diffs at these commits, which are also checked."""
    both = (found, expected)
    for hash in hashes:
        one, other = (list(r.contents.entries(f"@{hash}", with_content=True)) for r in both)
        assert one == other, hash
        status = found.history.check(f"@{hash}")
        assert status.consistency is Consistency.COMMIT_CONSISTENT, status
        assert found.history.extent(f"@{hash}") == expected.history.extent(f"@{hash}")
    for before, after in pairwise(hashes):
        changes, others = (list(r.contents.diff(f"@{before}", f"@{after}")) for r in both)
        assert changes == others, (before, after)


def _assert_same_logs(found: Repository, expected: Repository, heads: list[str]) -> set[str]:
    """The hashes of all commits that the heads need."""
    known = {NOTHING}
    waiting = list(reversed(heads))
    while waiting:
        head = waiting.pop()
        if head in known:
            continue
        logs = (r.history.log(f"@{head}", with_operations=True) for r in (found, expected))
        for one, other in zip(*logs, strict=True):
            assert one == other
            hash = other.meta.hash or ""
            if hash in known:
                break
            known.add(hash)
            waiting += other.meta.parents[1:]
    return known - {NOTHING}
