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
from tests.rules.operations import NO_ANCESTOR, UNKNOWN, create, head, key, put, tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag import Repository
    from tests.rules.operations import Store

Kind = Literal["BRANCH", "TAG"]


def make(repo: Repository, kind: Kind, name: str, at: str = "main") -> Reference:
    if kind == "TAG":
        return repo.references.create_tag(name, at)
    return repo.references.create_branch(name, at)


@pytest.fixture
def two_commits(repo: Repository) -> Repository:
    """A repository with two commits on `main`."""
    create(repo, "main", a="a")
    create(repo, "main", b="b")
    return repo


# Create


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize(
    "name", ["dev", "dir/sub/name", "a.b_c-d", "-", "int/refs", "refs/heads/x", "Main", "abcdefg"]
)
def test_a_created_reference_is_found(any_repo: Repository, kind: Kind, name: str) -> None:
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
def test_a_reference_may_start_at_any_commit(
    two_commits: Repository, at: str, commits: int
) -> None:
    two_commits.references.create_tag("v1", "main~1")
    spec = at.format(head=head(two_commits), upper=head(two_commits).upper())
    two_commits.references.create_branch("dev", spec)
    assert len(list(two_commits.history.log("dev"))) == commits


def test_a_branch_may_start_empty(two_commits: Repository) -> None:
    assert two_commits.references.create_branch("fresh", None).hash == NO_ANCESTOR


def test_a_hash_after_a_name_need_not_be_on_that_reference(two_commits: Repository) -> None:
    two_commits.references.create_branch("other", None)
    create(two_commits, "other", x="x")
    foreign = head(two_commits, "other")
    assert two_commits.references.create_branch("dev", f"main@{foreign}").hash == foreign


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
@pytest.mark.parametrize("name", ["main", "taken", "tagged"])
def test_a_name_can_be_used_once(store: Store, kind: Kind, name: str) -> None:
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
def test_a_reference_must_start_at_an_existing_commit(
    store: Store, kind: Kind, at: str, message: str
) -> None:
    before = store.everything()
    with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
        make(store.repo, kind, "dev", at)
    assert store.everything() == before


def test_a_reference_cannot_point_to_other_objects(store: Store) -> None:
    create(store.repo, "main", a="a")
    for row in store.rows().values():
        if row.kind not in "c":
            with pytest.raises(ReferenceNotFound, match="not found"):
                store.repo.references.create_branch("dev", f"@{row.id.hex()}")


# Tags


def test_a_tag_may_have_a_note(any_repo: Repository) -> None:
    note = TagNote("released", {"By": ("ann", "bob"), "ticket": ("1",)}, b"\x00signature\xff")
    any_repo.references.create_tag("v1", "main", note)
    any_repo.references.create_tag("v2", "main")
    any_repo.references.create_tag("v3", "main", TagNote())
    assert any_repo.references.note("v1") == note
    assert any_repo.references.note("v2") is None
    assert any_repo.references.note("v3") == TagNote()


def test_a_note_is_kept_when_its_tag_is_assigned(two_commits: Repository) -> None:
    two_commits.references.create_tag("v1", "main~1", TagNote("released"))
    two_commits.references.assign("v1", "main")
    assert two_commits.references.note("v1") == TagNote("released")
    assert head(two_commits, "v1") == head(two_commits)


def test_only_tags_have_notes(two_commits: Repository) -> None:
    with pytest.raises(ReferenceNotFound):
        two_commits.references.note("main")
    with pytest.raises(ReferenceNotFound):
        two_commits.references.note("nope")


def test_a_note_that_is_not_text_is_refused(store: Store) -> None:
    before = store.everything()
    for note in (TagNote("\ud800"), TagNote(headers={"a": ("\ud800",)})):
        with pytest.raises(BadRequest, match="Tag note must be valid Unicode"):
            store.repo.references.create_tag("v1", "main", note)
    assert store.everything() == before


def test_a_tag_is_read_like_a_branch(two_commits: Repository) -> None:
    two_commits.references.create_tag("v1", "main~1")
    assert tables(two_commits, "v1") == {"a": "a"}
    assert [str(change.key) for change in two_commits.contents.diff("v1", "main")] == ["b"]
    assert two_commits.history.merge_base("v1", "main") == head(two_commits, "v1")


# Assign


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
def test_a_reference_at_the_expected_commit_is_assigned(any_repo: Repository, kind: Kind) -> None:
    create(any_repo, "main", a="a")
    create(any_repo, "main", b="b")
    make(any_repo, kind, "r")
    now = head(any_repo, "r")
    moved = any_repo.references.assign("r", "main~1", now.upper())
    assert moved == any_repo.references.get("r")
    assert moved.type == kind
    assert tables(any_repo, "r") == {"a": "a"}
    assert any_repo.references.assign("r", f"@{NO_ANCESTOR}").hash == NO_ANCESTOR


def test_assigning_the_same_commit_changes_nothing(two_commits: Repository) -> None:
    assert two_commits.references.assign("main", "main", head(two_commits)).hash == head(
        two_commits
    )


@pytest.mark.parametrize("expected", ["stale", UNKNOWN, UNKNOWN[:12]])
@pytest.mark.parametrize("operation", ["assign", "delete"])
def test_a_reference_at_another_commit_than_expected_is_not_changed(
    store: Store, expected: str, operation: str
) -> None:
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


def test_the_default_branch_may_be_assigned(two_commits: Repository) -> None:
    two_commits.references.assign("main", "main~1")
    assert tables(two_commits) == {"a": "a"}


# Delete


@pytest.mark.parametrize("kind", ["BRANCH", "TAG"])
def test_a_deleted_reference_is_not_found_and_its_name_is_free(
    any_repo: Repository, kind: Kind
) -> None:
    create(any_repo, "main", a="a")
    created = make(any_repo, kind, "r")
    assert any_repo.references.delete("r", head(any_repo)) == created
    for _ in range(2):
        with pytest.raises(ReferenceNotFound, match=r"^Named reference 'r' not found$"):
            any_repo.references.delete("r")
    assert [ref.name for ref in any_repo.references.list()] == ["main"]
    make(any_repo, "TAG" if kind == "BRANCH" else "BRANCH", "r", "main~1")
    assert head(any_repo, "r") == NO_ANCESTOR


def test_the_commits_of_a_deleted_branch_stay(two_commits: Repository) -> None:
    two_commits.references.create_branch("dev", "main")
    create(two_commits, "dev", c="c")
    hash = two_commits.references.delete("dev").hash
    assert set(tables(two_commits, f"@{hash}")) == {"a", "b", "c"}


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


def test_a_listing_may_be_limited_to_one_kind(many: Repository) -> None:
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
def test_a_listing_may_be_limited_by_names(
    many: Repository, prefix: str, start: str | None, end: str | None, expected: list[str]
) -> None:
    found = many.references.list("BRANCH", prefix=prefix, start=start, end=end)
    assert [ref.name for ref in found] == expected


def test_bounds_need_a_kind(many: Repository) -> None:
    for bounds in ({"prefix": "b"}, {"start": "b"}, {"end": "b"}):
        with pytest.raises(BadRequest, match="BRANCH or TAG"):
            many.references.list(**bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1, 2, 3, 8, 100])
def test_pages_together_hold_everything(many: Repository, size: int) -> None:
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


def test_a_listing_continues_after_its_reference_was_dropped(many: Repository) -> None:
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
def test_users_cannot_see_internal_references(store: Store, name: str) -> None:
    repo = store.repo
    before = store.everything()
    reads: list[Callable[[], object]] = [
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
    for read in reads:
        with pytest.raises(ReferenceNotFound, match=f"^Named reference '{name}' not found$"):
            read()
    assert [ref.name for ref in repo.references.list()] == ["main"]
    assert store.everything() == before


@pytest.mark.parametrize("name", ["int/refs", "int/repo"])
def test_commits_on_internal_references_are_hidden_even_by_hash(store: Store, name: str) -> None:
    repo = store.repo
    hash = store.refs()[name].pointer.hex()
    before = store.everything()
    reads: list[Callable[[], object]] = [
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
    for read in reads:
        with pytest.raises(ReferenceNotFound):
            read()
    assert store.everything() == before


def test_a_branch_may_have_the_name_of_an_internal_reference(store: Store) -> None:
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
