"""Branches and tags: create, find, list, assign and delete them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from morag import TagNote
from morag.errors import (
    BadRequest,
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
)
from morag.model.conflicts import ConflictType
from morag.model.references import Reference
from tests.rules.scenes import NO_ANCESTOR, UNKNOWN, create, head, key, put, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag import Repository
    from tests.rules.scenes import Store

Kind = Literal["BRANCH", "TAG"]


def make(repo: Repository, kind: Kind, name: str, at: str = "main") -> Reference:
    if kind == "TAG":
        return repo.references.create_tag(name, at)
    return repo.references.create_branch(name, at)


@pytest.fixture
def place(repo: Repository) -> Repository:
    """`main` with two commits."""
    create(repo, "main", a="a")
    create(repo, "main", b="b")
    return repo


# Create


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize(
    "name", ["dev", "dir/sub/name", "a.b_c-d", "-", "int/refs", "refs/heads/x", "Main", "abcdefg"]
)
def test_a_reference_is_where_it_was_put(any_repo: Repository, kind: Kind, name: str) -> None:
    create(any_repo, "main", a="a")
    created = make(any_repo, kind, name)
    assert created == Reference(kind, name, head(any_repo))
    assert any_repo.references.get(name) == created
    assert created in list(any_repo.references.list())


@pytest.mark.parametrize(
    ("at", "commits"),
    [
        ("main", 2),
        ("main~1", 1),
        ("main~2", 0),
        ("main~9", 0),
        ("v1", 1),
        ("@{head}", 2),
        ("main@{head}~1", 1),
        (f"@{NO_ANCESTOR}", 0),
        ("main@{upper}", 2),
    ],
)
def test_a_reference_may_start_anywhere_in_history(
    place: Repository, at: str, commits: int
) -> None:
    place.references.create_tag("v1", "main~1")
    spec = at.format(head=head(place), upper=head(place).upper())
    place.references.create_branch("dev", spec)
    assert len(list(place.history.log("dev"))) == commits


def test_a_branch_may_start_from_nothing(place: Repository) -> None:
    assert place.references.create_branch("fresh", None).hash == NO_ANCESTOR


def test_a_hash_beside_a_name_need_not_be_on_it(place: Repository) -> None:
    place.references.create_branch("other", None)
    create(place, "other", x="x")
    foreign = head(place, "other")
    assert place.references.create_branch("dev", f"main@{foreign}").hash == foreign


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize("name", ["main", "taken", "tagged"])
def test_a_name_stands_for_one_reference(store: Store, kind: Kind, name: str) -> None:
    store.repo.references.create_branch("taken", "main")
    store.repo.references.create_tag("tagged", "main")
    before = store.everything()
    with pytest.raises(
        ReferenceAlreadyExists, match=rf"^Named reference '{name}' already exists\.$"
    ):
        make(store.repo, kind, name)
    assert store.everything() == before


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("nope", "Named reference 'nope' not found"),
        (f"nope@{NO_ANCESTOR}", "Named reference 'nope' not found"),
        (f"main@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        (f"@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        (f"main@{UNKNOWN[:10]}", f"Commit '{UNKNOWN[:10]}' not found"),
    ],
)
def test_a_reference_starts_at_a_commit_that_exists(
    store: Store, kind: Kind, at: str, message: str
) -> None:
    before = store.everything()
    with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
        make(store.repo, kind, "dev", at)
    assert store.everything() == before


def test_a_reference_points_to_commits_only(store: Store) -> None:
    create(store.repo, "main", a="a")
    for row in store.rows().values():
        if row.kind not in "c":
            with pytest.raises(ReferenceNotFound, match="not found"):
                store.repo.references.create_branch("dev", f"@{row.id.hex()}")


# Tags


def test_a_tag_carries_a_note(any_repo: Repository) -> None:
    note = TagNote("released", {"By": ("ann", "bob"), "ticket": ("1",)}, b"\x00signature\xff")
    any_repo.references.create_tag("v1", "main", note)
    any_repo.references.create_tag("v2", "main")
    any_repo.references.create_tag("v3", "main", TagNote())
    assert any_repo.references.note("v1") == note
    assert any_repo.references.note("v2") is None
    assert any_repo.references.note("v3") == TagNote()


def test_a_note_stays_when_its_tag_moves(place: Repository) -> None:
    place.references.create_tag("v1", "main~1", TagNote("released"))
    place.references.assign("v1", "main")
    assert place.references.note("v1") == TagNote("released")
    assert head(place, "v1") == head(place)


def test_only_tags_have_notes(place: Repository) -> None:
    with pytest.raises(ReferenceNotFound):
        place.references.note("main")
    with pytest.raises(ReferenceNotFound):
        place.references.note("nope")


def test_a_note_that_is_no_text_is_refused(store: Store) -> None:
    before = store.everything()
    for note in (TagNote("\ud800"), TagNote(headers={"a": ("\ud800",)})):
        with pytest.raises(BadRequest, match="Tag note must be valid Unicode"):
            store.repo.references.create_tag("v1", "main", note)
    assert store.everything() == before


def test_a_tag_is_read_like_a_branch(place: Repository) -> None:
    place.references.create_tag("v1", "main~1")
    assert tables(place, "v1") == {"a": "a"}
    assert [str(change.key) for change in place.contents.diff("v1", "main")] == ["b"]
    assert place.history.merge_base("v1", "main") == head(place, "v1")


# Assign


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
def test_a_reference_is_assigned_from_where_it_is_expected(
    any_repo: Repository, kind: Kind
) -> None:
    create(any_repo, "main", a="a")
    create(any_repo, "main", b="b")
    make(any_repo, kind, "r")
    now = head(any_repo, "r")
    moved = any_repo.references.assign("r", "main~1", now.upper())
    assert moved == any_repo.references.get("r")
    assert moved.type == kind
    assert tables(any_repo, "r") == {"a": "a"}
    assert any_repo.references.assign("r", f"@{NO_ANCESTOR}").hash == NO_ANCESTOR


def test_assigning_to_where_it_is_changes_nothing(place: Repository) -> None:
    assert place.references.assign("main", "main", head(place)).hash == head(place)


@pytest.mark.parametrize("expected", ["stale", UNKNOWN, UNKNOWN[:12]])
@pytest.mark.parametrize("operation", ["assign", "delete"])
def test_a_reference_elsewhere_is_left_alone(store: Store, expected: str, operation: str) -> None:
    repo = store.repo
    create(repo, "main", a="a")
    repo.references.create_branch("dev", "main")
    create(repo, "dev", b="b")
    wanted = head(repo) if expected == "stale" else expected
    before, now = store.everything(), head(repo, "dev")
    with pytest.raises(ReferenceConflict) as raised:
        if operation == "assign":
            repo.references.assign("dev", "main", wanted)
        else:
            repo.references.delete("dev", wanted)
    text = f"amed-reference 'dev' is not at expected hash '{wanted}', but at '{now}'"
    assert str(raised.value) == f"N{text}."
    (conflict,) = raised.value.conflicts
    assert conflict.conflict_type is ConflictType.UNEXPECTED_HASH
    assert (conflict.key, conflict.message) == (None, f"n{text}")
    assert store.everything() == before


@pytest.mark.parametrize(
    ("name", "to", "message"),
    [
        ("nope", "main", "Named reference 'nope' not found"),
        ("main", "nope", "Named reference 'nope' not found"),
        ("main", f"@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        ("HEAD", "main", "Named reference 'HEAD' not found"),
    ],
)
def test_both_ends_of_an_assignment_must_exist(
    store: Store, name: str, to: str, message: str
) -> None:
    before = store.everything()
    with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
        store.repo.references.assign(name, to)
    assert store.everything() == before


def test_the_default_branch_may_be_assigned(place: Repository) -> None:
    place.references.assign("main", "main~1")
    assert tables(place) == {"a": "a"}


# Delete


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
def test_a_deleted_reference_is_gone_and_its_name_free(any_repo: Repository, kind: Kind) -> None:
    create(any_repo, "main", a="a")
    created = make(any_repo, kind, "r")
    assert any_repo.references.delete("r", head(any_repo)) == created
    for _ in range(2):
        with pytest.raises(ReferenceNotFound, match=r"^Named reference 'r' not found$"):
            any_repo.references.delete("r")
    assert [ref.name for ref in any_repo.references.list()] == ["main"]
    make(any_repo, "TAG" if kind == "BRANCH" else "BRANCH", "r", "main~1")
    assert head(any_repo, "r") == NO_ANCESTOR


def test_the_commits_of_a_deleted_branch_stay(place: Repository) -> None:
    place.references.create_branch("dev", "main")
    create(place, "dev", c="c")
    hash = place.references.delete("dev").hash
    assert set(tables(place, f"@{hash}")) == {"a", "b", "c"}


def test_the_default_branch_cannot_be_deleted(store: Store) -> None:
    before = store.everything()
    for expected in (None, NO_ANCESTOR):
        with pytest.raises(BadRequest, match=r"^Default branch 'main' cannot be deleted\.$"):
            store.repo.references.delete("main", expected)
    assert store.everything() == before


# List


@pytest.fixture
def many(repo: Repository) -> Repository:
    for name in ("b/2", "b/1", "c", "a"):
        repo.references.create_branch(name, "main")
    for name in ("z", "t1", "B"):
        repo.references.create_tag(name, "main")
    return repo


def test_branches_come_before_tags_each_by_name(many: Repository) -> None:
    listed = [(ref.type, ref.name) for ref in many.references.list()]
    assert listed == [
        *(("BRANCH", name) for name in ("a", "b/1", "b/2", "c", "main")),
        *(("TAG", name) for name in ("B", "t1", "z")),
    ]


def test_one_kind_may_be_listed(many: Repository) -> None:
    assert [ref.name for ref in many.references.list("TAG")] == ["B", "t1", "z"]


@pytest.mark.parametrize(
    ("prefix", "start", "end", "expected"),
    [
        ("b", None, None, ["b/1", "b/2"]),
        ("b/2", None, None, ["b/2"]),
        ("x", None, None, []),
        ("", "b/2", None, ["b/2", "c", "main"]),
        ("", "b", "c", ["b/1", "b/2", "c"]),
        ("", None, "a", ["a"]),
        ("", "z", "a", []),
        ("b", "b/2", "zzz", ["b/2"]),
    ],
)
def test_names_bound_a_listing_from_both_ends(
    many: Repository, prefix: str, start: str | None, end: str | None, expected: list[str]
) -> None:
    found = many.references.list("BRANCH", prefix=prefix, start=start, end=end)
    assert [ref.name for ref in found] == expected


def test_bounds_need_a_kind(many: Repository) -> None:
    for bounds in ({"prefix": "b"}, {"start": "b"}, {"end": "b"}):
        with pytest.raises(BadRequest, match="BRANCH or TAG"):
            many.references.list(**bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100])
def test_pages_make_the_whole(many: Repository, size: int) -> None:
    names: list[str | None] = []
    token = None
    while True:
        page = many.references.list(token=token).page(size)
        assert len(page.items) <= size
        names += [ref.name for ref in page.items]
        token = page.token
        if token is None:
            break
    assert names == [ref.name for ref in many.references.list()]


def test_a_page_goes_on_after_its_reference_is_gone(many: Repository) -> None:
    page = many.references.list().page(1)
    many.references.delete("b/1")
    assert [ref.name for ref in many.references.list(token=page.token).page(2).items] == [
        "b/2",
        "c",
    ]


def test_pages_within_bounds_stay_within_them(many: Repository) -> None:
    page = many.references.list("BRANCH", start="b", end="c").page(2)
    rest = many.references.list("BRANCH", start="b", end="c", token=page.token)
    assert [ref.name for ref in rest] == ["c"]


def test_many_references_are_listed_in_order(repo: Repository) -> None:
    names = sorted(f"b{number}" for number in range(250))
    for name in names:
        repo.references.create_branch(name, "main")
    assert [ref.name for ref in repo.references.list("BRANCH", prefix="b")] == names


# Internal references


@pytest.mark.parametrize("name", ["int/refs", "int/repo"])
def test_internal_references_are_not_there_for_users(store: Store, name: str) -> None:
    repo = store.repo
    before = store.everything()
    looks: list[Callable[[], object]] = [
        lambda: repo.references.get(name),
        lambda: repo.references.assign(name, "main"),
        lambda: repo.references.delete(name),
        lambda: repo.references.metadata(name),
        lambda: repo.references.history(name),
        lambda: repo.references.create_branch("dev", name),
        lambda: list(repo.history.log(name)),
        lambda: list(repo.contents.entries(name)),
        lambda: repo.commit(name, [put("t", "t")], "t"),
        lambda: repo.merge(name, "main"),
    ]
    for look in looks:
        with pytest.raises(ReferenceNotFound, match=f"^Named reference '{name}' not found$"):
            look()
    assert [ref.name for ref in repo.references.list()] == ["main"]
    assert store.everything() == before


@pytest.mark.parametrize("name", ["int/refs", "int/repo"])
def test_commits_on_internal_references_are_hidden_even_by_hash(store: Store, name: str) -> None:
    repo = store.repo
    hash = store.refs()[name].pointer.hex()
    before = store.everything()
    looks: list[Callable[[], object]] = [
        lambda: list(repo.history.log(f"@{hash}")),
        lambda: list(repo.history.log("main", token=hash)),
        lambda: list(repo.contents.entries(f"main@{hash}")),
        lambda: repo.history.check(f"@{hash}"),
        lambda: repo.references.create_branch("dev", f"@{hash}"),
        lambda: repo.references.assign("main", f"@{hash}"),
        lambda: repo.merge(f"@{hash}", "main"),
        lambda: repo.transplant([hash], "main"),
        lambda: repo.commit("main", [put("t", "t")], "t", expected=hash),
    ]
    for look in looks:
        with pytest.raises(ReferenceNotFound):
            look()
    assert store.everything() == before


def test_a_branch_may_be_called_like_an_internal_reference(store: Store) -> None:
    repo = store.repo
    internal = store.refs()["int/refs"]
    repo.references.create_branch("int/refs", "main")
    repo.commit("int/refs", [put("t", "t")], "t")
    assert tables(repo, "int/refs") == {"t": "t"}
    assert repo.contents.get_all("main", [key("t")]) == {}
    repo.references.delete("int/refs")
    now = store.refs()["int/refs"]
    assert now.created_micros == internal.created_micros
    assert [ref.name for ref in repo.references.list()] == ["main"]
    assert tables(repo) == {}
