"""Every conflict of a commit, and the order in which conflicts are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import Put, Unchanged
from morag.errors import BadRequest, ReferenceConflict
from morag.model.conflicts import ConflictType
from tests.rules.operations import (
    NO_ANCESTOR,
    conflict_pairs,
    create,
    delete,
    head,
    key,
    namespace,
    put,
    rename,
    table,
    tables,
    view,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag import Repository
    from morag.model.operations import Operation
    from tests.rules.operations import Store

OTHER_COMMITS: dict[str, Callable[[str], Sequence[Operation]]] = {
    "deleted": lambda _: [delete("t")],
    "re-created as a view": lambda _: [delete("t"), put("t", view("v"))],
    "re-created": lambda _: [delete("t"), put("t", "again")],
    "updated": lambda known: [put("t", "updated", known)],
}
WANTED: dict[str, Callable[[str], Sequence[Operation]]] = {
    "update": lambda known: [put("t", "mine", known)],
    "delete": lambda _: [delete("t")],
    "unchanged": lambda _: [Unchanged(key("t"))],
    "rename": lambda known: rename("t", "elsewhere", table("t", known)),
    "re-add": lambda _: [delete("t"), put("t", "mine")],
}


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize(
    ("other", "type", "message"),
    [
        ("deleted", "KEY_DOES_NOT_EXIST", "Key 't' does not exist."),
        (
            "re-created as a view",
            "PAYLOAD_DIFFERS",
            "Payload of existing and expected content for key 't' are different.",
        ),
        (
            "re-created",
            "CONTENT_ID_DIFFERS",
            "Content IDs of existing and expected content for key 't' are different.",
        ),
        (
            "updated",
            "VALUE_DIFFERS",
            "Values of existing and expected content for key 't' are different.",
        ),
    ],
)
def test_existence_is_checked_first_then_the_type_then_the_id_then_the_value(
    store: Store, wanted: str, other: str, type: str, message: str
) -> None:
    repo = store.repo
    id = create(repo, "main", t="t", other="o")["t"]
    old_head = head(repo)
    repo.commit("main", OTHER_COMMITS[other](id), other)
    before = store.everything()
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", WANTED[wanted](id), wanted, expected=old_head)
    assert str(raised.value) == message
    assert conflict_pairs(raised.value.conflicts) == [(type, "t")]
    assert raised.value.conflicts[0].message == message[0].lower() + message[1:-1]
    assert store.everything() == before


def test_a_key_that_another_commit_created_conflicts(repo: Repository) -> None:
    create(repo, "main", t="theirs")
    with pytest.raises(ReferenceConflict, match=r"^Key 't' already exists\.$") as raised:
        repo.commit("main", [put("t", "mine")], "create", expected=NO_ANCESTOR)
    assert conflict_pairs(raised.value.conflicts) == [("KEY_EXISTS", "t")]
    assert tables(repo) == {"t": "theirs"}


def test_the_new_key_of_a_rename_must_be_free_at_the_head(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    old_head = head(repo)
    create(repo, "main", new="theirs")
    with pytest.raises(ReferenceConflict, match=r"^Key 'new' already exists\.$"):
        repo.commit("main", rename("t", "new", table("t", id)), "rename", expected=old_head)
    assert tables(repo) == {"t": "t", "new": "theirs"}


@pytest.mark.parametrize("dotted", ["nope", "nope.deep"])
def test_a_missing_key_cannot_be_deleted(repo: Repository, dotted: str) -> None:
    create(repo, "main", t="t")
    with pytest.raises(ReferenceConflict, match=rf"^Key '{dotted}' does not exist\.$") as raised:
        repo.commit("main", [delete(dotted)], "delete")
    assert conflict_pairs(raised.value.conflicts) == [("KEY_DOES_NOT_EXIST", dotted)]


def test_all_conflicts_of_a_commit_are_reported_together(repo: Repository) -> None:
    ids = create(repo, "main", gone="1", updated="2", fine="3")
    old_head = head(repo)
    repo.commit(
        "main", [delete("gone"), put("updated", "x", ids["updated"]), put("new", "y")], "theirs"
    )
    mine: list[Operation] = [
        put("fine", "mine", ids["fine"]),
        put("new", "mine"),
        put("updated", "mine", ids["updated"]),
        delete("gone"),
        delete("never"),
    ]
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", mine, "mine", expected=old_head)
    assert sorted(conflict_pairs(raised.value.conflicts)) == [
        ("KEY_DOES_NOT_EXIST", "gone"),
        ("KEY_DOES_NOT_EXIST", "never"),
        ("KEY_EXISTS", "new"),
        ("VALUE_DIFFERS", "updated"),
    ]
    text = str(raised.value)
    assert text.startswith(
        "There are multiple conflicts that prevent committing the provided operations: "
    )
    assert all(conflict.message in text for conflict in raised.value.conflicts)
    assert text.endswith(".")
    assert tables(repo) == {"fine": "3", "new": "y", "updated": "x"}


def test_conflicts_are_reported_for_deletes_then_unchanged_then_puts(repo: Repository) -> None:
    """A key that is deleted and put again counts as a delete."""
    ids = create(repo, "main", a="1", b="1", c="1", d="1", e="1")
    old_head = head(repo)
    repo.commit("main", [put(name, "2", id) for name, id in ids.items()], "theirs")
    mine: list[Operation] = [
        put("e", "mine", ids["e"]),
        Unchanged(key("d")),
        delete("c"),
        delete("b"),
        put("b", "mine"),
        delete("a"),
    ]
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", mine, "mine", expected=old_head)
    assert [str(conflict.key) for conflict in raised.value.conflicts] == ["c", "b", "a", "d", "e"]


def test_missing_namespaces_are_reported_before_conflicts_of_keys(repo: Repository) -> None:
    operations: list[Operation] = [delete("nope"), delete("nope2"), put("q.r", "qr")]
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'q' must exist\.$") as raised:
        repo.commit("main", operations, "several")
    assert [c.conflict_type for c in raised.value.conflicts] == [ConflictType.NAMESPACE_ABSENT]


def test_a_missing_content_id_is_reported_before_any_conflict(repo: Repository) -> None:
    create(repo, "main", t="t")
    with pytest.raises(BadRequest, match="New value to update existing key 't' has no content ID"):
        repo.commit("main", [delete("nope"), put("t", "x"), put("q.r", "qr")], "several")


def test_the_expected_content_must_equal_the_content_on_the_branch(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    wrong = Put(key("t"), table("new", id), expected_content=table("other", id))
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", [wrong], "wrong")
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "t")]
    repo.commit("main", [Put(key("t"), table("new", id), expected_content=table("t", id))], "right")
    assert tables(repo) == {"t": "new"}


def test_the_expected_content_must_have_the_existing_content_id(repo: Repository) -> None:
    id = create(repo, "main", t="t")["t"]
    other = "11111111-2222-3333-4444-555555555555"
    wrong = Put(key("t"), table("new", id), expected_content=table("t", other))
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", [wrong], "wrong")
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "t")]


def test_expected_content_under_a_new_key_is_reported_as_missing(repo: Repository) -> None:
    other = "11111111-2222-3333-4444-555555555555"
    wrong = Put(key("t"), table("new"), expected_content=table("t", other))
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", [wrong], "wrong")
    assert conflict_pairs(raised.value.conflicts) == [("KEY_DOES_NOT_EXIST", "t")]


def test_a_namespace_conflicts_like_other_content(repo: Repository) -> None:
    id = repo.commit("main", [put("n", namespace("n"))], "n").added[key("n")]
    old_head = head(repo)
    repo.commit("main", [put("n", namespace("n", id, owner="them"))], "theirs")
    with pytest.raises(ReferenceConflict) as raised:
        repo.commit("main", [put("n", namespace("n", id, owner="me"))], "mine", expected=old_head)
    assert conflict_pairs(raised.value.conflicts) == [("VALUE_DIFFERS", "n")]
