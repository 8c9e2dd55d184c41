"""Reads of many commits at once."""

from __future__ import annotations

import pytest

from morag.format.records import ObjId
from morag.logic.bulk_reads import read_commits, read_stored
from morag.persist.persist import ObjectMissing
from tests.rules.operations import Store, create


def test_a_commit_that_is_asked_for_twice_is_given_twice() -> None:
    """Several references may be at one commit."""
    store = Store()
    create(store.repo, "main", a="a")
    head = ObjId(bytes.fromhex(store.repo.references.get("main").hash))
    assert [commit.id for commit in read_stored(store.persist, [head, head])] == [head, head]
    assert [commit.id for commit in read_commits(store.persist, [head, head])] == [head, head]


def test_only_missing_commits_are_named() -> None:
    store = Store()
    create(store.repo, "main", a="a")
    head, lost = ObjId(bytes.fromhex(store.repo.references.get("main").hash)), ObjId(b"1" * 32)
    with pytest.raises(ObjectMissing) as missing:
        read_stored(store.persist, [head, lost])
    assert missing.value.ids == (lost,)
