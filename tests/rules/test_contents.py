"""Reads of a commit: single contents, listings, differences, and their pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from morag import ContentKey, Settings
from morag.errors import BadRequest, ContentNotFound, ReferenceNotFound
from tests.rules.operations import (
    NO_ANCESTOR,
    UNKNOWN,
    Store,
    content_id,
    create,
    delete,
    head,
    key,
    namespace,
    put,
    table,
    update,
    view,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag import Repository
    from morag.model.operations import Operation
    from morag.versions.listing import Listing

NAMES = ["a", "a.b", "a.b.t", "a.t1", "a.t2", "a!", "b", "b.t", "c"]
"""The keys in order: a namespace comes right before its content."""
SOME = [key("c"), key("a.t1"), key("nope"), key("b.t"), key("a"), key("a.b")]


def fill(repo: Repository) -> None:
    operations = [
        put(name, namespace(name) if name in ("a", "a.b", "a!", "b") else f"at {name}")
        for name in reversed(NAMES)
    ]
    repo.commit("main", operations, "fill")


@pytest.fixture(params=[Settings(), Settings(max_incremental_index_bytes=1)], ids=["", "spilled"])
def filled(request: pytest.FixtureRequest) -> Repository:
    repo = Store(request.param).repo
    fill(repo)
    repo.commit("main", [put("zz", "zz")], "more")
    repo.commit("main", [delete("zz")], "less")
    return repo


# Single contents


def test_a_content_is_found_by_its_key(any_repo: Repository) -> None:
    fill(any_repo)
    id = content_id(any_repo, "main", "a.t1")
    assert any_repo.contents.get("main", key("a.t1")) == table("at a.t1", id)


@pytest.mark.parametrize("at", ["main", "v1", "main~1", f"@{NO_ANCESTOR}"])
def test_a_missing_content_is_not_found(filled: Repository, at: str) -> None:
    filled.references.create_tag("v1", "main")
    with pytest.raises(ContentNotFound) as raised:
        filled.contents.get(at, key("a.nope"))
    assert str(raised.value) == f"Could not find content for key 'a.nope' in reference '{at}'."


def test_a_key_with_a_dot_is_shown_like_any_other(filled: Repository) -> None:
    dotted = ContentKey.of("a.b", "c*")
    with pytest.raises(ContentNotFound, match=r"for key 'a\.b\.c\*'"):
        filled.contents.get("main", dotted)
    assert dotted.escaped == ".a*.b.c**"
    assert dotted.path == "a\x1db.c*"


def test_several_contents_are_returned_as_requested_without_missing_ones(
    filled: Repository,
) -> None:
    found = filled.contents.get_all("main", [key("c"), key("nope"), key("a"), key("c")])
    assert [str(k) for k in found] == ["c", "a"]
    assert filled.contents.get_all("main", []) == {}


def test_contents_are_read_as_of_any_commit(repo: Repository) -> None:
    create(repo, "main", t="1")
    first = head(repo)
    update(repo, "main", "t", "2")
    for spec, location in (("main", "2"), ("main~1", "1"), (f"@{first}", "1")):
        found = repo.contents.get(spec, key("t"))
        assert found == table(location, found.id)


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("nope", "Named reference 'nope' not found"),
        (f"main@{UNKNOWN}", f"Commit '{UNKNOWN}' not found"),
        (f"@{UNKNOWN[:8]}", f"Commit '{UNKNOWN[:8]}' not found"),
    ],
)
def test_reads_of_a_missing_commit_are_refused(repo: Repository, at: str, message: str) -> None:
    reads: list[Callable[[], object]] = [
        lambda: repo.contents.get(at, key("t")),
        lambda: repo.contents.get_all(at, [key("t")]),
        lambda: repo.contents.keys(at),
        lambda: repo.contents.entries(at),
        lambda: repo.contents.diff(at, "main"),
        lambda: repo.contents.diff("main", at),
        lambda: repo.history.log(at),
        lambda: repo.history.hashes(at),
        lambda: repo.history.merge_base("main", at),
    ]
    for read in reads:
        with pytest.raises(ReferenceNotFound, match=f"^{message}$"):
            read()


# Listings

BOUNDS: list[tuple[dict[str, ContentKey], list[str]]] = [
    ({}, NAMES),
    ({"min_key": key("a.t1")}, ["a.t1", "a.t2", "a!", "b", "b.t", "c"]),
    ({"min_key": key("a.t")}, ["a.t1", "a.t2", "a!", "b", "b.t", "c"]),
    ({"max_key": key("a.b")}, ["a", "a.b"]),
    ({"min_key": key("a.b"), "max_key": key("b")}, ["a.b", "a.b.t", "a.t1", "a.t2", "a!", "b"]),
    ({"min_key": key("c"), "max_key": key("a")}, []),
    ({"prefix": key("a")}, ["a", "a.b", "a.b.t", "a.t1", "a.t2"]),
    ({"prefix": key("a.b")}, ["a.b", "a.b.t"]),
    ({"prefix": key("a.t1")}, ["a.t1"]),
    ({"prefix": key("nope")}, []),
]


@pytest.mark.parametrize(("bounds", "expected"), BOUNDS, ids=str)
def test_bounds_are_inclusive_and_a_prefix_has_whole_elements(
    filled: Repository, bounds: dict[str, Any], expected: list[str]
) -> None:
    assert [str(k) for k in filled.contents.keys("main", **bounds)] == expected
    assert [str(e.key) for e in filled.contents.entries("main", **bounds)] == expected
    for with_content in (False, True):
        entries = list(filled.contents.entries("main", with_content=with_content, **bounds))
        assert all((e.content is not None) == with_content for e in entries)
    changes = filled.contents.diff(f"@{NO_ANCESTOR}", "main", **bounds)
    assert [str(change.key) for change in changes] == expected


def test_a_listing_may_be_limited_to_keys(filled: Repository) -> None:
    keys = [key("c"), key("nope"), key("a.b")]
    assert [str(e.key) for e in filled.contents.entries("main", keys=keys)] == ["a.b", "c"]
    changes = filled.contents.diff(f"@{NO_ANCESTOR}", "main", keys=keys)
    assert [str(change.key) for change in changes] == ["a.b", "c"]
    within = filled.contents.entries("main", keys=keys, prefix=key("a"))
    assert [str(e.key) for e in within] == ["a.b"]


class Unsearchable(list[ContentKey]):
    """A list without membership tests, which would be slow for many keys."""

    def __contains__(self, key: object) -> bool:
        raise AssertionError(f"{key} was searched for")


def test_a_listing_limited_to_many_keys_is_fast(filled: Repository) -> None:
    keys = Unsearchable([key("c"), key("b"), key("c"), *(key(f"no-{n}") for n in range(500))])
    assert [str(e.key) for e in filled.contents.entries("main", keys=keys)] == ["b", "c"]
    changes = filled.contents.diff(f"@{NO_ANCESTOR}", "main", keys=keys)
    assert [str(change.key) for change in changes] == ["b", "c"]


def test_a_prefix_cannot_be_combined_with_bounds(filled: Repository) -> None:
    message = r"^Combining prefixKey with either minKey or maxKey is not supported\.$"
    for bounds in ({"min_key": key("a")}, {"max_key": key("a")}):
        arguments: dict[str, Any] = {"prefix": key("a"), **bounds}
        for listing in (filled.contents.keys, filled.contents.entries):
            with pytest.raises(BadRequest, match=message):
                listing("main", **arguments)
        with pytest.raises(BadRequest, match=message):
            filled.contents.diff("main", "main", **arguments)


def test_an_entry_has_type_and_id(filled: Repository) -> None:
    entry = next(iter(filled.contents.entries("main", keys=[key("a.t1")])))
    assert (entry.type, entry.content) == ("ICEBERG_TABLE", None)
    assert entry.content_id == content_id(filled, "main", "a.t1")


def test_keys_sort_by_utf_16_units(any_repo: Repository) -> None:
    elements = ["\uff5e", "\U0001f600", "z", "é", "Z", "a"]
    any_repo.commit("main", [put(e, "t") for e in elements], "unicode")
    assert [k.name for k in any_repo.contents.keys("main")] == [
        "Z",
        "a",
        "z",
        "é",
        "\U0001f600",
        "\uff5e",
    ]


def test_an_empty_branch_holds_nothing(repo: Repository) -> None:
    assert list(repo.contents.entries("main")) == []
    assert list(repo.contents.keys("main")) == []
    assert list(repo.contents.diff("main", "main")) == []
    assert repo.contents.entries("main").page(10).token is None


# Differences


def test_a_difference_shows_both_sides(filled: Repository) -> None:
    before = head(filled)
    old = {name: filled.contents.get("main", key(name)) for name in ("c", "a.t1")}
    operations: list[Operation] = [
        put("c", "changed", old["c"].id),
        delete("a.t1"),
        put("new", view("v")),
    ]
    filled.commit("main", operations, "change")
    now = {name: filled.contents.get("main", key(name)) for name in ("c", "new")}
    differences = [
        (str(d.key), d.before, d.after) for d in filled.contents.diff(f"@{before}", "main")
    ]
    assert differences == [
        ("a.t1", old["a.t1"], None),
        ("c", old["c"], now["c"]),
        ("new", None, now["new"]),
    ]
    back = [(str(d.key), d.after, d.before) for d in filled.contents.diff("main", f"@{before}")]
    assert back == differences


def test_a_change_that_was_undone_is_not_a_difference(filled: Repository) -> None:
    before = head(filled)
    update(filled, "main", "c", "changed")
    update(filled, "main", "c", "at c")
    assert list(filled.contents.diff(f"@{before}", "main")) == []


# Pages


def listings(repo: Repository) -> dict[str, Callable[[str | None], Listing[Any]]]:
    return {
        "keys": lambda token: repo.contents.keys("main", token=token),
        "entries": lambda token: repo.contents.entries("main", token=token),
        "contents": lambda token: repo.contents.entries("main", with_content=True, token=token),
        "some": lambda token: repo.contents.entries("main", keys=SOME, token=token),
        "some differences": lambda token: repo.contents.diff(
            f"@{NO_ANCESTOR}", "main", keys=SOME, token=token
        ),
        "diff": lambda token: repo.contents.diff(f"@{NO_ANCESTOR}", "main", token=token),
        "prefix": lambda token: repo.contents.keys("main", prefix=key("a"), token=token),
        "range": lambda token: repo.contents.keys(
            "main", min_key=key("a.b"), max_key=key("b"), token=token
        ),
        "log": lambda token: repo.history.log("main", token=token),
        "hashes": lambda token: repo.history.hashes("main", token=token),
    }


@pytest.mark.parametrize(
    "name",
    ["keys", "entries", "contents", "some", "some differences", "diff", "prefix", "range"],
)
@pytest.mark.parametrize("size", [1, 2, 4, 9, 100])
def test_pages_together_hold_everything(filled: Repository, name: str, size: int) -> None:
    listing = listings(filled)[name]
    gathered: list[Any] = []
    token: str | None = None
    while True:
        page = listing(token).page(size)
        assert len(page.items) == size or page.token is None
        gathered += page.items
        token = page.token
        if token is None:
            break
    assert gathered == list(listing(None))


def test_a_token_of_a_deleted_key_continues_after_it(filled: Repository) -> None:
    token = filled.contents.keys("main").page(4).token
    before = filled.contents.keys("main").page(4).items[-1]
    assert str(before) == "a.t1"
    filled.commit("main", [delete("a.t2")], "drop what the token names")
    assert [str(k) for k in filled.contents.keys("main", token=token)] == ["a!", "b", "b.t", "c"]


NO_TOKEN = r"^Invalid token string representation$|^Illegal hex character '"


@pytest.mark.parametrize("token", ["!!!", "zz", "ü", "A", "_w", "====", "\n", "a b"])
@pytest.mark.parametrize(
    "name",
    ["keys", "entries", "contents", "some", "some differences", "diff", "prefix", "range"],
)
def test_an_invalid_token_is_refused(filled: Repository, name: str, token: str) -> None:
    with pytest.raises(BadRequest, match=NO_TOKEN):
        listings(filled)[name](token)
    with pytest.raises(BadRequest, match=NO_TOKEN):
        filled.references.list(token=token)


@pytest.mark.parametrize("name", ["log", "hashes"])
def test_a_token_of_a_history_is_a_hash(filled: Repository, name: str) -> None:
    listing = listings(filled)[name]
    for token in ("zz", "not a token", "!!!"):
        with pytest.raises(BadRequest, match="Hash must consist of"):
            listing(token)
    for token in (UNKNOWN, UNKNOWN[:16]):
        with pytest.raises(ReferenceNotFound, match=f"^Commit '{token}' not found$"):
            listing(token)
    assert list(listing(NO_ANCESTOR)) == []
    assert len(list(listing(head(filled).upper()))) == 3


@pytest.mark.parametrize("name", ["keys", "entries", "contents", "diff", "log", "hashes"])
@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_limit_must_be_positive(filled: Repository, name: str, limit: int) -> None:
    with pytest.raises(BadRequest, match="at least one item"):
        listings(filled)[name](None).page(limit)
