"""Pages of listings: where they begin, where they end, and what a token means beside bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.wire.json_client import JsonClient, JsonReply

ENTRIES = "/api/v2/trees/main/entries"
DIFF = "/api/v2/trees/empty/diff/main"
LISTINGS = pytest.mark.parametrize("path", [ENTRIES, DIFF])


@pytest.fixture
def filled(client: JsonClient) -> JsonClient:
    """`main` has a, b, c and d; `empty` has no commits."""
    nothing = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
    assert client.post("/api/v2/trees", nothing, name="empty", type="BRANCH").status == 200
    for name in "abcd":
        client.put("main", name)
    return client


def keys(reply: JsonReply) -> list[str]:
    assert reply.status == 200, reply
    listed = [(entry.get("name") or entry["key"]) for entry in reply.json.get("entries", ())]
    listed += [entry["key"] for entry in reply.json.get("diffs", ())]
    return [".".join(key["elements"]) for key in listed]


def token_of(key: str) -> str:
    return f"M\0{key}\0C".encode().hex()


@LISTINGS
def test_a_token_takes_the_place_of_the_first_key(filled: JsonClient, path: str) -> None:
    assert keys(filled.get(path, min_key="c")) == ["c", "d"]
    assert keys(filled.get(path, min_key="c", page_token=token_of("b"))) == ["b", "c", "d"]
    assert keys(filled.get(path, min_key="b", page_token=token_of("d"))) == ["d"]
    assert keys(filled.get(path, min_key="d", max_key="b", page_token=token_of("a"))) == ["a", "b"]


def test_a_token_takes_the_place_of_the_first_of_the_keys(filled: JsonClient) -> None:
    refused = filled.get(ENTRIES, min_key="d", key="b")
    assert (refused.status, refused.json["message"]) == (400, "'to' must be greater than 'from'")
    assert keys(filled.get(ENTRIES, min_key="d", key="b", page_token=token_of("a"))) == ["b"]


@LISTINGS
def test_a_page_continues_within_the_bounds_of_the_first_one(filled: JsonClient, path: str) -> None:
    query: dict[str, Any] = {"min_key": "b", "max_key": "c", "max_records": 1}
    first = filled.get(path, **query)
    second = filled.get(path, **query, page_token=first.json["token"])
    assert (keys(first), keys(second)) == (["b"], ["c"])
    assert not second.json["hasMore"]


@pytest.mark.parametrize("token", ["!!!", "abc", "YWJj", "00"])
def test_a_token_is_not_read_if_there_are_no_commits(filled: JsonClient, token: str) -> None:
    assert keys(filled.get("/api/v2/trees/empty/entries", page_token=token)) == []
    assert keys(filled.get("/api/v1/trees/tree/empty/entries", pageToken=token)) == []


@pytest.mark.parametrize("path", ["/api/v2/trees/empty/diff/empty", ENTRIES])
def test_an_invalid_token_is_refused(filled: JsonClient, path: str) -> None:
    reply = filled.get(path, page_token="abc")
    assert (reply.status, reply.json["message"]) == (400, "Invalid token string representation")


@pytest.mark.parametrize(
    ("token", "refused"),
    [
        ("abc", "Invalid token string representation"),
        ("YWJj", "Illegal hex character 'Y'"),
        ("", "Empty key elements are not allowed"),
    ],
)
def test_a_listing_of_references_reports_a_bad_token_before_a_bad_filter(
    client: JsonClient, token: str, refused: str
) -> None:
    for path, name in (("/api/v2/trees", "page-token"), ("/api/v1/trees", "pageToken")):
        query: dict[str, Any] = {"filter": "ref.nope", name: token}
        reply = client.get(path, **query)
        assert (reply.status, reply.json["message"]) == (400, refused)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_a_history_includes_its_limit(filled: JsonClient, size: int) -> None:
    path, seen = "/api/v2/trees/main/history", list[str]()
    whole = [entry["commitMeta"]["hash"] for entry in filled.get(path).json["logEntries"]]
    query: dict[str, Any] = {"limit_hash": whole[2], "max_records": size}
    page = filled.get(path, **query).json
    seen += [entry["commitMeta"]["hash"] for entry in page["logEntries"]]
    while page["hasMore"]:
        page = filled.get(path, **query, page_token=page["token"]).json
        seen += [entry["commitMeta"]["hash"] for entry in page["logEntries"]]
    assert (seen, page["token"]) == (whole[:3], None)


@pytest.mark.parametrize("ref", ["main", "-"])
def test_the_limit_of_a_history_may_have_steps(filled: JsonClient, ref: str) -> None:
    path = f"/api/v2/trees/{ref}/history"
    whole = [entry["commitMeta"]["hash"] for entry in filled.get(path).json["logEntries"]]
    page = filled.get(path, limit_hash=f"{whole[0]}~2").json
    assert [entry["commitMeta"]["hash"] for entry in page["logEntries"]] == whole[:3]


@LISTINGS
@pytest.mark.parametrize("bound", ["min_key", "max_key", "prefix_key"])
@pytest.mark.parametrize("empty", ["", "."])
def test_an_empty_key_bounds_nothing(filled: JsonClient, path: str, bound: str, empty: str) -> None:
    bounds: dict[str, Any] = {bound: empty}
    assert keys(filled.get(path, **bounds)) == ["a", "b", "c", "d"]
    assert keys(filled.get(path, key=empty)) == [], "but no content has an empty key"


@LISTINGS
def test_one_dot_at_the_end_of_a_key_is_ignored(filled: JsonClient, path: str) -> None:
    for text in ("c.", ".c."):
        assert keys(filled.get(path, min_key=text)) == ["c", "d"]
    for text in ("c..", ".c..", "..", "c..d"):
        assert filled.get(path, min_key=text).status == 404


@pytest.mark.parametrize("empty", ["", "."])
def test_all_namespaces_are_below_an_empty_name(client: JsonClient, empty: str) -> None:
    client.put("main", "n", content={"type": "NAMESPACE", "elements": ["n"]})
    reply = client.get("/api/v1/namespaces/main", name=empty)
    assert [found["elements"] for found in reply.json["namespaces"]] == [["n"]]
