"""Transplants: a run of commits, applied to another branch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import CommitMeta, ConflictType, MergeBehavior, MergeKey, Unchanged
from morag.errors import BadRequest, ReferenceConflict, ReferenceNotFound
from morag.model.merging import MergeResult
from tests.rules.scenes import (
    NO_ANCESTOR,
    UNKNOWN,
    content_id,
    create,
    delete,
    found,
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
    from tests.rules.scenes import Store

AUTHORED = CommitMeta(
    message="dev a",
    authors=("dev",),
    author_time="2020-01-01T00:00:00Z",
    signed_off_by=("eve",),
    properties={"p": ("q",)},
)


def metas(repo: Repository, at: str = "main") -> list[CommitMeta]:
    return [entry.meta for entry in repo.history.log(at)]


def sow(repo: Repository) -> list[str]:
    """Three commits on `dev`, oldest first: a new table, another, an update of a common one."""
    create(repo, "main", base="base")
    repo.references.create_branch("dev", "main")
    return [
        repo.commit("dev", [put("a", "a")], AUTHORED).hash,
        repo.commit("dev", [put("b", "b")], "dev b").hash,
        update(repo, "dev", "base", "base-dev"),
    ]


def test_a_single_commit_is_applied_with_its_metadata(any_repo: Repository) -> None:
    first, _, _ = sow(any_repo)
    target = head(any_repo)
    result = any_repo.transplant([first], "main", expected=target, committer="ann")
    assert result == MergeResult(
        was_applied=True,
        was_successful=True,
        resultant_target_hash=head(any_repo),
        common_ancestor=None,
        target_branch="main",
        effective_target_hash=target,
        expected_hash=target,
        details=result.details,
    )
    assert outcome(result) == {"a": "NORMAL"}
    meta = metas(any_repo)[0]
    assert (meta.message, meta.authors, meta.author_time) == (
        "dev a",
        ("dev",),
        "2020-01-01T00:00:00Z",
    )
    assert (meta.signed_off_by, meta.properties) == (("eve",), {"p": ("q",)})
    assert (meta.committer, meta.parents) == ("ann", (target,)), "no second parent"
    assert content_id(any_repo, "main", "a") == content_id(any_repo, "dev", "a")


def test_the_commit_time_is_new(store: Store) -> None:
    first, _, _ = sow(store.repo)
    store.clock.pass_seconds(3600)
    store.repo.transplant([first], "main")
    (meta, _) = metas(store.repo)
    assert meta.commit_time == "2023-11-14T23:13:20Z"
    assert meta.author_time == "2020-01-01T00:00:00Z"


def test_several_commits_stay_several(repo: Repository) -> None:
    hashes = sow(repo)
    result = repo.transplant(hashes, "main")
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL", "base": "NORMAL"}
    assert messages(repo) == ["update base", "dev b", "dev a", "create base"]
    assert tables(repo) == tables(repo, "dev")


def test_a_commit_from_the_middle_brings_only_its_own(repo: Repository) -> None:
    _, middle, _ = sow(repo)
    repo.transplant([middle], "main")
    assert tables(repo) == {"b": "b", "base": "base"}


def test_commits_may_come_from_a_stranger(repo: Repository) -> None:
    hashes = sow(repo)
    repo.references.create_branch("stranger", None)
    repo.transplant(hashes[:2], "stranger")
    assert tables(repo, "stranger") == {"a": "a", "b": "b"}


def test_a_single_commit_may_be_given_other_words(repo: Repository) -> None:
    first, _, _ = sow(repo)
    repo.transplant([first], "main", meta=CommitMeta(message="override", authors=("hdr",)))
    meta = metas(repo)[0]
    assert (meta.message, meta.authors) == ("override", ("hdr",))
    assert (meta.author_time, meta.properties) == ("2020-01-01T00:00:00Z", {"p": ("q",)})


def test_several_commits_keep_their_own_words(repo: Repository) -> None:
    hashes = sow(repo)
    repo.transplant(hashes[:2], "main", meta=CommitMeta(message="ignored", authors=("no",)))
    second, first, _ = metas(repo)
    assert (second.message, first.message) == ("dev b", "dev a")
    assert first.authors == ("dev",)


def test_hashes_may_be_in_upper_case(repo: Repository) -> None:
    first, _, _ = sow(repo)
    assert repo.transplant([first.upper()], "main").was_applied


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("order", [(1, 0), (0, 2), (0, 0), (2, 1, 0)])
def test_commits_must_follow_each_other(store: Store, order: tuple[int, ...], squash: bool) -> None:
    hashes = sow(store.repo)
    before = store.everything()
    with pytest.raises(BadRequest, match=r"^Sequence of hashes is not contiguous\.$"):
        store.repo.transplant([hashes[i] for i in order], "main", squash=squash)
    assert store.everything() == before


@pytest.mark.parametrize("hash", [UNKNOWN, NO_ANCESTOR, UNKNOWN[:12]])
def test_commits_must_exist(repo: Repository, hash: str) -> None:
    sow(repo)
    with pytest.raises(ReferenceNotFound, match=f"^Commit '{hash}' not found$"):
        repo.transplant([hash], "main")


@pytest.mark.parametrize("hashes", [[], ["zz"], ["~1"], [""]])
def test_hashes_must_be_hashes(repo: Repository, hashes: list[str]) -> None:
    with pytest.raises(BadRequest):
        repo.transplant(hashes, "main")


@pytest.mark.parametrize("squash", [True, False])
def test_what_is_there_already_is_left_out(repo: Repository, squash: bool) -> None:
    sow(repo)
    before = head(repo)
    result = repo.transplant([before], "main", squash=squash)
    assert (result.was_applied, result.was_successful, result.details) == (False, True, ())
    assert result.resultant_target_hash == before == head(repo)


def test_commits_that_turn_out_empty_are_skipped(repo: Repository) -> None:
    first, _, third = sow(repo)
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
    hashes = sow(store.repo)
    before = store.everything()
    result = store.repo.transplant(hashes, "main", dry_run=True, squash=squash)
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash is None
    assert outcome(result) == {"a": "NORMAL", "b": "NORMAL", "base": "NORMAL"}
    assert store.everything() == before


# Conflicts


def quarrel(repo: Repository) -> list[str]:
    hashes = sow(repo)
    id = content_id(repo, "main", "base")
    repo.commit("main", [put("base", "base-main", id), put("a", "a-main")], "main")
    return hashes


def test_a_conflict_is_an_error(store: Store) -> None:
    *_, last = quarrel(store.repo)
    before = store.everything()
    with pytest.raises(ReferenceConflict) as raised:
        store.repo.transplant([last], "main")
    assert str(raised.value) == "The following keys have been changed in conflict: 'base'"
    assert found(raised.value.conflicts) == [("VALUE_DIFFERS", "base")]
    assert store.everything() == before


@pytest.mark.parametrize("squash", [True, False])
def test_conflicts_of_all_commits_are_reported(store: Store, squash: bool) -> None:
    hashes = quarrel(store.repo)
    before = store.everything()
    result = store.repo.transplant(hashes, "main", conflicts_as_result=True, squash=squash)
    assert (result.was_applied, result.was_successful) == (False, False)
    assert result.resultant_target_hash is None
    assert outcome(result) == {"a": "KEY_EXISTS", "b": "NORMAL", "base": "VALUE_DIFFERS"}
    assert store.everything() == before


def test_a_stale_expected_hash_is_no_conflict_by_itself(repo: Repository) -> None:
    hashes = quarrel(repo)
    seen = repo.history.log("main").page(2).items[1].meta.hash
    result = repo.transplant(hashes, "main", expected=seen, conflicts_as_result=True)
    assert (result.expected_hash, result.effective_target_hash) == (seen, head(repo))
    assert not result.was_successful
    assert repo.transplant(hashes[1:2], "main", expected=seen).was_applied


@pytest.mark.parametrize("squash", [True, False])
def test_key_behaviors_settle_conflicts(repo: Repository, squash: bool) -> None:
    hashes = quarrel(repo)
    keys = [
        MergeKey(key("base"), MergeBehavior.FORCE),
        MergeKey(key("a"), MergeBehavior.DROP),
    ]
    result = repo.transplant(hashes, "main", keys=keys, squash=squash)
    assert outcome(result) == {"a": "DROP", "b": "NORMAL", "base": "FORCE"}
    assert tables(repo) == {"a": "a-main", "b": "b", "base": "base-dev"}
    if not squash:
        assert messages(repo) == ["update base", "dev b", "main", "create base"]


def test_a_dropped_key_that_was_created_anew_stays_the_targets(repo: Repository) -> None:
    create(repo, "main", t="t")
    repo.references.create_branch("dev", "main")
    hash = repo.commit("dev", [delete("t"), put("t", "anew")], "replace").hash
    update(repo, "main", "t", "ours")
    result = repo.transplant([hash], "main", keys=[MergeKey(key("t"), MergeBehavior.DROP)])
    assert outcome(result) == {"t": "DROP"}
    assert tables(repo) == {"t": "ours"}


def test_a_key_created_anew_is_transplanted_by_force_only(repo: Repository) -> None:
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
    *_, last = quarrel(repo)
    id = content_id(repo, "main", "base")
    rule = MergeKey(key("base"), MergeBehavior.NORMAL, table("base-main", id), table("both", id))
    repo.transplant([last], "main", keys=[rule])
    assert repo.contents.get("main", key("base")) == table("both", id)


# Squashed


def test_a_squashed_transplant_is_one_commit_with_one_parent(any_repo: Repository) -> None:
    hashes = sow(any_repo)
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


def test_a_squashed_transplant_gathers_authors_times_and_properties(repo: Repository) -> None:
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


def test_a_squashed_transplant_may_be_given_other_words(repo: Repository) -> None:
    hashes = sow(repo)
    repo.transplant(hashes, "main", squash=True, meta=CommitMeta(message="mine", authors=("me",)))
    assert (metas(repo)[0].message, metas(repo)[0].authors) == ("mine", ("me",))


def test_a_rule_that_a_squashed_transplant_does_not_use_is_a_mistake(repo: Repository) -> None:
    hashes = sow(repo)
    with pytest.raises(BadRequest, match=r"The following keys were not used: \[absent\]"):
        repo.transplant(
            hashes, "main", squash=True, keys=[MergeKey(key("absent"), MergeBehavior.DROP)]
        )
