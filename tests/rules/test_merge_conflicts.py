"""Keys that both sides changed: conflicts, and the ways to settle them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import MergeBehavior, MergeKey
from morag.errors import BadRequest, ReferenceConflict
from tests.rules.scenes import (
    content_id,
    create,
    delete,
    found,
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
    from tests.rules.scenes import Store

NORMAL, FORCE, DROP = MergeBehavior.NORMAL, MergeBehavior.FORCE, MergeBehavior.DROP
CLASHES = {
    "free": "NORMAL",
    "k1": "VALUE_DIFFERS",
    "k2": "VALUE_DIFFERS",
    "k3": "KEY_DOES_NOT_EXIST",
    "new": "KEY_EXISTS",
}


@pytest.fixture
def quarrel(store: Store) -> Store:
    """Updated on both sides, deleted on one, deleted on the other, created on both, and free."""
    repo = store.repo
    ids = create(repo, "main", k1="k1", k2="k2", k3="k3", k4="k4")
    repo.references.create_branch("dev", "main")
    theirs: list[Operation] = [
        put("k1", "dev1", ids["k1"]),
        delete("k2"),
        put("k3", "dev3", ids["k3"]),
        put("new", "devnew"),
        put("free", "free"),
    ]
    ours: list[Operation] = [
        put("k1", "main1", ids["k1"]),
        put("k2", "main2", ids["k2"]),
        delete("k3"),
        put("new", "mainnew"),
    ]
    repo.commit("dev", theirs, "dev")
    repo.commit("main", ours, "main")
    return store


def rules(**behaviors: MergeBehavior) -> list[MergeKey]:
    return [MergeKey(key(name), behavior) for name, behavior in behaviors.items()]


@pytest.mark.parametrize("dry_run", [False, True])
def test_conflicts_are_an_error_that_lists_every_key(quarrel: Store, dry_run: bool) -> None:
    before = quarrel.everything()
    with pytest.raises(ReferenceConflict) as raised:
        quarrel.repo.merge("dev", "main", dry_run=dry_run)
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
    assert quarrel.everything() == before


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("dry_run", [False, True])
def test_conflicts_may_be_asked_for_as_a_result(
    quarrel: Store, dry_run: bool, squash: bool
) -> None:
    before = quarrel.everything()
    result = quarrel.repo.merge(
        "dev", "main", conflicts_as_result=True, dry_run=dry_run, squash=squash
    )
    assert (result.was_applied, result.was_successful) == (False, False)
    assert result.resultant_target_hash is None
    assert result.effective_target_hash == head(quarrel.repo)
    assert outcome(result) == CLASHES
    assert quarrel.everything() == before


def test_a_dropped_key_is_no_conflict_but_others_stay_so(quarrel: Store) -> None:
    result = quarrel.repo.merge("dev", "main", keys=rules(k1=DROP), conflicts_as_result=True)
    assert outcome(result) == {**CLASHES, "k1": "DROP"}


def test_when_all_is_dropped_nothing_is_applied(quarrel: Store) -> None:
    repo = quarrel.repo
    before = head(repo)
    result = repo.merge("dev", "main", default=DROP)
    assert (result.was_applied, result.was_successful) == (False, True)
    assert result.resultant_target_hash == before == head(repo)
    # The answer is for all keys, also for one that nobody changed.
    assert outcome(result) == dict.fromkeys((*CLASHES, "k4"), "DROP")


def test_by_force_the_source_wins(quarrel: Store) -> None:
    repo = quarrel.repo
    result = repo.merge("dev", "main", default=FORCE)
    assert result.was_applied
    assert outcome(result) == dict.fromkeys(CLASHES, "FORCE")
    assert tables(repo) == tables(repo, "dev")
    assert content_id(repo, "main", "new") == content_id(repo, "dev", "new")
    assert repo.history.check("main").findings == ()


def test_a_rule_for_a_key_goes_before_the_default(quarrel: Store) -> None:
    repo = quarrel.repo
    result = repo.merge("dev", "main", default=DROP, keys=rules(free=NORMAL))
    assert outcome(result) == {**dict.fromkeys((*CLASHES, "k4"), "DROP"), "free": "NORMAL"}
    assert tables(repo) == {
        "free": "free",
        "k1": "main1",
        "k2": "main2",
        "k4": "k4",
        "new": "mainnew",
    }


def test_every_key_may_have_its_own_rule(quarrel: Store) -> None:
    repo = quarrel.repo
    result = repo.merge("dev", "main", keys=rules(k1=FORCE, k2=FORCE, k3=DROP, new=DROP))
    assert outcome(result) == {
        "free": "NORMAL",
        "k1": "FORCE",
        "k2": "FORCE",
        "k3": "DROP",
        "new": "DROP",
    }
    assert tables(repo) == {"free": "free", "k1": "dev1", "k4": "k4", "new": "mainnew"}


def test_replayed_merges_take_the_same_rules(quarrel: Store) -> None:
    repo = quarrel.repo
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
def test_a_key_that_the_target_created_anew_conflicts(
    store: Store, content: object, type: str
) -> None:
    repo = store.repo
    id = create(repo, "main", t="t", u="u")["t"]
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [put("t", "theirs", id)], "update")
    repo.commit("main", [delete("t"), put("t", content)], "replace")  # type: ignore[arg-type]
    result = repo.merge("dev", "main", conflicts_as_result=True)
    assert outcome(result) == {"t": type}


def test_a_key_that_the_source_created_anew_is_merged_as_such(store: Store) -> None:
    repo = store.repo
    create(repo, "main", t="t", u="u")
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [delete("t"), put("t", view("v"))], "replace")
    repo.merge("dev", "main")
    assert content_id(repo, "main", "t") == content_id(repo, "dev", "t")
    assert tables(repo) == {"t": "v", "u": "u"}
    assert repo.history.check("main").findings == ()


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize("ours", [[delete("t")], [delete("t"), put("t", "ours")]])
def test_what_force_replaced_leaves_a_commit_that_can_be_checked(
    store: Store, ours: list[Operation], squash: bool
) -> None:
    repo = store.repo
    create(repo, "main", t="t", u="u")
    repo.references.create_branch("dev", "main")
    repo.commit("dev", [delete("t"), put("t", "theirs"), put("new", "theirs")], "dev")
    repo.commit("main", [*ours, put("new", "ours")], "main")
    repo.merge("dev", "main", default=FORCE, squash=squash)
    assert tables(repo) == {"new": "theirs", "t": "theirs", "u": "u"}
    assert repo.history.check("main").findings == ()


# Resolved content


def settled(
    store: Store, behavior: MergeBehavior, expected: str | None, resolved: str | None
) -> list[MergeKey]:
    """The rule for `k1`, with the other conflicts out of the way."""
    id = content_id(store.repo, "main", "k1")
    rule = MergeKey(
        key("k1"),
        behavior,
        None if expected is None else table(expected, id),
        None if resolved is None else table(resolved, id),
    )
    return [rule, *rules(k2=DROP, k3=DROP, new=DROP)]


def test_resolved_content_settles_a_conflict(quarrel: Store) -> None:
    repo = quarrel.repo
    result = repo.merge("dev", "main", keys=settled(quarrel, NORMAL, "main1", "resolved"))
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
def test_the_target_must_hold_what_a_rule_expects(quarrel: Store, behavior: MergeBehavior) -> None:
    before = quarrel.everything()
    resolved = "resolved" if behavior is NORMAL else None
    keys = settled(quarrel, behavior, "wrong", resolved)
    result = quarrel.repo.merge("dev", "main", keys=keys, conflicts_as_result=True)
    assert outcome(result) == {
        "free": "NORMAL",
        "k1": "VALUE_DIFFERS",
        "k2": "DROP",
        "k3": "DROP",
        "new": "DROP",
    }
    assert quarrel.everything() == before


def test_an_expectation_without_resolution_takes_the_sources_content(quarrel: Store) -> None:
    quarrel.repo.merge("dev", "main", keys=settled(quarrel, NORMAL, "main1", None))
    assert tables(quarrel.repo)["k1"] == "dev1"


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
def test_resolved_content_needs_an_expectation_and_a_conflict_to_settle(
    quarrel: Store, behavior: MergeBehavior, expected: str | None, message: str
) -> None:
    before = quarrel.everything()
    with pytest.raises(BadRequest) as raised:
        quarrel.repo.merge("dev", "main", keys=settled(quarrel, behavior, expected, "resolved"))
    assert str(raised.value) == message
    assert quarrel.everything() == before


@pytest.mark.parametrize(("with_expected", "with_resolved"), [(True, False), (False, True)])
def test_contents_of_rules_have_ids(
    quarrel: Store, with_expected: bool, with_resolved: bool
) -> None:
    id = content_id(quarrel.repo, "main", "k1")
    rule = MergeKey(
        key("k1"),
        NORMAL,
        table("main1", id if with_expected else None),
        table("resolved", id if with_resolved else None),
    )
    before = quarrel.everything()
    with pytest.raises(BadRequest, match=r"^Content to store must have a non-null content ID$"):
        quarrel.repo.merge("dev", "main", keys=[rule, *rules(k2=DROP, k3=DROP, new=DROP)])
    assert quarrel.everything() == before


def test_resolved_content_for_what_the_source_deleted_is_unused(quarrel: Store) -> None:
    id = content_id(quarrel.repo, "main", "k2")
    rule = MergeKey(key("k2"), NORMAL, table("main2", id), table("resolved", id))
    with pytest.raises(
        BadRequest,
        match=r"^The merge behavior for key k2 has an unused resolvedContent attribute\.$",
    ):
        quarrel.repo.merge("dev", "main", keys=[rule, *rules(k1=DROP, k3=DROP, new=DROP)])


def test_conflicts_of_a_transplant_speak_the_same_words(quarrel: Store) -> None:
    with pytest.raises(ReferenceConflict) as raised:
        quarrel.repo.transplant([head(quarrel.repo, "dev")], "main")
    assert str(raised.value) == (
        "The following keys have been changed in conflict: 'k1', 'k2', 'k3', 'new'"
    )
    assert sorted(found(raised.value.conflicts)) == sorted(
        ("KEY_CONFLICT" if type == "NORMAL" else type, name) for name, type in CLASHES.items()
    )
