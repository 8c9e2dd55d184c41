"""Paths that clients hardly ever write: matrix parameters, names with slashes, OPTIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.wire.talk import Talk

NOTHING = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
EVERYTHING = "HEAD, DELETE, POST, GET, OPTIONS, PUT"


@pytest.fixture
def sliced(talk: Talk) -> Talk:
    """There is a branch `a/b`."""
    nothing = {"type": "BRANCH", "name": "main", "hash": NOTHING}
    assert talk.post("/api/v2/trees", nothing, name="a/b", type="BRANCH").status == 200
    return talk


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/trees;x=y",
        "/api/v2/trees/main;x=y",
        "/api/v2/trees/main;x=y/entries",
        "/api/v2/trees/main/history;x=y",
        "/api/v1/trees/tree;x/main",
        "/api/v1/diffs/main...main;x=y",
    ],
)
def test_matrix_parameters_are_not_looked_at(talk: Talk, path: str) -> None:
    assert talk.get(path).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/v2/trees/a%2Fb{}",
        "/api/v2/trees/a%2Fb/entries{}",
        "/api/v2/trees/a%2Fb{}/history",
        "/api/v1/trees/tree/a%2Fb/log{}",
        "/api/v1/namespaces/a%2Fb{}",
        "/api/v1/diffs/main...a%2Fb{}",
    ],
)
def test_beside_them_an_escaped_slash_divides_a_path(sliced: Talk, path: str) -> None:
    assert sliced.get(path.format("")).status == 200
    lost = sliced.get(path.format(";x=y"))
    assert (lost.status, lost.json) == (404, None)


def test_so_a_name_is_whole_only_where_it_may_have_slashes(sliced: Talk) -> None:
    assert sliced.get("/api/v2/trees/a%2Fb@;x=y").json["reference"]["name"] == "a/b"
    assert sliced.get(f"/api/v2/trees/a%2Fb@{NOTHING}/entries;x=y").status == 200


@pytest.mark.parametrize("path", ["a/b@", f"a/b@{NOTHING}/entries", f"a/b@{NOTHING}/diff/a/b@"])
def test_a_name_with_slashes_ends_at_the_sign_before_the_hash(sliced: Talk, path: str) -> None:
    assert sliced.get(f"/api/v2/trees/{path}").status == 200


@pytest.mark.parametrize("path", ["a/b", "a/b/entries", "@a/b@", "@a/b/diff/main@"])
def test_without_it_or_with_two_a_path_leads_nowhere(sliced: Talk, path: str) -> None:
    lost = sliced.get(f"/api/v2/trees/{path}")
    assert (lost.status, lost.json) == (404, None)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v2/trees", EVERYTHING),
        ("/api/v2/trees/a/b/c", EVERYTHING),
        ("/api/v2/trees/a/b@x/nope", EVERYTHING),
        ("/api/v2/trees/a%2Fb;x=y/entries/", EVERYTHING),
        ("/api/v1/trees/tree/a/b", EVERYTHING),
        ("/api/v1/contents/a/b", "HEAD, POST, GET, OPTIONS"),
        ("/api/v1/diffs/a/b", "HEAD, GET, OPTIONS"),
        ("/api/v2/config/nope", "HEAD, POST, GET, OPTIONS"),
        ("/openapi.json", "HEAD, GET, OPTIONS"),
    ],
)
def test_every_path_below_a_noun_has_the_options_of_the_noun(
    talk: Talk, path: str, methods: str
) -> None:
    told = talk.send("OPTIONS", path)
    assert (told.status, told.headers["allow"]) == (200, methods)


@pytest.mark.parametrize(("path", "status"), [("/api/v2/x", 404), ("/x", 404), ("/%zz", 400)])
def test_there_are_no_options_of_what_is_no_noun(talk: Talk, path: str, status: int) -> None:
    assert talk.send("OPTIONS", path).status == status
