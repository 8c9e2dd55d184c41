"""Merges: the changes they apply, their results, and the metadata of their commits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import CommitMeta, MergeBehavior, MergeKey, Unchanged
from morag.errors import BadRequest, ReferenceNotFound
from morag.model.merging import MergeResult
from tests.rules.operations import (
    NO_ANCESTOR,
    UNKNOWN,
    applied_result,
    content_id,
    create,
    delete,
    head,
    key,
    last_meta,
    messages,
    namespace,
    outcome,
    put,
    tables,
    update,
)

if TYPE_CHECKING:
    from morag import Repository
    from tests.rules.operations import Store


@pytest.fixture
def diverged(repo: Repository) -> Repository:
    """A repository in which `dev` is two commits ahead of `main`."""
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", a="a")
    create(repo, "dev", b="b")
    return repo


def test_a_merge_is_one_commit_with_two_parents(any_repo: Repository) -> None:
    create(any_repo, "main", base="base")
    any_repo.references.create_branch("dev", "main")
    create(any_repo, "dev", a="a")
    create(any_repo, "dev", b="b")
    target, source = head(any_repo), head(any_repo, "dev")
    result = any_repo.merge("dev", "main", expected=target)
    assert result == applied_result(any_repo, result, target, common_ancestor=target)
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL"}
    assert last_meta(any_repo).parents == (target, source)
    assert tables(any_repo) == {"a": "a", "b": "b", "base": "base"}
    assert messages(any_repo) == [
        f"Merged dev at {source} into main at {target}",
        "create base",
    ]


def test_a_merge_keeps_content_ids(diverged: Repository) -> None:
    diverged.merge("dev", "main")
    assert content_id(diverged, "main", "a") == content_id(diverged, "dev", "a")


def test_a_merge_applies_updates_and_deletes(diverged: Repository) -> None:
    update(diverged, "dev", "base", "base2")
    diverged.commit("dev", [delete("a")], "drop")
    create(diverged, "main", other="o")
    result = diverged.merge("dev", "main")
    assert outcome(result) == {"b": "NORMAL", "base": "NORMAL"}
    assert tables(diverged) == {"b": "b", "base": "base2", "other": "o"}


def test_content_that_was_added_and_deleted_on_the_source_is_not_merged(
    diverged: Repository,
) -> None:
    diverged.commit("dev", [delete("a"), delete("b")], "away")
    result = diverged.merge("dev", "main")
    assert (result.was_applied, result.was_successful, result.details) == (False, True, ())
    assert result.resultant_target_hash == head(diverged)


def test_a_second_merge_applies_only_new_commits(diverged: Repository) -> None:
    first = diverged.merge("dev~1", "main")
    assert outcome(first) == {"a": "NORMAL"}
    second = diverged.merge("dev", "main")
    assert outcome(second) == {"b": "NORMAL"}
    assert second.common_ancestor == diverged.history.log("dev").page(2).items[1].meta.hash
    update(diverged, "main", "a", "a-main")
    update(diverged, "dev", "b", "b-dev")
    third = diverged.merge("dev", "main")
    assert outcome(third) == {"b": "NORMAL"}
    assert tables(diverged) == {"a": "a-main", "b": "b-dev", "base": "base"}


def test_branches_may_be_merged_in_both_directions(diverged: Repository) -> None:
    diverged.merge("dev", "main")
    create(diverged, "main", other="o")
    back = diverged.merge("main", "dev")
    assert outcome(back) == {"other": "NORMAL"}
    assert back.common_ancestor == diverged.history.log("dev~1").page(1).items[0].meta.hash
    assert tables(diverged) == tables(diverged, "dev")
    second = diverged.merge("dev", "main")
    assert (second.was_applied, second.details) == (False, ())


@pytest.mark.parametrize("squash", [True, False])
def test_a_repeated_merge_applies_nothing(diverged: Repository, squash: bool) -> None:
    diverged.merge("dev", "main", squash=squash)
    before, source = head(diverged), head(diverged, "dev")
    result = diverged.merge("dev", "main", expected=before, squash=squash)
    assert result == MergeResult(
        was_applied=False,
        was_successful=True,
        resultant_target_hash=before,
        common_ancestor=source,
        target_branch="main",
        effective_target_hash=before,
        expected_hash=before,
        details=(),
    )
    assert head(diverged) == before


def test_merging_a_branch_into_itself_applies_nothing(diverged: Repository) -> None:
    result = diverged.merge("main", "main")
    assert (result.was_applied, result.resultant_target_hash) == (False, head(diverged))
    assert result.common_ancestor == head(diverged)


def test_merging_an_ancestor_of_the_target_applies_nothing(diverged: Repository) -> None:
    assert not diverged.merge("main", "dev").was_applied


@pytest.mark.parametrize("source", ["v1", "@{hash}", "dev@{hash}", "dev~1", "dev@{head}~1"])
def test_any_commit_can_be_merged(diverged: Repository, source: str) -> None:
    hash = diverged.references.create_tag("v1", "dev~1").hash
    spec = source.format(hash=hash, head=head(diverged, "dev"))
    target = head(diverged)
    assert outcome(diverged.merge(spec, "main")) == {"a": "NORMAL"}
    name = {"v": "v1", "@": "DETACHED", "d": "dev"}[source[0]]
    assert last_meta(diverged).message == f"Merged {name} at {hash} into main at {target}"
    assert last_meta(diverged).parents == (target, hash)


def test_branches_without_a_common_commit_cannot_be_merged(diverged: Repository) -> None:
    diverged.references.create_branch("unrelated", None)
    create(diverged, "unrelated", s="s")
    target, source = head(diverged), head(diverged, "unrelated")
    with pytest.raises(
        ReferenceNotFound, match=f"^No common ancestor in parents of {target} and {source}$"
    ):
        diverged.merge("unrelated", "main")


def test_an_empty_branch_has_no_common_commit_with_others(diverged: Repository) -> None:
    diverged.references.create_branch("empty", None)
    with pytest.raises(ReferenceNotFound, match="No common ancestor in parents of"):
        diverged.merge("main", "empty")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope", "Named reference 'nope' not found"),
        (f"nope@{UNKNOWN}", "Named reference 'nope' not found"),
        (f"dev@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        (f"dev@{UNKNOWN[:10]}", f"Commit '{UNKNOWN[:10]}' not found"),
    ],
)
def test_the_source_must_exist(diverged: Repository, source: str, message: str) -> None:
    with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
        diverged.merge(source, "main")


def test_the_target_may_have_newer_commits_than_expected(diverged: Repository) -> None:
    old_head = head(diverged)
    create(diverged, "main", other="o")
    now = head(diverged)
    result = diverged.merge("dev", "main", expected=old_head)
    assert (result.effective_target_hash, result.expected_hash) == (now, old_head)
    assert (
        last_meta(diverged).message
        == f"Merged dev at {head(diverged, 'dev')} into main at {old_head}"
    )
    assert set(tables(diverged)) == {"a", "b", "base", "other"}


def test_the_target_must_have_the_expected_commit(diverged: Repository) -> None:
    foreign = head(diverged, "dev")
    with pytest.raises(
        ReferenceNotFound, match=rf"^Could not find commit '{foreign}' in reference 'main'\.$"
    ):
        diverged.merge("dev", "main", expected=foreign)


def test_the_empty_history_may_be_expected_of_any_target(diverged: Repository) -> None:
    assert diverged.merge("dev", "main", expected=NO_ANCESTOR).was_applied


# Dry runs


@pytest.mark.parametrize("squash", [True, False])
def test_a_dry_run_returns_the_result_and_changes_nothing(store: Store, squash: bool) -> None:
    repo = store.repo
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", a="a")
    before = store.everything()
    result = repo.merge("dev", "main", dry_run=True, squash=squash)
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash is None
    assert result.effective_target_hash == head(repo)
    assert outcome(result) == {"a": "NORMAL"}
    assert store.everything() == before


# Metadata


def test_a_client_may_set_all_metadata_of_a_merge(diverged: Repository) -> None:
    meta = CommitMeta(
        message="mine",
        authors=("me", "you"),
        author_time="2020-01-01T00:00:00Z",
        signed_off_by=("eve",),
        properties={"k": ("v",)},
    )
    diverged.merge("dev", "main", meta=meta, committer="ann")
    merged = last_meta(diverged)
    assert (merged.message, merged.authors, merged.committer) == ("mine", ("me", "you"), "ann")
    assert (merged.author_time, merged.signed_off_by) == ("2020-01-01T00:00:00Z", ("eve",))
    assert merged.properties == {"k": ("v",)}


def test_an_empty_message_leaves_the_default(diverged: Repository) -> None:
    diverged.merge("dev", "main", meta=CommitMeta(message="", authors=("me",)))
    assert last_meta(diverged).message.startswith("Merged dev at ")
    assert last_meta(diverged).authors == ("me",)


def test_the_author_of_a_squashed_merge_is_its_committer(diverged: Repository) -> None:
    diverged.commit("dev", [put("c", "c")], CommitMeta(message="c", authors=("someone",)))
    diverged.merge("dev", "main", committer="ann")
    assert (last_meta(diverged).authors, last_meta(diverged).committer) == (("ann",), "ann")


# The same change on both sides


def test_equal_content_on_both_sides_does_not_conflict(diverged: Repository) -> None:
    hash = diverged.history.log("dev~1").page(1).items[0].meta.hash
    assert hash is not None
    diverged.transplant([hash], "main")
    result = diverged.merge("dev", "main")
    assert outcome(result) == {"b": "NORMAL"}
    (entry,) = diverged.history.log("main", with_operations=True).page(1).items
    assert [str(operation.key) for operation in entry.operations or ()] == ["b"]


def test_a_merge_without_new_content_applies_nothing(diverged: Repository) -> None:
    hashes = list(diverged.history.hashes("dev"))[:2][::-1]
    diverged.transplant(hashes, "main")
    before = head(diverged)
    result = diverged.merge("dev", "main")
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash == head(diverged) == before


def test_a_namespace_created_on_both_branches_gets_the_id_of_the_source(
    diverged: Repository,
) -> None:
    for branch in ("main", "dev"):
        diverged.commit(branch, [put("n", namespace("n"))], "n")
        diverged.commit(branch, [put(f"n.{branch}", branch)], "inside")
    result = diverged.merge("dev", "main")
    assert result.was_successful
    assert content_id(diverged, "main", "n") == content_id(diverged, "dev", "n")
    assert set(tables(diverged)) == {"a", "b", "base", "n", "n.dev", "n.main"}
    assert diverged.history.check("main").findings == ()


# Replayed merges


def test_a_merge_without_squash_replays_the_commits(any_repo: Repository) -> None:
    create(any_repo, "main", base="base")
    any_repo.references.create_branch("dev", "main")
    meta = CommitMeta(
        message="first",
        authors=("ann",),
        author_time="2020-01-01T00:00:00Z",
        signed_off_by=("eve",),
        properties={"k": ("v",)},
    )
    any_repo.commit("dev", [put("a", "a")], meta)
    any_repo.commit("dev", [put("b", "b")], "second")
    target, source = head(any_repo), head(any_repo, "dev")
    result = any_repo.merge("dev", "main", squash=False, committer="bob")
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL"}
    second, first, _ = (entry.meta for entry in any_repo.history.log("main"))
    assert (first.message, first.authors, first.author_time) == (
        "first",
        ("ann",),
        "2020-01-01T00:00:00Z",
    )
    assert (first.signed_off_by, first.properties) == (("eve",), {"k": ("v",)})
    assert (first.committer, second.committer) == ("bob", "bob")
    assert first.parents == (target,)
    assert second.parents == (first.hash, source)
    assert tables(any_repo) == {"a": "a", "b": "b", "base": "base"}


def test_replayed_merges_are_incremental(diverged: Repository) -> None:
    diverged.merge("dev", "main", squash=False)
    update(diverged, "main", "a", "a-main")
    update(diverged, "dev", "b", "b-dev")
    result = diverged.merge("dev", "main", squash=False)
    assert outcome(result) == {"b": "NORMAL"}
    assert messages(diverged)[:3] == ["update b", "update a", "create b"]
    assert tables(diverged)["a"] == "a-main"


def test_squashed_and_replayed_merges_may_follow_each_other(diverged: Repository) -> None:
    diverged.merge("dev~1", "main", squash=True)
    diverged.merge("dev", "main", squash=False)
    create(diverged, "dev", c="c")
    result = diverged.merge("dev", "main", squash=True)
    assert outcome(result) == {"c": "NORMAL"}


def test_the_merge_parent_is_kept_when_the_last_commit_is_skipped(
    diverged: Repository,
) -> None:
    diverged.commit("dev", [Unchanged(key("a"))], "changes nothing")
    diverged.merge("dev", "main", squash=False)
    assert messages(diverged) == ["create b", "create a", "create base"]
    assert last_meta(diverged).parents[1:] == (head(diverged, "dev"),)
    update(diverged, "main", "a", "a-main")
    assert not diverged.merge("dev", "main", squash=False).was_applied


def test_a_replay_follows_a_content_through_its_commits(diverged: Repository) -> None:
    update(diverged, "dev", "a", "a2")
    update(diverged, "dev", "a", "a3")
    diverged.commit("dev", [delete("b")], "drop b")
    diverged.merge("dev", "main", squash=False)
    assert tables(diverged) == {"a": "a3", "base": "base"}
    assert messages(diverged)[:3] == ["drop b", "update a", "update a"]


# Unused rules


def test_a_rule_for_a_key_outside_the_merge_is_refused(store: Store) -> None:
    repo = store.repo
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", a="a")
    before = store.everything()
    keys = [
        MergeKey(key("absent"), MergeBehavior.DROP),
        MergeKey(key("base"), MergeBehavior.FORCE),
        MergeKey(key("a"), MergeBehavior.DROP),
    ]
    with pytest.raises(BadRequest) as raised:
        repo.merge("dev", "main", keys=keys)
    assert str(raised.value) == (
        "Not all merge key behaviors specified in the request have been used. "
        "The following keys were not used: [absent, base]"
    )
    assert store.everything() == before


def test_two_rules_for_one_key_are_refused(diverged: Repository) -> None:
    keys = [MergeKey(key("a"), MergeBehavior.DROP), MergeKey(key("a"), MergeBehavior.FORCE)]
    with pytest.raises(BadRequest, match="Key 'a' has more than one merge behavior"):
        diverged.merge("dev", "main", keys=keys)
