"""A rename is one change: a merge or transplant applies it as a whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from morag import MergeBehavior, MergeKey
from tests.rules.operations import (
    content_id,
    create,
    delete,
    head,
    key,
    move,
    namespace,
    outcome,
    put,
    tables,
    update,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag import Repository
    from morag.model.merging import MergeResult

Way = Literal["merge", "replay", "transplant", "squash"]
WAYS = ("merge", "replay", "transplant", "squash")
DROP, FORCE = MergeBehavior.DROP, MergeBehavior.FORCE


def apply_dev(
    repo: Repository,
    way: Way,
    keys: Sequence[MergeKey] = (),
    default: MergeBehavior = MergeBehavior.NORMAL,
) -> MergeResult:
    """Apply all commits of `dev` since `base` to `main`, in one of four ways."""
    if way in ("merge", "replay"):
        return repo.merge(
            "dev",
            "main",
            squash=way == "merge",
            keys=keys,
            default=default,
            conflicts_as_result=True,
        )
    base = head(repo, "base")
    hashes = [hash for hash in repo.history.hashes("dev", until=base) if hash != base][::-1]
    return repo.transplant(
        hashes,
        "main",
        squash=way == "squash",
        keys=keys,
        default=default,
        conflicts_as_result=True,
    )


@pytest.fixture
def diverged(repo: Repository) -> Repository:
    """A repository in which `dev` starts at `main`, with two tables."""
    create(repo, "main", old="t", other="o")
    repo.references.create_tag("base", "main")
    repo.references.create_branch("dev", "main")
    return repo


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_a_rename_is_applied_as_a_rename(
    diverged: Repository, way: Way, location: str | None
) -> None:
    id = content_id(diverged, "main", "old")
    move(diverged, "dev", "old", "new", location)
    result = apply_dev(diverged, way)
    assert outcome(result) == {"new": "NORMAL", "old": "NORMAL"}
    assert tables(diverged) == {"new": location or "t", "other": "o"}
    assert content_id(diverged, "main", "new") == id
    (entry,) = diverged.history.log("main", with_operations=True).page(1).items
    done = [(type(o).__name__, str(o.key)) for o in entry.operations or ()]
    assert done == [("Put", "new"), ("Delete", "old")]
    assert diverged.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
def test_a_rename_and_a_later_update_are_applied_together(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "new")
    update(diverged, "dev", "new", "updated")
    assert apply_dev(diverged, way).was_applied
    assert tables(diverged) == {"new": "updated", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_was_renamed_twice_has_its_last_key(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "between")
    move(diverged, "dev", "between", "new")
    assert apply_dev(diverged, way).was_applied
    assert tables(diverged) == {"new": "t", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_was_renamed_back_keeps_its_key(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "new")
    move(diverged, "dev", "new", "old")
    assert apply_dev(diverged, way).was_successful
    assert tables(diverged) == {"old": "t", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_namespace_is_renamed_with_its_content(diverged: Repository, way: Way) -> None:
    diverged.commit("dev", [put("n", namespace("n")), put("m", namespace("m"))], "namespaces")
    move(diverged, "dev", "old", "n.new")
    move(diverged, "dev", "n.new", "m.new")
    assert apply_dev(diverged, way).was_applied
    assert tables(diverged) == {"m": "NAMESPACE", "m.new": "t", "n": "NAMESPACE", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_the_old_key_conflicts_if_the_target_changed_it(
    diverged: Repository, way: Way, location: str | None
) -> None:
    move(diverged, "dev", "old", "new", location)
    update(diverged, "main", "old", "ours")
    before = head(diverged)
    result = apply_dev(diverged, way)
    assert outcome(result) == {"new": "NORMAL", "old": "VALUE_DIFFERS"}
    assert (result.was_applied, head(diverged)) == (False, before)


@pytest.mark.parametrize("way", WAYS)
def test_the_old_key_conflicts_if_the_target_deleted_it(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "new")
    diverged.commit("main", [delete("old")], "drop")
    assert outcome(apply_dev(diverged, way)) == {"new": "NORMAL", "old": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize("way", WAYS)
def test_the_new_key_conflicts_if_the_target_has_one(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "new")
    create(diverged, "main", new="ours")
    assert outcome(apply_dev(diverged, way)) == {"new": "KEY_EXISTS", "old": "NORMAL"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_both_sides_renamed_conflicts(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "theirs")
    move(diverged, "main", "old", "ours")
    assert outcome(apply_dev(diverged, way)) == {"theirs": "NORMAL", "old": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_force_applies_the_rename(diverged: Repository, way: Way, location: str | None) -> None:
    move(diverged, "dev", "old", "new", location)
    update(diverged, "main", "old", "ours")
    result = apply_dev(diverged, way, keys=[MergeKey(key("old"), FORCE)])
    assert outcome(result) == {"new": "NORMAL", "old": "FORCE"}
    assert tables(diverged) == {"new": location or "t", "other": "o"}
    assert diverged.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
def test_force_applies_the_rename_over_conflicting_content(diverged: Repository, way: Way) -> None:
    move(diverged, "dev", "old", "new")
    update(diverged, "main", "old", "ours")
    create(diverged, "main", new="ours too")
    assert apply_dev(diverged, way, default=FORCE).was_applied
    assert tables(diverged) == {"new": "t", "other": "o"}
    assert diverged.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("half", ["old", "new"])
@pytest.mark.parametrize("clash", [False, True])
def test_dropping_one_half_of_a_rename_drops_the_other(
    diverged: Repository, way: Way, half: str, clash: bool
) -> None:
    update(diverged, "dev", "other", "o2")
    move(diverged, "dev", "old", "new")
    if clash:
        update(diverged, "main", "old", "ours")
    result = apply_dev(diverged, way, keys=[MergeKey(key(half), DROP)])
    assert outcome(result) == {"new": "DROP", "old": "DROP", "other": "NORMAL"}
    assert tables(diverged) == {"old": "ours" if clash else "t", "other": "o2"}


def _replace_other_by_old(repo: Repository) -> None:
    """Rename `old` to the key of another content."""
    repo.commit("dev", [delete("other")], "drop")
    move(repo, "dev", "old", "other")


@pytest.mark.parametrize("way", WAYS)
def test_a_rename_may_replace_existing_content(diverged: Repository, way: Way) -> None:
    id = content_id(diverged, "main", "old")
    _replace_other_by_old(diverged)
    assert apply_dev(diverged, way).was_applied
    assert tables(diverged) == {"other": "t"}
    assert content_id(diverged, "main", "other") == id
    assert diverged.history.check("main").findings == ()


@pytest.mark.parametrize("half", ["old", "other"])
def test_a_replacing_rename_is_dropped_as_a_whole(diverged: Repository, half: str) -> None:
    """Otherwise the content would be lost under both keys."""
    _replace_other_by_old(diverged)
    result = diverged.merge("dev", "main", keys=[MergeKey(key(half), DROP)])
    assert outcome(result) == {"old": "DROP", "other": "DROP"}
    assert tables(diverged) == {"old": "t", "other": "o"}


@pytest.mark.parametrize("dropped", ["old", "other", "third"])
def test_a_chain_of_renames_is_dropped_as_a_whole(diverged: Repository, dropped: str) -> None:
    move(diverged, "dev", "other", "third")
    move(diverged, "dev", "old", "other")
    result = diverged.merge("dev", "main", keys=[MergeKey(key(dropped), DROP)])
    assert outcome(result) == {"old": "DROP", "other": "DROP", "third": "DROP"}
    assert tables(diverged) == {"old": "t", "other": "o"}


def test_two_contents_may_swap_keys(diverged: Repository) -> None:
    move(diverged, "dev", "other", "third")
    move(diverged, "dev", "old", "other")
    move(diverged, "dev", "third", "old")
    assert diverged.merge("dev", "main").was_applied
    assert tables(diverged) == {"old": "o", "other": "t"}
    assert content_id(diverged, "main", "old") == content_id(diverged, "base", "other")


def test_a_merged_rename_may_be_followed_by_another(diverged: Repository) -> None:
    move(diverged, "dev", "old", "new")
    diverged.merge("dev", "main")
    move(diverged, "dev", "new", "newer")
    update(diverged, "main", "other", "o2")
    assert outcome(diverged.merge("dev", "main")) == {"new": "NORMAL", "newer": "NORMAL"}
    assert tables(diverged) == {"newer": "t", "other": "o2"}
