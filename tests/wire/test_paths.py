"""Unusual paths: matrix parameters, names with slashes, OPTIONS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.wire.json_client import JsonClient

NOTHING = "2e1cfa82b035c26cbbbdae632cea070514eb8b773f616aaeaf668e2f0be8f10d"
EVERYTHING = "HEAD, DELETE, POST, GET, OPTIONS, PUT"


@pytest.fixture
def with_slashes(client: JsonClient) -> JsonClient:
    """The repository has a branch `a/b`."""
    nothing = {"type": "BRANCH", "name": "main", "hash": NOTHING}
    assert client.post("/api/v2/trees", nothing, name="a/b", type="BRANCH").status == 200
    return client


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
def test_matrix_parameters_are_ignored(client: JsonClient, path: str) -> None:
    assert client.get(path).status == 200


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
def test_an_escaped_slash_divides_a_path_with_matrix_parameters(
    with_slashes: JsonClient, path: str
) -> None:
    assert with_slashes.get(path.format("")).status == 200
    lost = with_slashes.get(path.format(";x=y"))
    assert (lost.status, lost.json) == (404, None)


def test_a_name_with_slashes_is_kept_whole_where_slashes_are_allowed(
    with_slashes: JsonClient,
) -> None:
    assert with_slashes.get("/api/v2/trees/a%2Fb@;x=y").json["reference"]["name"] == "a/b"
    assert with_slashes.get(f"/api/v2/trees/a%2Fb@{NOTHING}/entries;x=y").status == 200


@pytest.mark.parametrize("path", ["a/b@", f"a/b@{NOTHING}/entries", f"a/b@{NOTHING}/diff/a/b@"])
def test_a_name_with_slashes_ends_at_the_at_sign(with_slashes: JsonClient, path: str) -> None:
    assert with_slashes.get(f"/api/v2/trees/{path}").status == 200


@pytest.mark.parametrize("path", ["a/b", "a/b/entries", "@a/b@", "@a/b/diff/main@"])
def test_a_name_with_slashes_and_no_or_two_at_signs_is_not_found(
    with_slashes: JsonClient, path: str
) -> None:
    lost = with_slashes.get(f"/api/v2/trees/{path}")
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
    client: JsonClient, path: str, methods: str
) -> None:
    reply = client.send("OPTIONS", path)
    assert (reply.status, reply.headers["allow"]) == (200, methods)


@pytest.mark.parametrize(("path", "status"), [("/api/v2/x", 404), ("/x", 404), ("/%zz", 400)])
def test_an_unknown_noun_has_no_options(client: JsonClient, path: str, status: int) -> None:
    assert client.send("OPTIONS", path).status == status
