"""A rename is one change: merged or transplanted, it arrives as a whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from morag import MergeBehavior, MergeKey
from tests.rules.scenes import (
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


def bring(
    repo: Repository,
    way: Way,
    keys: Sequence[MergeKey] = (),
    default: MergeBehavior = MergeBehavior.NORMAL,
) -> MergeResult:
    """All that `dev` did since `main` was at `base`, by one of the ways there are."""
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
def parted(repo: Repository) -> Repository:
    """`dev` starts where `main` is, with two tables."""
    create(repo, "main", old="t", other="o")
    repo.references.create_tag("base", "main")
    repo.references.create_branch("dev", "main")
    return repo


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_a_rename_arrives_as_a_rename(parted: Repository, way: Way, location: str | None) -> None:
    id = content_id(parted, "main", "old")
    move(parted, "dev", "old", "new", location)
    result = bring(parted, way)
    assert outcome(result) == {"new": "NORMAL", "old": "NORMAL"}
    assert tables(parted) == {"new": location or "t", "other": "o"}
    assert content_id(parted, "main", "new") == id
    (entry,) = parted.history.log("main", with_operations=True).page(1).items
    done = [(type(o).__name__, str(o.key)) for o in entry.operations or ()]
    assert done == [("Put", "new"), ("Delete", "old")]
    assert parted.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
def test_a_rename_and_an_update_after_it_arrive_together(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "new")
    update(parted, "dev", "new", "updated")
    assert bring(parted, way).was_applied
    assert tables(parted) == {"new": "updated", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_moved_twice_ends_where_it_ended(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "between")
    move(parted, "dev", "between", "new")
    assert bring(parted, way).was_applied
    assert tables(parted) == {"new": "t", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_moved_away_and_back_has_not_moved(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "new")
    move(parted, "dev", "new", "old")
    assert bring(parted, way).was_successful
    assert tables(parted) == {"old": "t", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
def test_a_namespace_moves_with_its_content(parted: Repository, way: Way) -> None:
    parted.commit("dev", [put("n", namespace("n")), put("m", namespace("m"))], "namespaces")
    move(parted, "dev", "old", "n.new")
    move(parted, "dev", "n.new", "m.new")
    assert bring(parted, way).was_applied
    assert tables(parted) == {"m": "NAMESPACE", "m.new": "t", "n": "NAMESPACE", "other": "o"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_the_old_key_conflicts_if_the_target_changed_it(
    parted: Repository, way: Way, location: str | None
) -> None:
    move(parted, "dev", "old", "new", location)
    update(parted, "main", "old", "ours")
    before = head(parted)
    result = bring(parted, way)
    assert outcome(result) == {"new": "NORMAL", "old": "VALUE_DIFFERS"}
    assert (result.was_applied, head(parted)) == (False, before)


@pytest.mark.parametrize("way", WAYS)
def test_the_old_key_conflicts_if_the_target_dropped_it(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "new")
    parted.commit("main", [delete("old")], "drop")
    assert outcome(bring(parted, way)) == {"new": "NORMAL", "old": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize("way", WAYS)
def test_the_new_key_conflicts_if_the_target_has_one(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "new")
    create(parted, "main", new="ours")
    assert outcome(bring(parted, way)) == {"new": "KEY_EXISTS", "old": "NORMAL"}


@pytest.mark.parametrize("way", WAYS)
def test_a_content_that_both_sides_moved_conflicts(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "theirs")
    move(parted, "main", "old", "ours")
    assert outcome(bring(parted, way)) == {"theirs": "NORMAL", "old": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("location", [None, "changed"])
def test_force_takes_the_rename(parted: Repository, way: Way, location: str | None) -> None:
    move(parted, "dev", "old", "new", location)
    update(parted, "main", "old", "ours")
    result = bring(parted, way, keys=[MergeKey(key("old"), FORCE)])
    assert outcome(result) == {"new": "NORMAL", "old": "FORCE"}
    assert tables(parted) == {"new": location or "t", "other": "o"}
    assert parted.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
def test_force_takes_the_rename_over_all_that_is_in_its_way(parted: Repository, way: Way) -> None:
    move(parted, "dev", "old", "new")
    update(parted, "main", "old", "ours")
    create(parted, "main", new="ours too")
    assert bring(parted, way, default=FORCE).was_applied
    assert tables(parted) == {"new": "t", "other": "o"}
    assert parted.history.check("main").findings == ()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("half", ["old", "new"])
@pytest.mark.parametrize("clash", [False, True])
def test_who_drops_one_half_drops_the_other(
    parted: Repository, way: Way, half: str, clash: bool
) -> None:
    update(parted, "dev", "other", "o2")
    move(parted, "dev", "old", "new")
    if clash:
        update(parted, "main", "old", "ours")
    result = bring(parted, way, keys=[MergeKey(key(half), DROP)])
    assert outcome(result) == {"new": "DROP", "old": "DROP", "other": "NORMAL"}
    assert tables(parted) == {"old": "ours" if clash else "t", "other": "o2"}


def _replace_other_by_old(repo: Repository) -> None:
    """`old` moves to where another content was before."""
    repo.commit("dev", [delete("other")], "drop")
    move(repo, "dev", "old", "other")


@pytest.mark.parametrize("way", WAYS)
def test_a_rename_may_take_the_place_of_what_was_there(parted: Repository, way: Way) -> None:
    id = content_id(parted, "main", "old")
    _replace_other_by_old(parted)
    assert bring(parted, way).was_applied
    assert tables(parted) == {"other": "t"}
    assert content_id(parted, "main", "other") == id
    assert parted.history.check("main").findings == ()


@pytest.mark.parametrize("half", ["old", "other"])
def test_no_half_of_such_a_rename_is_dropped_alone(parted: Repository, half: str) -> None:
    """Else the content would be gone from both places."""
    _replace_other_by_old(parted)
    result = parted.merge("dev", "main", keys=[MergeKey(key(half), DROP)])
    assert outcome(result) == {"old": "DROP", "other": "DROP"}
    assert tables(parted) == {"old": "t", "other": "o"}


@pytest.mark.parametrize("dropped", ["old", "other", "third"])
def test_a_chain_of_renames_is_dropped_as_a_whole(parted: Repository, dropped: str) -> None:
    move(parted, "dev", "other", "third")
    move(parted, "dev", "old", "other")
    result = parted.merge("dev", "main", keys=[MergeKey(key(dropped), DROP)])
    assert outcome(result) == {"old": "DROP", "other": "DROP", "third": "DROP"}
    assert tables(parted) == {"old": "t", "other": "o"}


def test_two_contents_may_change_places(parted: Repository) -> None:
    move(parted, "dev", "other", "third")
    move(parted, "dev", "old", "other")
    move(parted, "dev", "third", "old")
    assert parted.merge("dev", "main").was_applied
    assert tables(parted) == {"old": "o", "other": "t"}
    assert content_id(parted, "main", "old") == content_id(parted, "base", "other")


def test_a_merged_rename_may_be_followed_by_more(parted: Repository) -> None:
    move(parted, "dev", "old", "new")
    parted.merge("dev", "main")
    move(parted, "dev", "new", "newer")
    update(parted, "main", "other", "o2")
    assert outcome(parted.merge("dev", "main")) == {"new": "NORMAL", "newer": "NORMAL"}
    assert tables(parted) == {"newer": "t", "other": "o2"}
