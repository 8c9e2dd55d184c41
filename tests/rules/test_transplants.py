"""Transplants: a run of commits, applied to another branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import CommitMeta, ConflictType, MergeBehavior, MergeKey, Unchanged
from morag.errors import BadRequest, ReferenceConflict, ReferenceNotFound
from tests.rules.operations import (
    NO_ANCESTOR,
    UNKNOWN,
    applied_result,
    conflict_pairs,
    content_id,
    create,
    delete,
    head,
    key,
    messages,
    outcome,
    put,
    table,
    tables,
    update,
)

if TYPE_CHECKING:
    from morag import Repository
    from morag.model.merging import MergeResult
    from tests.rules.operations import Store

AUTHORED = CommitMeta(
    message="dev a",
    authors=("dev",),
    author_time="2020-01-01T00:00:00Z",
    signed_off_by=("eve",),
    properties={"p": ("q",)},
)


def metas(repo: Repository, at: str = "main") -> list[CommitMeta]:
    return [entry.meta for entry in repo.history.log(at)]


def commit_to_dev(repo: Repository) -> list[str]:
    """Make three commits on `dev`: two new tables and an update. Return their hashes in order."""
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    return [
        repo.commit("dev", [put("a", "a")], AUTHORED).hash,
        repo.commit("dev", [put("b", "b")], "dev b").hash,
        update(repo, "dev", "base", "base-dev"),
    ]


def check_not_applied(result: MergeResult, keys: dict[str, str], *, is_success: bool) -> None:
    assert (result.was_applied, result.was_successful) == (False, is_success)
    assert result.resultant_target_hash is None
    assert outcome(result) == keys


def test_a_single_commit_is_applied_with_its_metadata(any_repo: Repository) -> None:
    first, _, _ = commit_to_dev(any_repo)
    target = head(any_repo)
    result = any_repo.transplant([first], "main", expected=target, committer="ann")
    assert result == applied_result(any_repo, result, target, common_ancestor=None)
    assert outcome(result) == {"a": "NORMAL"}
    meta = metas(any_repo)[0]
    assert (meta.message, meta.authors, meta.author_time) == (
        "dev a",
        ("dev",),
        "2020-01-01T00:00:00Z",
    )
    assert (meta.signed_off_by, meta.properties) == (("eve",), {"p": ("q",)})
    assert (meta.committer, meta.parents) == ("ann", (target,)), "a transplant has no second parent"
    assert content_id(any_repo, "main", "a") == content_id(any_repo, "dev", "a")


def test_the_commit_time_is_new(store: Store) -> None:
    first, _, _ = commit_to_dev(store.repo)
    store.clock.pass_seconds(3600)
    store.repo.transplant([first], "main")
    (meta, _) = metas(store.repo)
    assert meta.commit_time == "2023-11-14T23:13:20Z"
    assert meta.author_time == "2020-01-01T00:00:00Z"


def test_several_commits_are_applied_one_by_one(repo: Repository) -> None:
    hashes = commit_to_dev(repo)
    result = repo.transplant(hashes, "main")
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL", "base": "NORMAL"}
    assert messages(repo) == ["update base", "dev b", "dev a", "create base"]
    assert tables(repo) == tables(repo, "dev")


def test_a_commit_from_the_middle_applies_only_its_own_changes(repo: Repository) -> None:
    _, middle, _ = commit_to_dev(repo)
    repo.transplant([middle], "main")
    assert tables(repo) == {"b": "b", "base": "base"}


def test_commits_may_come_from_an_unrelated_branch(repo: Repository) -> None:
    hashes = commit_to_dev(repo)
    repo.references.create_branch("unrelated", None)
    repo.transplant(hashes[:2], "unrelated")
    assert tables(repo, "unrelated") == {"a": "a", "b": "b"}


def test_a_single_commit_may_get_another_message(repo: Repository) -> None:
    first, _, _ = commit_to_dev(repo)
    repo.transplant([first], "main", meta=CommitMeta(message="override", authors=("hdr",)))
    meta = metas(repo)[0]
    assert (meta.message, meta.authors) == ("override", ("hdr",))
    assert (meta.author_time, meta.properties) == ("2020-01-01T00:00:00Z", {"p": ("q",)})


def test_several_commits_keep_their_messages(repo: Repository) -> None:
    hashes = commit_to_dev(repo)
    repo.transplant(hashes[:2], "main", meta=CommitMeta(message="ignored", authors=("no",)))
    second, first, _ = metas(repo)
    assert (second.message, first.message) == ("dev b", "dev a")
    assert first.authors == ("dev",)


def test_hashes_may_be_in_upper_case(repo: Repository) -> None:
    first, _, _ = commit_to_dev(repo)
    assert repo.transplant([first.upper()], "main").was_applied


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0), (2, 1, 0)])
def test_commits_must_be_contiguous(store: Store, order: tuple[int, ...], squash: bool) -> None:
    hashes = commit_to_dev(store.repo)
    before = store.everything()
    with pytest.raises(BadRequest, match=r"^Sequence of hashes is not contiguous\.$"):
        store.repo.transplant([hashes[i] for i in order], "main", squash=squash)
    assert store.everything() == before


@pytest.mark.parametrize("hash", [UNKNOWN, NO_ANCESTOR, UNKNOWN[:12]])
def test_commits_must_exist(repo: Repository, hash: str) -> None:
    commit_to_dev(repo)
    with pytest.raises(ReferenceNotFound, match=f"^Commit '{hash}' not found$"):
        repo.transplant([hash], "main")


@pytest.mark.parametrize("hashes", [[], ["zz"], ["~1"], [""]])
def test_hashes_must_be_well_formed(repo: Repository, hashes: list[str]) -> None:
    with pytest.raises(BadRequest):
        repo.transplant(hashes, "main")


@pytest.mark.parametrize("squash", [True, False])
def test_commits_without_effect_are_skipped(repo: Repository, squash: bool) -> None:
    commit_to_dev(repo)
    before = head(repo)
    result = repo.transplant([before], "main", squash=squash)
    assert (result.was_applied, result.was_successful, result.details) == (False, True, ())
    assert result.resultant_target_hash == before == head(repo)


def test_commits_that_turn_out_empty_are_skipped(repo: Repository) -> None:
    first, _, third = commit_to_dev(repo)
    nothing = repo.commit("dev", [Unchanged(key("a"))], "nothing").hash
    last = repo.commit("dev", [put("c", "c")], "dev c").hash
    repo.transplant([first], "main")
    hashes = [*list(repo.history.hashes("dev", until=first))[::-1]]
    assert hashes[-2:] == [nothing, last]
    assert hashes[2] == third
    repo.transplant(hashes, "main")
    assert messages(repo) == ["dev c", "update base", "dev b", "dev a", "create base"]


@pytest.mark.parametrize("squash", [True, False])
def test_a_dry_run_changes_nothing(store: Store, squash: bool) -> None:
    hashes = commit_to_dev(store.repo)
    before = store.everything()
    result = store.repo.transplant(hashes, "main", dry_run=True, squash=squash)
    check_not_applied(result, {"a": "NORMAL", "b": "NORMAL", "base": "NORMAL"}, is_success=True)
    assert store.everything() == before


# Conflicts


def conflicting_commits(repo: Repository) -> list[str]:
    hashes = commit_to_dev(repo)
    id = content_id(repo, "main", "base")
    repo.commit("main", [put("base", "base-main", id), put("a", "a-main")], "main")
    return hashes


def test_a_conflict_is_an_error(store: Store) -> None:
    *_, last = conflicting_commits(store.repo)
    before = store.everything()
    with pytest.raises(ReferenceConflict) as raised:
        store.repo.transplant([last], "main")
    assert str(raised.value) == "The following keys have been changed in conflict: 'base'"
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "base")]
    assert store.everything() == before


@pytest.mark.parametrize("squash", [True, False])
def test_conflicts_of_all_commits_are_reported(store: Store, squash: bool) -> None:
    hashes = conflicting_commits(store.repo)
    before = store.everything()
    result = store.repo.transplant(hashes, "main", conflicts_as_result=True, squash=squash)
    expected = {"a": "KEY_EXISTS", "b": "NORMAL", "base": "VALUE_DIFFERS"}
    check_not_applied(result, expected, is_success=False)
    assert store.everything() == before


def test_an_old_expected_hash_alone_is_not_a_conflict(repo: Repository) -> None:
    hashes = conflicting_commits(repo)
    old_head = repo.history.log("main").page(2).items[1].meta.hash
    result = repo.transplant(hashes, "main", expected=old_head, conflicts_as_result=True)
    assert (result.expected_hash, result.effective_target_hash) == (old_head, head(repo))
    assert not result.was_successful
    assert repo.transplant(hashes[1:2], "main", expected=old_head).was_applied


@pytest.mark.parametrize("squash", [True, False])
def test_key_behaviors_resolve_conflicts(repo: Repository, squash: bool) -> None:
    hashes = conflicting_commits(repo)
    keys = [
        MergeKey(key("base"), MergeBehavior.FORCE),
        MergeKey(key("a"), MergeBehavior.DROP),
    ]
    result = repo.transplant(hashes, "main", keys=keys, squash=squash)
    assert outcome(result) == {"a": "DROP", "b": "NORMAL", "base": "FORCE"}
    assert tables(repo) == {"a": "a-main", "b": "b", "base": "base-dev"}
    if not squash:
        assert messages(repo) == ["update base", "dev b", "main", "create base"]


def test_dropping_a_re_added_key_keeps_the_content_of_the_target(repo: Repository) -> None:
    create(repo, "main", t="t")
    repo.references.create_branch("dev", "main")
    hash = repo.commit("dev", [delete("t"), put("t", "anew")], "replace").hash
    update(repo, "main", "t", "ours")
    result = repo.transplant([hash], "main", keys=[MergeKey(key("t"), MergeBehavior.DROP)])
    assert outcome(result) == {"t": "DROP"}
    assert tables(repo) == {"t": "ours"}


def test_a_re_added_key_is_transplanted_by_force_only(repo: Repository) -> None:
    create(repo, "main", t="t")
    repo.references.create_branch("dev", "main")
    hash = repo.commit("dev", [delete("t"), put("t", "anew")], "replace").hash
    with pytest.raises(ReferenceConflict) as raised:
        repo.transplant([hash], "main")
    assert [c.conflict_type for c in raised.value.conflicts] == [ConflictType.CONTENT_ID_DIFFERS]
    repo.transplant([hash], "main", default=MergeBehavior.FORCE)
    assert content_id(repo, "main", "t") == content_id(repo, "dev", "t")
    assert repo.history.check("main").findings == ()


def test_a_transplant_stores_resolved_content(repo: Repository) -> None:
    *_, last = conflicting_commits(repo)
    id = content_id(repo, "main", "base")
    rule = MergeKey(key("base"), MergeBehavior.NORMAL, table("base-main", id), table("both", id))
    repo.transplant([last], "main", keys=[rule])
    assert repo.contents.get("main", key("base")) == table("both", id)


# Squashed


def test_a_squashed_transplant_is_one_commit_with_one_parent(any_repo: Repository) -> None:
    hashes = commit_to_dev(any_repo)
    target = head(any_repo)
    result = any_repo.transplant(hashes, "main", source="dev", squash=True, committer="ann")
    assert result.common_ancestor is None
    meta = metas(any_repo)[0]
    assert meta.message == (
        f"Transplanted 3 commits from dev at {hashes[-1]} into main at {target}"
    )
    assert meta.parents == (target,)
    assert (meta.authors, meta.committer) == (("dev",), "ann")
    assert tables(any_repo) == tables(any_repo, "dev")
    assert len(metas(any_repo)) == 2


def test_a_squashed_transplant_combines_authors_times_and_properties(repo: Repository) -> None:
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    one = CommitMeta(
        message="1",
        authors=("ann", "bob"),
        author_time="2020-01-01T00:00:00Z",
        properties={"k": ("1",), "only": ("x",)},
    )
    two = CommitMeta(
        message="2",
        authors=("bob", "carl"),
        author_time="2021-01-01T00:00:00Z",
        properties={"k": ("2",)},
    )
    hashes = [
        repo.commit("dev", [put("a", "a")], one).hash,
        repo.commit("dev", [put("b", "b")], two).hash,
    ]
    repo.transplant(hashes, "main", squash=True)
    meta = metas(repo)[0]
    assert meta.authors == ("ann", "bob", "carl")
    assert meta.author_time == "2021-01-01T00:00:00Z"
    assert meta.properties == {"k": ("2",), "only": ("x",)}


def test_a_squashed_transplant_may_get_another_message(repo: Repository) -> None:
    hashes = commit_to_dev(repo)
    repo.transplant(hashes, "main", squash=True, meta=CommitMeta(message="mine", authors=("me",)))
    assert (metas(repo)[0].message, metas(repo)[0].authors) == ("mine", ("me",))


def test_an_unused_rule_of_a_squashed_transplant_is_refused(repo: Repository) -> None:
    hashes = commit_to_dev(repo)
    with pytest.raises(BadRequest, match=r"The following keys were not used: \[absent\]"):
        repo.transplant(
            hashes, "main", squash=True, keys=[MergeKey(key("absent"), MergeBehavior.DROP)]
        )
