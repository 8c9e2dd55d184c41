"""Morag's additions to Nessie's API: entity tags, If-Match, the ref-log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from morag import Settings
from tests.wire.json_client import TABLE, JsonClient, put

if TYPE_CHECKING:
    from morag import Repository


@pytest.mark.parametrize(
    "path",
    ["/api/v2/trees/main", "/api/v2/trees/-", "/api/v2/trees/main/contents/t",
     "/api/v2/trees/main/contents", "/api/v1/trees/tree", "/api/v1/trees/tree/main"],
)  # fmt: skip
def test_an_answer_about_a_reference_carries_its_hash(client: JsonClient, path: str) -> None:
    client.put("main", "t")
    assert client.get(path, key="t").headers["etag"] == f'"{client.head("main")}"'


def test_a_change_of_a_reference_answers_with_its_new_hash(client: JsonClient) -> None:
    reply = client.commit("main", put("t"))
    assert reply.headers["etag"] == f'"{reply.json["targetBranch"]["hash"]}"'


@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', "{}"])
def test_if_match_replaces_a_hash_that_the_path_leaves_out(client: JsonClient, tag: str) -> None:
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    headers = {"If-Match": tag.format(client.head("main"))}
    assert client.post("/api/v2/trees/main/history/commit", body, headers).status == 200


def test_a_hash_in_the_path_wins_over_if_match(client: JsonClient) -> None:
    path = f"/api/v2/trees/main@{client.head('main')}/history/commit"
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    assert client.post(path, body, {"If-Match": '"' + "ab" * 32 + '"'}).status == 200


def test_if_match_in_version_1(client: JsonClient) -> None:
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    headers = {"If-Match": f'"{client.head("main")}"'}
    assert client.post("/api/v1/trees/branch/main/commit", body, headers).status == 200


def test_deleting_a_reference_that_moved_is_a_conflict(client: JsonClient) -> None:
    seen = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
    tag = client.post("/api/v2/trees", seen, name="dev", type="BRANCH").headers["etag"]
    client.put("dev", "t")
    assert client.send("DELETE", "/api/v2/trees/dev", None, {"If-Match": tag}).status == 409
    tag = client.get("/api/v2/trees/dev").headers["etag"]
    assert client.send("DELETE", "/api/v2/trees/dev", None, {"If-Match": tag}).status == 200


@pytest.mark.parametrize("tag", ["nonsense", '"zz"', '""'])
def test_a_tag_that_is_no_hash_is_refused(client: JsonClient, tag: str) -> None:
    assert client.send("DELETE", "/api/v2/trees/main", None, {"If-Match": tag}).status == 400


def test_the_ref_log_is_read_page_by_page(client: JsonClient) -> None:
    for name in ("a", "b", "c"):
        client.put("main", name)
    moves, token = [], None
    while True:
        page = client.get("/morag/v1/reflog", max_records=2, page_token=token or "").json
        assert len(page["moves"]) <= 2
        moves += page["moves"]
        token = page["token"]
        assert page["hasMore"] == (token is not None)
        if token is None:
            break
    commits = [move for move in moves if move["operation"] == "COMMIT"]
    assert [move["reference"]["name"] for move in commits] == ["main"] * 3
    assert commits[0]["hashAfter"] == client.head("main")
    assert commits[0]["hashBefore"] == commits[1]["hashAfter"]


def test_a_page_of_the_ref_log_is_never_large(repository: Repository, client: JsonClient) -> None:
    client.put("main", "t")
    repository.references.create_branch("dev", "main")
    for _ in range(600):
        for target in ("main", "main~1"):
            repository.references.assign("dev", target)
    page = client.get("/morag/v1/reflog", max_records=2_000_000_000).json
    assert len(page["moves"]) == 1000
    rest = client.get("/morag/v1/reflog", max_records=2_000_000_000, page_token=page["token"]).json
    assert len(rest["moves"]) >= 200 and not rest["hasMore"]


def test_a_commit_is_split_into_ranges_of_keys() -> None:
    small = Settings(
        max_incremental_index_bytes=1024, min_index_segment_bytes=512, max_index_segment_bytes=2048
    )
    with morag.open("memory:", small) as repository:
        client = JsonClient(repository)
        reply = client.get("/morag/v1/trees/main/splits").json
        assert (reply["reference"]["name"], reply["keys"]) == ("main", [])
        client.commit("main", *[put(f"t{n:03}") for n in range(400)])
        reply = client.get("/morag/v1/trees/-/splits", parts=4).json
        head = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
        assert reply["reference"] == head
        keys = [key["elements"] for key in reply["keys"]]
        assert len(keys) == 3 and keys == sorted(keys) and keys[0] > ["t000"]
        before = client.get("/morag/v1/trees/main~1/splits").json
        assert before["keys"] == []


@pytest.mark.parametrize(("ref", "status"), [("nowhere", 404), ("main@zz", 400)])
def test_a_missing_reference_is_not_split(client: JsonClient, ref: str, status: int) -> None:
    assert client.get(f"/morag/v1/trees/{ref}/splits").status == status


def test_without_namespace_validation_no_spec_version_is_claimed() -> None:
    with morag.open("memory:", Settings(namespace_validation=False)) as repository:
        client = JsonClient(repository)
        assert client.get("/api/v2/config").json["specVersion"] is None
        client.put("main", "no", "namespace", content=TABLE)


def test_the_answer_to_a_bug_has_no_details(repository: Repository, client: JsonClient) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("password=secret")

    repository.references.get = broken  # type: ignore[method-assign, assignment]
    reply = client.get("/api/v2/trees/main")
    assert (reply.status, reply.json["errorCode"]) == (500, "UNKNOWN")
    assert "secret" not in str(reply.json)
