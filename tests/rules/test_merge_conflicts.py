"""Keys that both sides changed: conflicts, and the ways to resolve them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import MergeBehavior, MergeKey
from morag.errors import BadRequest, ReferenceConflict
from tests.rules.operations import (
    conflict_pairs,
    content_id,
    create,
    delete,
    head,
    key,
    outcome,
    put,
    table,
    tables,
    view,
)

if TYPE_CHECKING:
    from morag.model.operations import Operation
    from tests.rules.operations import Store

NORMAL, FORCE, DROP = MergeBehavior.NORMAL, MergeBehavior.FORCE, MergeBehavior.DROP
CLASHES = {
    "free": "NORMAL",
    "k1": "VALUE_DIFFERS",
    "k2": "VALUE_DIFFERS",
    "k3": "KEY_DOES_NOT_EXIST",
    "new": "KEY_EXISTS",
}


@pytest.fixture
def conflicting(store: Store) -> Store:
    """Keys updated on both sides, deleted on one or the other, created on both, and free."""
    repo = store.repo
    ids = create(repo, "main", k1="k1", k2="k2", k3="k3", k4="k4")
    repo.references.create_branch("dev", "main")
    on_dev: list[Operation] = [
        put("k1", "dev1", ids["k1"]),
        delete("k2"),
        put("k3", "dev3", ids["k3"]),
        put("new", "devnew"),
        put("free", "free"),
    ]
    on_main: list[Operation] = [
        put("k1", "main1", ids["k1"]),
        put("k2", "main2", ids["k2"]),
        delete("k3"),
        put("new", "mainnew"),
    ]
    repo.commit("dev", on_dev, "dev")
    repo.commit("main", on_main, "main")
    return store


def rules(**behaviors: MergeBehavior) -> list[MergeKey]:
    return [MergeKey(key(name), behavior) for name, behavior in behaviors.items()]


@pytest.mark.parametrize("dry_run", [False, True])
def test_conflicts_are_an_error_that_lists_every_key(conflicting: Store, dry_run: bool) -> None:
    before = conflicting.everything()
    with pytest.raises(ReferenceConflict) as raised:
        conflicting.repo.merge("dev", "main", dry_run=dry_run)
    assert str(raised.value) == (
        "The following keys have been changed in conflict: 'k1', 'k2', 'k3', 'new'"
    )
    reported = {str(c.key): (c.conflict_type.value, c.message) for c in raised.value.conflicts}
    assert reported == {
        "k1": (
            "VALUE_DIFFERS",
            "values of existing and expected content for key 'k1' are different",
        ),
        "k2": (
            "VALUE_DIFFERS",
            "values of existing and expected content for key 'k2' are different",
        ),
        "k3": ("KEY_DOES_NOT_EXIST", "key 'k3' does not exist"),
        "free": ("KEY_CONFLICT", "UNKNOWN"),
        "new": ("KEY_EXISTS", "key 'new' already exists"),
    }
    assert conflicting.everything() == before


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("dry_run", [False, True])
def test_conflicts_can_be_returned_as_a_result(
    conflicting: Store, dry_run: bool, squash: bool
) -> None:
    before = conflicting.everything()
    result = conflicting.repo.merge(
        "dev", "main", conflicts_as_result=True, dry_run=dry_run, squash=squash
    )
    assert (result.was_applied, result.was_successful) == (False, False)
    assert result.resultant_target_hash is None
    assert result.effective_target_hash == head(conflicting.repo)
    assert outcome(result) == CLASHES
    assert conflicting.everything() == before


def test_dropping_a_key_resolves_only_its_own_conflict(conflicting: Store) -> None:
    result = conflicting.repo.merge("dev", "main", keys=rules(k1=DROP), conflicts_as_result=True)
    assert outcome(result) == {**CLASHES, "k1": "DROP"}


def test_a_merge_that_drops_all_keys_applies_nothing(conflicting: Store) -> None:
    repo = conflicting.repo
    before = head(repo)
    result = repo.merge("dev", "main", default=DROP)
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash == before == head(repo)
    # The result lists all keys, also one that neither side changed.
    assert outcome(result) == dict.fromkeys((*CLASHES, "k4"), "DROP")


def test_force_takes_the_content_of_the_source(conflicting: Store) -> None:
    repo = conflicting.repo
    result = repo.merge("dev", "main", default=FORCE)
    assert result.was_applied
    assert outcome(result) == dict.fromkeys(CLASHES, "FORCE")
    assert tables(repo) == tables(repo, "dev")
    assert content_id(repo, "main", "new") == content_id(repo, "dev", "new")
    assert repo.history.check("main").findings == ()


def test_a_rule_for_a_key_overrides_the_default(conflicting: Store) -> None:
    repo = conflicting.repo
    result = repo.merge("dev", "main", default=DROP, keys=rules(free=NORMAL))
    assert outcome(result) == {**dict.fromkeys((*CLASHES, "k4"), "DROP"), "free": "NORMAL"}
    assert tables(repo) == {
        "free": "free",
        "k1": "main1",
        "k2": "main2",
        "k4": "k4",
        "new": "mainnew",
    }


def test_every_key_may_have_its_own_rule(conflicting: Store) -> None:
    repo = conflicting.repo
    result = repo.merge("dev", "main", keys=rules(k1=FORCE, k2=FORCE, k3=DROP, new=DROP))
    assert outcome(result) == {
        "free": "NORMAL",
        "k1": "FORCE",
        "k2": "FORCE",
        "k3": "DROP",
        "new": "DROP",
    }
    assert tables(repo) == {"free": "free", "k1": "dev1", "k4": "k4", "new": "mainnew"}


def test_replayed_merges_accept_the_same_rules(conflicting: Store) -> None:
    repo = conflicting.repo
    repo.merge("dev", "main", squash=False, keys=rules(k1=FORCE, k2=FORCE, k3=DROP, new=DROP))
    assert tables(repo) == {"free": "free", "k1": "dev1", "k4": "k4", "new": "mainnew"}


def test_a_key_that_both_sides_deleted_conflicts(store: Store) -> None:
    repo = store.repo
    create(repo, "main", t="t", u="u")
    repo.references.create_branch("dev", "main")
    for branch in ("main", "dev"):
        repo.commit(branch, [delete("t")], f"drop on {branch}")
    result = repo.merge("dev", "main", conflicts_as_result=True)
    assert outcome(result) == {"t": "KEY_DOES_NOT_EXIST"}


@pytest.mark.parametrize(
    ("content", "type"), [(table("ours"), "CONTENT_ID_DIFFERS"), (view("v"), "PAYLOAD_DIFFERS")]
)
def test_a_key_that_the_target_re_added_conflicts(store: Store, content: object, type: str) -> None:
    repo = store.repo
    id = create(repo, "main", t="t", u="u")["t"]
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [put("t", "theirs", id)], "update")
    repo.commit("main", [delete("t"), put("t", content)], "replace")  # type: ignore[arg-type]
    result = repo.merge("dev", "main", conflicts_as_result=True)
    assert outcome(result) == {"t": type}


def test_a_key_that_the_source_re_added_is_merged(store: Store) -> None:
    repo = store.repo
    create(repo, "main", t="t", u="u")
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [delete("t"), put("t", view("v"))], "replace")
    repo.merge("dev", "main")
    assert content_id(repo, "main", "t") == content_id(repo, "dev", "t")
    assert tables(repo) == {"t": "v", "u": "u"}
    assert repo.history.check("main").findings == ()


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("on_main", [[delete("t")], [delete("t"), put("t", "ours")]])
def test_the_commit_of_a_forced_merge_is_consistent(
    store: Store, on_main: list[Operation], squash: bool
) -> None:
    repo = store.repo
    create(repo, "main", t="t", u="u")
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [delete("t"), put("t", "theirs"), put("new", "theirs")], "dev")
    repo.commit("main", [*on_main, put("new", "ours")], "main")
    repo.merge("dev", "main", default=FORCE, squash=squash)
    assert tables(repo) == {"new": "theirs", "t": "theirs", "u": "u"}
    assert repo.history.check("main").findings == ()


# Resolved content


def rule_for_k1(
    store: Store, behavior: MergeBehavior, expected: str | None, resolved: str | None
) -> list[MergeKey]:
    """The rule for `k1`, with rules that drop the other conflicting keys."""
    id = content_id(store.repo, "main", "k1")
    rule = MergeKey(
        key("k1"),
        behavior,
        None if expected is None else table(expected, id),
        None if resolved is None else table(resolved, id),
    )
    return [rule, *rules(k2=DROP, k3=DROP, new=DROP)]


def test_resolved_content_resolves_a_conflict(conflicting: Store) -> None:
    repo = conflicting.repo
    result = repo.merge("dev", "main", keys=rule_for_k1(conflicting, NORMAL, "main1", "resolved"))
    assert result.was_applied
    assert outcome(result)["k1"] == "NORMAL"
    assert tables(repo) == {
        "free": "free",
        "k1": "resolved",
        "k2": "main2",
        "k4": "k4",
        "new": "mainnew",
    }
    assert repo.history.check("main").findings == ()


@pytest.mark.parametrize("behavior", [NORMAL, FORCE])
def test_the_target_must_have_the_content_that_a_rule_expects(
    conflicting: Store, behavior: MergeBehavior
) -> None:
    before = conflicting.everything()
    resolved = "resolved" if behavior is NORMAL else None
    keys = rule_for_k1(conflicting, behavior, "wrong", resolved)
    result = conflicting.repo.merge("dev", "main", keys=keys, conflicts_as_result=True)
    assert outcome(result) == {
        "free": "NORMAL",
        "k1": "VALUE_DIFFERS",
        "k2": "DROP",
        "k3": "DROP",
        "new": "DROP",
    }
    assert conflicting.everything() == before


def test_an_expectation_without_resolution_takes_the_content_of_the_source(
    conflicting: Store,
) -> None:
    conflicting.repo.merge("dev", "main", keys=rule_for_k1(conflicting, NORMAL, "main1", None))
    assert tables(conflicting.repo)["k1"] == "dev1"


@pytest.mark.parametrize(
    ("behavior", "expected", "message"),
    [
        (
            NORMAL,
            None,
            "MergeKeyBehavior.resolvedContent requires setting MergeKeyBehavior.expectedTarget as "
            "well for key k1",
        ),
        (
            FORCE,
            "main1",
            "MergeKeyBehavior.resolvedContent must be null for MergeBehavior.FORCE for k1",
        ),
        (
            DROP,
            "main1",
            "MergeKeyBehavior.resolvedContent must be null for MergeBehavior.DROP for k1",
        ),
    ],
)
def test_resolved_content_needs_an_expectation_and_a_conflict(
    conflicting: Store, behavior: MergeBehavior, expected: str | None, message: str
) -> None:
    before = conflicting.everything()
    with pytest.raises(BadRequest) as raised:
        conflicting.repo.merge(
            "dev", "main", keys=rule_for_k1(conflicting, behavior, expected, "resolved")
        )
    assert str(raised.value) == message
    assert conflicting.everything() == before


@pytest.mark.parametrize(("with_expected", "with_resolved"), [(True, False), (False, True)])
def test_contents_of_rules_must_have_ids(
    conflicting: Store, with_expected: bool, with_resolved: bool
) -> None:
    id = content_id(conflicting.repo, "main", "k1")
    rule = MergeKey(
        key("k1"),
        NORMAL,
        table("main1", id if with_expected else None),
        table("resolved", id if with_resolved else None),
    )
    before = conflicting.everything()
    with pytest.raises(BadRequest, match=r"^Content to store must have a non-null content ID$"):
        conflicting.repo.merge("dev", "main", keys=[rule, *rules(k2=DROP, k3=DROP, new=DROP)])
    assert conflicting.everything() == before


def test_resolved_content_for_a_key_that_the_source_deleted_is_unused(conflicting: Store) -> None:
    id = content_id(conflicting.repo, "main", "k2")
    rule = MergeKey(key("k2"), NORMAL, table("main2", id), table("resolved", id))
    with pytest.raises(
        BadRequest,
        match=r"^The merge behavior for key k2 has an unused resolvedContent attribute\.$",
    ):
        conflicting.repo.merge("dev", "main", keys=[rule, *rules(k1=DROP, k3=DROP, new=DROP)])


def test_conflicts_of_a_transplant_have_the_same_message(conflicting: Store) -> None:
    with pytest.raises(ReferenceConflict) as raised:
        conflicting.repo.transplant([head(conflicting.repo, "dev")], "main")
    assert str(raised.value) == (
        "The following keys have been changed in conflict: 'k1', 'k2', 'k3', 'new'"
    )
    assert sorted(conflict_pairs(raised.value.conflicts)) == sorted(
        ("KEY_CONFLICT" if type == "NORMAL" else type, name) for name, type in CLASHES.items()
    )
