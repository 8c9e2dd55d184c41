"""Histories that random tests once found, or would find only by luck, as fixed examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

import morag
from morag.config import Settings
from morag.logic.consistency import Consistency
from morag.model.conflicts import ConflictType
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.operations import Delete, Put, Unchanged
from morag.model.references import TagNote
from tests.kernel.strategies import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.model.content import Content
    from morag.versions.repository import Repository

A, B, C = ContentKey.of("a"), ContentKey.of("b"), ContentKey.of("c")


@pytest.fixture
def repo() -> Iterator[Repository]:
    """`main` has the key `a`."""
    with morag.open("memory:", Settings(parents_per_commit=3)) as repo:
        repo.commit("main", [Put(A, table(1))], "begin")
        yield repo


def branch(repo: Repository, name: str, at: str = "main") -> str:
    repo.references.create_branch(name, at)
    return name


def state(repo: Repository, at: str) -> dict[ContentKey, Content | None]:
    return {entry.key: entry.content for entry in repo.contents.entries(at, with_content=True)}


def updated(repo: Repository, at: str, key: ContentKey, number: int) -> Put:
    held = repo.contents.get(at, key)
    return Put(key, msgspec.structs.replace(table(number), id=held.id))


def test_a_commit_is_consistent_after_a_forced_re_add_of_equal_content(repo: Repository) -> None:
    """If the id covered a remove that cannot be derived again, the commit would look damaged."""
    work = branch(repo, "work")
    readded = repo.commit(work, [Delete(A), Put(A, table(2))], "re-add")
    repo.merge(work, "main", squash=True)
    repo.transplant([readded.hash], "main", default=MergeBehavior.FORCE)
    assert repo.history.check("main").consistency is Consistency.COMMIT_CONSISTENT
    assert state(repo, "main") == state(repo, work)


def test_a_commit_is_consistent_after_a_forced_re_add_over_other_content(repo: Repository) -> None:
    work = branch(repo, "work")
    readded = repo.commit(work, [Delete(A), Put(A, table(2))], "re-add")
    repo.commit("main", [Delete(A), Put(A, table(3))], "re-add otherwise")
    repo.transplant([readded.hash], "main", default=MergeBehavior.FORCE)
    assert repo.history.check("main").consistency is Consistency.COMMIT_CONSISTENT
    assert state(repo, "main") == state(repo, work)


@pytest.mark.parametrize("by_merge", [True, False])
def test_a_conflict_stays_when_a_later_commit_drops_its_key(
    repo: Repository, by_merge: bool
) -> None:
    """The rename of `b` to `c` is dropped as a whole; the earlier conflict of `b` stays."""
    work = branch(repo, "work")
    hashes = [repo.commit(work, [Put(B, table(1))], "add").hash]
    held = repo.contents.get(work, B)
    hashes.append(repo.commit(work, [Delete(B), Put(C, held)], "rename").hash)
    repo.commit("main", [Put(B, table(2))], "add otherwise")
    before = state(repo, "main")
    rules = [MergeKey(C, MergeBehavior.DROP)]
    if by_merge:
        result = repo.merge(work, "main", squash=False, keys=rules, conflicts_as_result=True)
    else:
        result = repo.transplant(hashes, "main", keys=rules, conflicts_as_result=True)
    conflicts = {d.key: d.conflict.conflict_type for d in result.details if d.conflict}
    assert conflicts == {B: ConflictType.KEY_EXISTS}
    assert not result.was_applied
    assert state(repo, "main") == before


def test_a_re_add_that_conflicts_is_dropped_as_a_whole(repo: Repository) -> None:
    work = branch(repo, "work")
    readded = repo.commit(work, [Delete(A), Put(A, table(2))], "re-add")
    repo.commit("main", [updated(repo, "main", A, 3)], "update")
    before = state(repo, "main")
    result = repo.transplant([readded.hash], "main", default=MergeBehavior.DROP)
    assert not result.was_applied
    assert state(repo, "main") == before


def test_a_rename_to_an_occupied_key_is_dropped_as_a_whole(repo: Repository) -> None:
    """Otherwise the content of `a` would be removed and not be put under its new key."""
    repo.commit("main", [Put(B, table(2))], "second table")
    work = branch(repo, "work")
    held = repo.contents.get(work, A)
    repo.commit(work, [Delete(B)], "make room")
    repo.commit(work, [Delete(A), Put(B, held)], "move in")
    before = state(repo, "main")
    result = repo.merge(work, "main", keys=[MergeKey(B, MergeBehavior.DROP)])
    assert not result.was_applied
    assert state(repo, "main") == before


def test_the_merge_parent_is_kept_when_the_last_commit_is_skipped(repo: Repository) -> None:
    """Without it, a second merge would replay the update and conflict with the first."""
    work = branch(repo, "work")
    repo.commit(work, [updated(repo, work, A, 2)], "update")
    repo.commit(work, [Unchanged(A)], "nothing")
    repo.commit("main", [Put(B, table(1))], "meanwhile")
    assert repo.merge(work, "main", squash=False).was_applied
    second = repo.merge(work, "main", squash=False)
    assert second.was_successful and not second.was_applied


def test_a_forced_rename_replaces_another_rename(repo: Repository) -> None:
    """The table is never under two keys."""
    held = repo.contents.get("main", A)
    work = branch(repo, "work")
    repo.commit(work, [Delete(A), Put(B, held)], "rename")
    repo.commit("main", [Delete(A), Put(C, held)], "rename otherwise")
    repo.merge(work, "main", default=MergeBehavior.FORCE)
    assert state(repo, "main") == {B: held}


def test_a_forced_rename_whose_commit_removes_a_missing_key_has_one_content(
    repo: Repository,
) -> None:
    content = repo.contents.get("main", A)
    for name, key in (("one", B), ("other", C)):
        repo.commit(branch(repo, name), [Delete(A), Put(key, content)], "rename")
    branch(repo, "third")
    # On `other` the commit also removes `a`, which does not exist.
    repo.transplant([repo.references.get("one").hash or ""], "other", default=MergeBehavior.FORCE)
    assert state(repo, "other") == {B: content}
    forced = repo.references.get("other").hash or ""
    (entry,) = repo.history.log("other", with_operations=True).page(1).items
    assert set(entry.operations or ()) == {Delete(A), Put(B, content), Delete(C)}
    repo.transplant([forced], "third", default=MergeBehavior.FORCE)
    assert state(repo, "third") == {B: content}


def test_tags_with_empty_notes_do_not_share_notes(repo: Repository) -> None:
    notes = [TagNote(), TagNote(message=""), TagNote(signature=b"")]
    for number, note in enumerate(notes):
        repo.references.create_tag(f"t{number}", "main", note)
        assert repo.references.note(f"t{number}") == TagNote()


def test_the_merge_base_may_be_lower_in_seq_than_its_own_ancestors(repo: Repository) -> None:
    """A short branch merges a long one; branches that merge it later have it as merge base."""
    short = branch(repo, "short")
    repo.commit(short, [Put(B, table(1))], "short")
    for number in range(2, 6):
        repo.commit("main", [updated(repo, "main", A, number)], "long")
    one, other = branch(repo, "one"), branch(repo, "other", "main~1")
    merged = repo.merge("main", short).resultant_target_hash
    repo.merge(short, one)
    repo.merge(short, other)
    assert repo.history.merge_base(one, other) == merged


def test_crossed_merges_have_several_merge_bases_and_any_is_valid(repo: Repository) -> None:
    left, right = branch(repo, "left"), branch(repo, "right")
    heads = {
        repo.commit(left, [Put(B, table(1))], "left").hash,
        repo.commit(right, [Put(C, table(1))], "right").hash,
    }
    before = repo.references.get(right).hash
    repo.merge(left, right)
    repo.merge(f"@{before}", left)
    assert repo.history.merge_base(left, right) in heads
    assert state(repo, left) == state(repo, right)


@pytest.mark.parametrize("squash", [True, False])
def test_a_forced_rename_moves_the_table_when_its_old_key_is_reused(
    repo: Repository, squash: bool
) -> None:
    """A replay has no remove for a key that gets another content in the same commit."""
    work, all_at_once = branch(repo, "work"), branch(repo, "all-at-once")
    held = repo.contents.get("main", A)
    repo.commit(work, [Delete(A), Put(B, held)], "rename")
    repo.commit(work, [Put(A, table(2))], "take its name")
    repo.merge(work, all_at_once)
    repo.commit("main", [Delete(A), Put(C, held)], "rename otherwise")
    repo.merge(all_at_once, "main", default=MergeBehavior.FORCE, squash=squash)
    found = state(repo, "main")
    assert [key for key, content in found.items() if content and content.id == held.id] == [B]
    assert found.keys() == {A, B}
