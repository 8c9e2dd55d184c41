"""Namespaces must exist before their content, and be empty before they go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from morag import Settings
from morag.errors import ReferenceConflict
from tests.rules.scenes import (
    Store,
    content_id,
    create,
    delete,
    found,
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
def place(repo: Repository) -> Repository:
    """A repository with the namespaces `a` and `a.b`, and a table in each."""
    operations = [
        put("a", namespace("a")),
        put("a.b", namespace("a.b")),
        put("a.t", "at"),
        put("a.b.t", "abt"),
    ]
    repo.commit("main", operations, "place")
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
def test_each_way_to_break_the_order_has_its_own_words(
    place: Repository, operation: Operation, conflicts: list[tuple[str, str]], message: str
) -> None:
    before = head(place)
    if not conflicts:
        place.commit("main", [operation], "fine")
        return
    with pytest.raises(ReferenceConflict) as raised:
        place.commit("main", [operation], "wrong")
    assert found(raised.value.conflicts) == conflicts
    assert str(raised.value) == message
    assert head(place) == before


def test_a_missing_namespace_is_told_once_however_many_need_it(place: Repository) -> None:
    with pytest.raises(ReferenceConflict) as raised:
        place.commit("main", [put("x.t", "t"), put("x.u", "u"), put("y.t", "t")], "wrong")
    assert sorted(found(raised.value.conflicts)) == [
        ("NAMESPACE_ABSENT", "x"),
        ("NAMESPACE_ABSENT", "y"),
    ]


@pytest.mark.parametrize("namespace_first", [True, False])
def test_a_namespace_may_come_with_its_content(any_repo: Repository, namespace_first: bool) -> None:
    operations = [put("n", namespace("n")), put("n.t", "t")]
    any_repo.commit("main", operations if namespace_first else operations[::-1], "both")
    assert tables(any_repo) == {"n": "NAMESPACE", "n.t": "t"}


def test_a_table_that_comes_along_is_no_namespace(repo: Repository) -> None:
    with pytest.raises(ReferenceConflict, match="Namespace 'n' must exist"):
        repo.commit("main", [put("n", "table"), put("n.t", "t")], "both")


def test_a_namespace_may_go_with_all_that_is_in_it(place: Repository) -> None:
    place.commit("main", [delete("a.b"), delete("a.b.t")], "b")
    operations = [delete("a"), delete("a.t")]
    place.commit("main", operations, "a")
    assert tables(place) == {}


def test_a_namespace_may_not_go_when_something_deeper_stays(place: Repository) -> None:
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a' is not empty\.$"):
        place.commit("main", [delete("a"), delete("a.t"), delete("a.b.t")], "wrong")


def test_a_namespace_is_found_empty_whatever_its_neighbours_are_called(repo: Repository) -> None:
    names = ["n", "n!", "n-", "na"]
    operations: list[Operation] = [put(name, namespace(name)) for name in names]
    repo.commit("main", [*operations, put("na.t", "t"), put("n!.t", "t")], "neighbours")
    repo.commit("main", [delete("n")], "drop")
    assert "n" not in tables(repo)


def test_content_put_below_a_namespace_that_goes_is_not_noticed(repo: Repository) -> None:
    """The original accepts it too."""
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


def test_a_rename_needs_the_namespace_it_goes_to(place: Repository) -> None:
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'x' must exist\.$"):
        move(place, "main", "a.t", "x.t")
    move(place, "main", "a.t", "a.b.moved")
    assert tables(place)["a.b.moved"] == "at"


def test_a_namespace_that_went_meanwhile_is_missed_at_the_head(place: Repository) -> None:
    seen = head(place)
    place.commit("main", [delete("a.b"), delete("a.b.t")], "drop")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' must exist\.$"):
        place.commit("main", [put("a.b.new", "n")], "new", expected=seen)


def test_a_namespace_that_was_filled_meanwhile_does_not_go(repo: Repository) -> None:
    repo.commit("main", [put("n", namespace("n"))], "n")
    seen = head(repo)
    repo.commit("main", [put("n.t", "t")], "t")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'n' is not empty\.$"):
        repo.commit("main", [delete("n")], "drop", expected=seen)


def test_properties_come_and_go_under_one_id(repo: Repository) -> None:
    id = repo.commit("main", [put("n", namespace("n"))], "n").added[key("n")]
    repo.commit("main", [put("n", namespace("n", id, k="v"))], "properties")
    assert repo.contents.get("main", key("n")) == namespace("n", id, k="v")
    repo.commit("main", [put("n", namespace("n", id))], "none")
    assert repo.contents.get("main", key("n")) == namespace("n", id)


def test_a_namespace_may_disagree_with_its_key(repo: Repository) -> None:
    """The original allows it."""
    repo.commit("main", [put("n", namespace("something.else"))], "n")
    repo.commit("main", [put("n.t", "t")], "t")
    assert set(tables(repo)) == {"n", "n.t"}


# Merges and transplants


def test_a_merge_keeps_the_rules_of_the_target(place: Repository) -> None:
    place.references.create_branch("dev", "main")
    hash = place.commit("dev", [put("a.b.new", "new")], "new").hash
    place.commit("main", [delete("a.b"), delete("a.b.t")], "drop")
    before = head(place)
    ways: list[Callable[[], object]] = [
        lambda: place.merge("dev", "main"),
        lambda: place.merge("dev", "main", squash=False),
        lambda: place.transplant([hash], "main"),
        lambda: place.transplant([hash], "main", squash=True),
        lambda: place.merge("dev", "main", conflicts_as_result=True),
        lambda: place.merge("dev", "main", dry_run=True),
    ]
    for change in ways:
        with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' must exist\.$") as raised:
            change()
        assert found(raised.value.conflicts) == [("NAMESPACE_ABSENT", "a.b")]
    assert head(place) == before


def test_a_merge_does_not_take_a_namespace_from_below_its_content(place: Repository) -> None:
    place.references.create_branch("dev", "main")
    place.commit("dev", [delete("a.b"), delete("a.b.t")], "drop")
    place.commit("main", [put("a.b.new", "new")], "new")
    with pytest.raises(ReferenceConflict, match=r"^Namespace 'a.b' is not empty\.$"):
        place.merge("dev", "main")


# The switch


def test_without_validation_anything_may_be_anywhere() -> None:
    repo = Store(Settings(namespace_validation=False)).repo
    repo.commit("main", [put("x.y.t", "t")], "no parents")
    create(repo, "main", t="t")
    repo.commit("main", [put("t.u", "u")], "below a table")
    repo.commit("main", [put("n", namespace("n")), put("n.t", "t")], "n")
    repo.commit("main", [delete("n")], "not empty")
    assert set(tables(repo)) == {"x.y.t", "t", "t.u", "n.t"}


def test_without_validation_merges_do_not_ask_either() -> None:
    repo = Store(Settings(namespace_validation=False)).repo
    repo.commit("main", [put("n", namespace("n"))], "n")
    repo.references.create_branch("dev", "main")
    hash = repo.commit("dev", [put("n.t", "t")], "t").hash
    repo.commit("main", [delete("n")], "drop")
    repo.references.create_branch("other", "main")
    repo.merge("dev", "main")
    repo.transplant([hash], "other")
    assert tables(repo) == tables(repo, "other") == {"n.t": "t"}
