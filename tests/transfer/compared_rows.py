"""Compares the rows of two stores: the source of an import, and its result."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

import morag
from morag.backend.urls import open_backend
from morag.format.index_entries import exists
from morag.format.object_codec import decode, encode
from morag.format.objects import Commit, CommitKind
from morag.format.proof import own_operations
from tests.transfer.comparing import assert_same_references, assert_same_states, sampled_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.format.records import Row

_INDEX: Final = ("incremental", "reference_index", "stripes", "sealed")


def assert_same_stores(store: str, source: str) -> int:
    """Compare all that was imported into a store; returns the number of commits."""
    hashes, different = assert_same_commits(store, source)
    assert_same_rows(store, source, "v")
    assert_same_rows(store, source, "u")
    with (
        morag.open(source, read_only=True) as expected,
        morag.open(store, read_only=True) as found,
    ):
        heads = assert_same_references(found, expected)
        for hash in set(heads):
            one, other = (list(r.history.hashes(f"@{hash}")) for r in (found, expected))
            assert one == other
            assert hashes.issuperset(one)
        assert_same_states(found, expected, sampled_of(hashes, heads, 10))
        assert_same_states(found, expected, sampled_of(different, [], 20))
    return len(hashes)


def assert_same_commits(store: str, source: str) -> tuple[set[str], set[str]]:
    """Compare all commits of users; returns the hashes of all, and of those with other indexes.

    A forced merge stores what a removed key had in the merge base. An export does not tell that, so
    an import takes what the parent had, or nothing. That may be shorter, so that the indexes of
    later commits spill elsewhere. Every commit before such a merge is the same byte by byte but for
    the seal, and those after it have the same operations.
    """
    expected = {row.id: digest_without_seal(row) for row in rows(source, "c")}
    found: set[str] = set()
    merged: set[str] = set()
    different: dict[bytes, Commit] = {}
    for row in rows(store, "c"):
        commit = commit_of(row)
        if commit.kind is CommitKind.INTERNAL:
            continue
        found.add(row.id.hex())
        merged.update(parent.hex() for parent in commit.merge_parents)
        if expected[row.id] != digest_without_seal(row):
            different[row.id] = commit
    assert merged <= found
    for row in rows(source, "c"):
        if row.id in different:
            commit = different[row.id]
            assert without_index(commit) == without_index(commit_of(row))
            assert commit.parent in different or removes_by_merge(commit), row.id.hex()
    return found, {id.hex() for id in different}


def digest_without_seal(row: Row) -> bytes:
    return sha256(encode(replace(commit_of(row), sealed=False)).data).digest()


def commit_of(row: Row) -> Commit:
    commit = decode(row)
    assert isinstance(commit, Commit)
    return commit


def without_index(commit: Commit) -> tuple[object, ...]:
    """All fields, with the operations instead of the index, and without the values of removes."""
    own, _ = own_operations(commit)
    operations = [(key, op if exists(op) else op[:2] + op[-16:]) for key, op in own]
    names = [name for name in commit.__struct_fields__ if name not in _INDEX]
    return (*(getattr(commit, name) for name in names), operations)


def removes_by_merge(commit: Commit) -> bool:
    own, _ = own_operations(commit)
    return bool(commit.merge_parents) and any(not exists(op) for _, op in own)


def assert_same_rows(store: str, source: str, kind: str) -> None:
    """All rows of this kind in the store are those of the source."""
    expected = {row.id: sha256(row.data).digest() for row in rows(source, kind)}
    found = {row.id: sha256(row.data).digest() for row in rows(store, kind)}
    assert found.items() <= expected.items()


def rows(store: str, kind: str) -> Iterator[Row]:
    backend = open_backend(store, read_only=True)
    try:
        yield from backend.scan_rows("", frozenset({kind}))
    finally:
        backend.close()
