"""Pages of listings: where they begin, where they end, and what a token means beside bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.wire.talk import Talk, Told

ENTRIES = "/api/v2/trees/main/entries"
DIFF = "/api/v2/trees/empty/diff/main"
LISTINGS = pytest.mark.parametrize("path", [ENTRIES, DIFF])


@pytest.fixture
def filled(talk: Talk) -> Talk:
    """`main` has a, b, c and d; `empty` has no commits."""
    nothing = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
    assert talk.post("/api/v2/trees", nothing, name="empty", type="BRANCH").status == 200
    for name in "abcd":
        talk.put("main", name)
    return talk


def keys(told: Told) -> list[str]:
    assert told.status == 200, told
    listed = [(entry.get("name") or entry["key"]) for entry in told.json.get("entries", ())]
    listed += [entry["key"] for entry in told.json.get("diffs", ())]
    return [".".join(key["elements"]) for key in listed]


def token_of(key: str) -> str:
    return f"M\0{key}\0C".encode().hex()


@LISTINGS
def test_a_token_takes_the_place_of_the_first_key(filled: Talk, path: str) -> None:
    assert keys(filled.get(path, min_key="c")) == ["c", "d"]
    assert keys(filled.get(path, min_key="c", page_token=token_of("b"))) == ["b", "c", "d"]
    assert keys(filled.get(path, min_key="b", page_token=token_of("d"))) == ["d"]
    assert keys(filled.get(path, min_key="d", max_key="b", page_token=token_of("a"))) == ["a", "b"]


def test_a_token_takes_the_place_of_the_first_of_the_keys(filled: Talk) -> None:
    refused = filled.get(ENTRIES, min_key="d", key="b")
    assert (refused.status, refused.json["message"]) == (400, "'to' must be greater than 'from'")
    assert keys(filled.get(ENTRIES, min_key="d", key="b", page_token=token_of("a"))) == ["b"]


@LISTINGS
def test_a_page_goes_on_within_the_bounds_that_the_first_one_had(filled: Talk, path: str) -> None:
    asked: dict[str, Any] = {"min_key": "b", "max_key": "c", "max_records": 1}
    first = filled.get(path, **asked)
    second = filled.get(path, **asked, page_token=first.json["token"])
    assert (keys(first), keys(second)) == (["b"], ["c"])
    assert not second.json["hasMore"]


@pytest.mark.parametrize("token", ["!!!", "abc", "YWJj", "00"])
def test_where_there_are_no_commits_a_token_is_not_read(filled: Talk, token: str) -> None:
    assert keys(filled.get("/api/v2/trees/empty/entries", page_token=token)) == []
    assert keys(filled.get("/api/v1/trees/tree/empty/entries", pageToken=token)) == []


@pytest.mark.parametrize("path", ["/api/v2/trees/empty/diff/empty", ENTRIES])
def test_elsewhere_it_must_be_one(filled: Talk, path: str) -> None:
    told = filled.get(path, page_token="abc")
    assert (told.status, told.json["message"]) == (400, "Invalid token string representation")


@pytest.mark.parametrize(
    ("token", "refused"),
    [
        ("abc", "Invalid token string representation"),
        ("YWJj", "Illegal hex character 'Y'"),
        ("", "Empty key elements are not allowed"),
    ],
)
def test_references_tell_of_a_bad_token_and_then_of_a_bad_filter(
    talk: Talk, token: str, refused: str
) -> None:
    for path, name in (("/api/v2/trees", "page-token"), ("/api/v1/trees", "pageToken")):
        query: dict[str, Any] = {"filter": "ref.nope", name: token}
        told = talk.get(path, **query)
        assert (told.status, told.json["message"]) == (400, refused)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_limit_of_a_history_is_on_one_of_its_pages(filled: Talk, size: int) -> None:
    path, seen = "/api/v2/trees/main/history", list[str]()
    whole = [entry["commitMeta"]["hash"] for entry in filled.get(path).json["logEntries"]]
    asked: dict[str, Any] = {"limit_hash": whole[2], "max_records": size}
    page = filled.get(path, **asked).json
    seen += [entry["commitMeta"]["hash"] for entry in page["logEntries"]]
    while page["hasMore"]:
        page = filled.get(path, **asked, page_token=page["token"]).json
        seen += [entry["commitMeta"]["hash"] for entry in page["logEntries"]]
    assert (seen, page["token"]) == (whole[:3], None)


@LISTINGS
@pytest.mark.parametrize("bound", ["min_key", "max_key", "prefix_key"])
@pytest.mark.parametrize("empty", ["", "."])
def test_an_empty_key_bounds_nothing(filled: Talk, path: str, bound: str, empty: str) -> None:
    bounds: dict[str, Any] = {bound: empty}
    assert keys(filled.get(path, **bounds)) == ["a", "b", "c", "d"]
    assert keys(filled.get(path, key=empty)) == [], "although it is never found"


@LISTINGS
def test_one_dot_at_the_end_of_a_key_does_not_count(filled: Talk, path: str) -> None:
    for text in ("c.", ".c."):
        assert keys(filled.get(path, min_key=text)) == ["c", "d"]
    for text in ("c..", ".c..", "..", "c..d"):
        assert filled.get(path, min_key=text).status == 404


@pytest.mark.parametrize("empty", ["", "."])
def test_all_namespaces_are_below_an_empty_name(talk: Talk, empty: str) -> None:
    talk.put("main", "n", content={"type": "NAMESPACE", "elements": ["n"]})
    told = talk.get("/api/v1/namespaces/main", name=empty)
    assert [found["elements"] for found in told.json["namespaces"]] == [["n"]]
