"""Merges: what they bring, what they answer, and what they write about themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import CommitMeta, MergeBehavior, MergeKey, Unchanged
from morag.errors import BadRequest, ReferenceNotFound
from morag.model.merging import MergeResult
from tests.rules.scenes import (
    NO_ANCESTOR,
    UNKNOWN,
    content_id,
    create,
    delete,
    head,
    key,
    messages,
    namespace,
    outcome,
    put,
    tables,
    update,
)

if TYPE_CHECKING:
    from morag import Repository
    from tests.rules.scenes import Store


def last(repo: Repository, at: str = "main") -> CommitMeta:
    return repo.history.log(at).page(1).items[0].meta


@pytest.fixture
def parted(repo: Repository) -> Repository:
    """`dev` has two commits more than `main`."""
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
    assert result == MergeResult(
        was_applied=True,
        was_successful=True,
        resultant_target_hash=head(any_repo),
        common_ancestor=target,
        target_branch="main",
        effective_target_hash=target,
        expected_hash=target,
        details=result.details,
    )
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL"}
    assert last(any_repo).parents == (target, source)
    assert tables(any_repo) == {"a": "a", "b": "b", "base": "base"}
    assert messages(any_repo) == [
        f"Merged dev at {source} into main at {target}",
        "create base",
    ]


def test_a_merge_keeps_content_ids(parted: Repository) -> None:
    parted.merge("dev", "main")
    assert content_id(parted, "main", "a") == content_id(parted, "dev", "a")


def test_a_merge_brings_updates_and_deletes(parted: Repository) -> None:
    update(parted, "dev", "base", "base2")
    parted.commit("dev", [delete("a")], "drop")
    create(parted, "main", other="o")
    result = parted.merge("dev", "main")
    assert outcome(result) == {"b": "NORMAL", "base": "NORMAL"}
    assert tables(parted) == {"b": "b", "base": "base2", "other": "o"}


def test_what_came_and_went_on_the_source_takes_no_part(parted: Repository) -> None:
    parted.commit("dev", [delete("a"), delete("b")], "away")
    result = parted.merge("dev", "main")
    assert (result.was_applied, result.was_successful, result.details) == (False, True, ())
    assert result.resultant_target_hash == head(parted)


def test_merges_of_a_growing_branch_bring_only_what_is_new(parted: Repository) -> None:
    first = parted.merge("dev~1", "main")
    assert outcome(first) == {"a": "NORMAL"}
    second = parted.merge("dev", "main")
    assert outcome(second) == {"b": "NORMAL"}
    assert second.common_ancestor == parted.history.log("dev").page(2).items[1].meta.hash
    update(parted, "main", "a", "a-main")
    update(parted, "dev", "b", "b-dev")
    third = parted.merge("dev", "main")
    assert outcome(third) == {"b": "NORMAL"}
    assert tables(parted) == {"a": "a-main", "b": "b-dev", "base": "base"}


def test_branches_may_be_merged_to_and_fro(parted: Repository) -> None:
    parted.merge("dev", "main")
    create(parted, "main", other="o")
    back = parted.merge("main", "dev")
    assert outcome(back) == {"other": "NORMAL"}
    assert back.common_ancestor == parted.history.log("dev~1").page(1).items[0].meta.hash
    assert tables(parted) == tables(parted, "dev")
    again = parted.merge("dev", "main")
    assert (again.was_applied, again.details) == (False, ())


@pytest.mark.parametrize("squash", [True, False])
def test_nothing_is_left_to_merge_after_a_merge(parted: Repository, squash: bool) -> None:
    parted.merge("dev", "main", squash=squash)
    before, source = head(parted), head(parted, "dev")
    result = parted.merge("dev", "main", expected=before, squash=squash)
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
    assert head(parted) == before


def test_a_branch_merged_into_itself_stays(parted: Repository) -> None:
    result = parted.merge("main", "main")
    assert (result.was_applied, result.resultant_target_hash) == (False, head(parted))
    assert result.common_ancestor == head(parted)


def test_an_ancestor_of_the_target_has_nothing_to_bring(parted: Repository) -> None:
    assert not parted.merge("main", "dev").was_applied


@pytest.mark.parametrize("source", ["v1", "@{hash}", "dev@{hash}", "dev~1", "dev@{head}~1"])
def test_any_commit_can_be_merged(parted: Repository, source: str) -> None:
    hash = parted.references.create_tag("v1", "dev~1").hash
    spec = source.format(hash=hash, head=head(parted, "dev"))
    target = head(parted)
    assert outcome(parted.merge(spec, "main")) == {"a": "NORMAL"}
    name = {"v": "v1", "@": "DETACHED", "d": "dev"}[source[0]]
    assert last(parted).message == f"Merged {name} at {hash} into main at {target}"
    assert last(parted).parents == (target, hash)


def test_branches_without_a_common_commit_cannot_be_merged(parted: Repository) -> None:
    parted.references.create_branch("stranger", None)
    create(parted, "stranger", s="s")
    ours, theirs = head(parted), head(parted, "stranger")
    with pytest.raises(
        ReferenceNotFound, match=f"^No common ancestor in parents of {ours} and {theirs}$"
    ):
        parted.merge("stranger", "main")


def test_an_empty_branch_has_no_common_commit_with_any(parted: Repository) -> None:
    parted.references.create_branch("empty", None)
    with pytest.raises(ReferenceNotFound, match="No common ancestor in parents of"):
        parted.merge("main", "empty")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nope", "Named reference 'nope' not found"),
        (f"nope@{UNKNOWN}", "Named reference 'nope' not found"),
        (f"dev@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        (f"dev@{UNKNOWN[:10]}", f"Commit '{UNKNOWN[:10]}' not found"),
    ],
)
def test_the_source_must_exist(parted: Repository, source: str, message: str) -> None:
    with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
        parted.merge(source, "main")


def test_a_target_that_moved_on_is_no_obstacle(parted: Repository) -> None:
    seen = head(parted)
    create(parted, "main", other="o")
    now = head(parted)
    result = parted.merge("dev", "main", expected=seen)
    assert (result.effective_target_hash, result.expected_hash) == (now, seen)
    assert last(parted).message == f"Merged dev at {head(parted, 'dev')} into main at {seen}"
    assert set(tables(parted)) == {"a", "b", "base", "other"}


def test_the_target_must_have_the_expected_commit(parted: Repository) -> None:
    foreign = head(parted, "dev")
    with pytest.raises(
        ReferenceNotFound, match=rf"^Could not find commit '{foreign}' in reference 'main'\.$"
    ):
        parted.merge("dev", "main", expected=foreign)


def test_the_beginning_of_time_is_on_every_target(parted: Repository) -> None:
    assert parted.merge("dev", "main", expected=NO_ANCESTOR).was_applied


# Dry runs


@pytest.mark.parametrize("squash", [True, False])
def test_a_dry_run_tells_all_and_does_nothing(store: Store, squash: bool) -> None:
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


def test_the_client_may_say_everything_about_a_merge(parted: Repository) -> None:
    meta = CommitMeta(
        message="mine",
        authors=("me", "you"),
        author_time="2020-01-01T00:00:00Z",
        signed_off_by=("eve",),
        properties={"k": ("v",)},
    )
    parted.merge("dev", "main", meta=meta, committer="ann")
    merged = last(parted)
    assert (merged.message, merged.authors, merged.committer) == ("mine", ("me", "you"), "ann")
    assert (merged.author_time, merged.signed_off_by) == ("2020-01-01T00:00:00Z", ("eve",))
    assert merged.properties == {"k": ("v",)}


def test_an_empty_message_leaves_the_default(parted: Repository) -> None:
    parted.merge("dev", "main", meta=CommitMeta(message="", authors=("me",)))
    assert last(parted).message.startswith("Merged dev at ")
    assert last(parted).authors == ("me",)


def test_a_squashed_merge_is_by_who_merges(parted: Repository) -> None:
    parted.commit("dev", [put("c", "c")], CommitMeta(message="c", authors=("someone",)))
    parted.merge("dev", "main", committer="ann")
    assert (last(parted).authors, last(parted).committer) == (("ann",), "ann")


# What both sides did


def test_the_same_content_on_both_sides_is_dropped_silently(parted: Repository) -> None:
    hash = parted.history.log("dev~1").page(1).items[0].meta.hash
    assert hash is not None
    parted.transplant([hash], "main")
    result = parted.merge("dev", "main")
    assert outcome(result) == {"b": "NORMAL"}
    (entry,) = parted.history.log("main", with_operations=True).page(1).items
    assert [str(operation.key) for operation in entry.operations or ()] == ["b"]


def test_a_merge_of_what_is_all_there_already_applies_nothing(parted: Repository) -> None:
    hashes = list(parted.history.hashes("dev"))[:2][::-1]
    parted.transplant(hashes, "main")
    before = head(parted)
    result = parted.merge("dev", "main")
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash == head(parted) == before


def test_a_namespace_that_both_created_has_the_sources_id(parted: Repository) -> None:
    for branch in ("main", "dev"):
        parted.commit(branch, [put("n", namespace("n"))], "n")
        parted.commit(branch, [put(f"n.{branch}", branch)], "inside")
    result = parted.merge("dev", "main")
    assert result.was_successful
    assert content_id(parted, "main", "n") == content_id(parted, "dev", "n")
    assert set(tables(parted)) == {"a", "b", "base", "n", "n.dev", "n.main"}
    assert parted.history.check("main").findings == ()


# One by one


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


def test_replayed_merges_are_incremental(parted: Repository) -> None:
    parted.merge("dev", "main", squash=False)
    update(parted, "main", "a", "a-main")
    update(parted, "dev", "b", "b-dev")
    result = parted.merge("dev", "main", squash=False)
    assert outcome(result) == {"b": "NORMAL"}
    assert messages(parted)[:3] == ["update b", "update a", "create b"]
    assert tables(parted)["a"] == "a-main"


def test_squashed_and_replayed_merges_may_follow_each_other(parted: Repository) -> None:
    parted.merge("dev~1", "main", squash=True)
    parted.merge("dev", "main", squash=False)
    create(parted, "dev", c="c")
    result = parted.merge("dev", "main", squash=True)
    assert outcome(result) == {"c": "NORMAL"}


def test_the_merge_parent_is_not_lost_when_the_last_commit_is_left_out(
    parted: Repository,
) -> None:
    parted.commit("dev", [Unchanged(key("a"))], "says nothing")
    parted.merge("dev", "main", squash=False)
    assert messages(parted) == ["create b", "create a", "create base"]
    assert last(parted).parents[1:] == (head(parted, "dev"),)
    update(parted, "main", "a", "a-main")
    assert not parted.merge("dev", "main", squash=False).was_applied


def test_a_replay_follows_a_content_through_its_commits(parted: Repository) -> None:
    update(parted, "dev", "a", "a2")
    update(parted, "dev", "a", "a3")
    parted.commit("dev", [delete("b")], "drop b")
    parted.merge("dev", "main", squash=False)
    assert tables(parted) == {"a": "a3", "base": "base"}
    assert messages(parted)[:3] == ["drop b", "update a", "update a"]


# Rules that nothing asks for


def test_a_rule_for_a_key_that_takes_no_part_is_a_mistake(store: Store) -> None:
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


def test_a_key_has_one_rule(parted: Repository) -> None:
    keys = [MergeKey(key("a"), MergeBehavior.DROP), MergeKey(key("a"), MergeBehavior.FORCE)]
    with pytest.raises(BadRequest, match="Key 'a' has more than one merge behavior"):
        parted.merge("dev", "main", keys=keys)
