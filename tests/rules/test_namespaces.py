"""Namespaces must exist before their content, and be empty before they are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import Settings
from morag.errors import ReferenceConflict
from tests.rules.operations import (
    Store,
    conflict_pairs,
    content_id,
    create,
    delete,
    head,
    key,
    move,
    namespace,
    put,
    tables,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag import Repository
    from morag.model.operations import Operation


@pytest.fixture
def nested(repo: Repository) -> Repository:
    """A repository with the namespaces `a` and `a.b`, and a table in each."""
    operations = [
        put("a", namespace("a")),
        put("a.b", namespace("a.b")),
        put("a.t", "at"),
        put("a.b.t", "abt"),
    ]
    repo.commit("main", operations, "nested")
    return repo


@pytest.mark.parametrize(
    ("operation", "conflicts", "message"),
    [
        (put("x.t", "t"), [("NAMESPACE_ABSENT", "x")], "Namespace 'x' must exist."),
        (put("a.x.t", "t"), [("NAMESPACE_ABSENT", "a.x")], "Namespace 'a.x' must exist."),
        (
            put("a.x", namespace("a.x")),
            [],
            "",
        ),
        (
            put("x.y.t", "t"),
            [("NAMESPACE_ABSENT", "x.y"), ("NAMESPACE_ABSENT", "x")],
            "There are multiple conflicts that prevent committing the provided operations: "
            "namespace 'x.y' must exist, namespace 'x' must exist.",
        ),
        (
            put("a.t.u", "u"),
            [("NOT_A_NAMESPACE", "a.t")],
            "Expecting the key 'a.t' to be a namespace, but is not a namespace (using a content "
            "object that is not a namespace as a namespace is forbidden).",
        ),
        (
            put("a.t.u.v", "v"),
            [("NAMESPACE_ABSENT", "a.t.u"), ("NOT_A_NAMESPACE", "a.t")],
            "There are multiple conflicts that prevent committing the provided operations: "
            "namespace 'a.t.u' must exist, expecting the key 'a.t' to be a namespace, but is not a "
            "namespace (using a content object that is not a namespace as a namespace is "
            "forbidden).",
        ),
        (delete("a"), [("NAMESPACE_NOT_EMPTY", "a")], "Namespace 'a' is not empty."),
        (delete("a.b"), [("NAMESPACE_NOT_EMPTY", "a.b")], "Namespace 'a.b' is not empty."),
    ],
    ids=str,
)
def test_each_violation_has_its_own_message(
    nested: Repository, operation: Operation, conflicts: list[tuple[str, str]], message: str
) -> None:
    before = head(nested)
    if not conflicts:
        nested.commit("main", [operation], "fine")
        return
    with pytest.raises(ReferenceConflict) as raised:
        nested.commit("main", [operation], "wrong")
    assert conflict_pairs(raised.value.conflicts) == conflicts
    assert str(raised.value) == message
    assert head(nested) == before


def test_a_missing_namespace_is_reported_once(nested: Repository) -> None:
    with pytest.raises(ReferenceConflict) as raised:
        nested.commit("main", [put("x.t", "t"), put("x.u", "u"), put("y.t", "t")], "wrong")
    assert sorted(conflict_pairs(raised.value.conflicts)) == [
        ("NAMESPACE_ABSENT", "x"),
        ("NAMESPACE_ABSENT", "y"),
    ]


@pytest.mark.parametrize("namespace_first", [True, False])
def test_a_namespace_may_come_with_its_content(any_repo: Repository, namespace_first: bool) -> None:
    operations = [put("n", namespace("n")), put("n.t", "t")]
    any_repo.commit("main", operations if namespace_first else operations[::-1], "both")
    assert tables(any_repo) == {"n": "NAMESPACE", "n.t": "t"}


def test_a_table_of_the_same_commit_is_not_a_namespace(repo: Repository) -> None:
    with pytest.raises(ReferenceConflict, match="Namespace 'n' must exist"):
        repo.commit("main", [put("n", "table"), put("n.t", "t")], "both")


def test_a_namespace_may_be_deleted_with_all_its_content(nested: Repository) -> None:
    nested.commit("main", [delete("a.b"), delete("a.b.t")], "b")
    operations = [delete("a"), delete("a.t")]
    nested.commit("main", operations, "a")
    assert tables(nested) == {}


def test_a_namespace_with_nested_content_cannot_be_deleted(nested: Repository) -> None:
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a' is not empty\.$"):
        nested.commit("main", [delete("a"), delete("a.t"), delete("a.b.t")], "wrong")


def test_keys_with_similar_names_are_not_in_a_namespace(repo: Repository) -> None:
    names = ["n", "n!", "n-", "na"]
    operations: list[Operation] = [put(name, namespace(name)) for name in names]
    repo.commit("main", [*operations, put("na.t", "t"), put("n!.t", "t")], "neighbours")
    repo.commit("main", [delete("n")], "drop")
    assert "n" not in tables(repo)


def test_content_in_a_namespace_deleted_in_the_same_commit_is_accepted(
    repo: Repository,
) -> None:
    """Nessie accepts it too."""
    repo.commit("main", [put("z", namespace("z")), put("z.y", "y")], "z")
    repo.commit("main", [delete("z"), delete("z.y"), put("z.x", "x")], "swap")
    assert tables(repo) == {"z.x": "x"}
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'z' must exist\.$"):
        repo.commit("main", [put("z.w", "w")], "w")


def test_an_update_needs_no_namespace(repo: Repository) -> None:
    repo.commit("main", [put("z", namespace("z")), put("z.y", "y")], "z")
    repo.commit("main", [delete("z"), delete("z.y"), put("z.x", "x")], "orphan")
    id = content_id(repo, "main", "z.x")
    repo.commit("main", [put("z.x", "x2", id)], "update")
    repo.commit("main", [delete("z.x")], "drop")
    assert tables(repo) == {}


def test_a_rename_needs_the_namespace_of_its_new_key(nested: Repository) -> None:
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'x' must exist\.$"):
        move(nested, "main", "a.t", "x.t")
    move(nested, "main", "a.t", "a.b.moved")
    assert tables(nested)["a.b.moved"] == "at"


def test_a_namespace_that_another_commit_deleted_is_reported_missing(nested: Repository) -> None:
    old_head = head(nested)
    nested.commit("main", [delete("a.b"), delete("a.b.t")], "drop")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' must exist\.$"):
        nested.commit("main", [put("a.b.new", "n")], "new", expected=old_head)


def test_a_namespace_that_another_commit_filled_cannot_be_deleted(repo: Repository) -> None:
    repo.commit("main", [put("n", namespace("n"))], "n")
    old_head = head(repo)
    repo.commit("main", [put("n.t", "t")], "t")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'n' is not empty\.$"):
        repo.commit("main", [delete("n")], "drop", expected=old_head)


def test_properties_change_under_one_id(repo: Repository) -> None:
    id = repo.commit("main", [put("n", namespace("n"))], "n").added[key("n")]
    repo.commit("main", [put("n", namespace("n", id, k="v"))], "properties")
    assert repo.contents.get("main", key("n")) == namespace("n", id, k="v")
    repo.commit("main", [put("n", namespace("n", id))], "none")
    assert repo.contents.get("main", key("n")) == namespace("n", id)


def test_a_namespace_may_disagree_with_its_key(repo: Repository) -> None:
    """Nessie allows it."""
    repo.commit("main", [put("n", namespace("something.else"))], "n")
    repo.commit("main", [put("n.t", "t")], "t")
    assert set(tables(repo)) == {"n", "n.t"}


# Merges and transplants


def test_a_merge_must_satisfy_the_namespaces_of_the_target(nested: Repository) -> None:
    nested.references.create_branch("dev", "main")
    hash = nested.commit("dev", [put("a.b.new", "new")], "new").hash
    nested.commit("main", [delete("a.b"), delete("a.b.t")], "drop")
    before = head(nested)
    ways: list[Callable[[], object]] = [
        lambda: nested.merge("dev", "main"),
        lambda: nested.merge("dev", "main", squash=False),
        lambda: nested.transplant([hash], "main"),
        lambda: nested.transplant([hash], "main", squash=True),
        lambda: nested.merge("dev", "main", conflicts_as_result=True),
        lambda: nested.merge("dev", "main", dry_run=True),
    ]
    for change in ways:
        with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' must exist\.$") as raised:
            change()
        assert conflict_pairs(raised.value.conflicts) == [("NAMESPACE_ABSENT", "a.b")]
    assert head(nested) == before


def test_a_merge_cannot_delete_a_namespace_with_content(nested: Repository) -> None:
    nested.references.create_branch("dev", "main")
    nested.commit("dev", [delete("a.b"), delete("a.b.t")], "drop")
    nested.commit("main", [put("a.b.new", "new")], "new")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' is not empty\.$"):
        nested.merge("dev", "main")


# Without namespace validation


def test_without_validation_namespaces_are_not_needed() -> None:
    repo = Store(Settings(namespace_validation=False)).repo
    repo.commit("main", [put("x.y.t", "t")], "no parents")
    create(repo, "main", t="t")
    repo.commit("main", [put("t.u", "u")], "below a table")
    repo.commit("main", [put("n", namespace("n")), put("n.t", "t")], "n")
    repo.commit("main", [delete("n")], "not empty")
    assert set(tables(repo)) == {"x.y.t", "t", "t.u", "n.t"}


def test_without_validation_merges_need_no_namespaces() -> None:
    repo = Store(Settings(namespace_validation=False)).repo
    repo.commit("main", [put("n", namespace("n"))], "n")
    repo.references.create_branch("dev", "main")
    hash = repo.commit("dev", [put("n.t", "t")], "t").hash
    repo.commit("main", [delete("n")], "drop")
    repo.references.create_branch("other", "main")
    repo.merge("dev", "main")
    repo.transplant([hash], "other")
    assert tables(repo) == tables(repo, "other") == {"n.t": "t"}
