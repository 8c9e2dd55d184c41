"""What we add to the original's API: entity tags, If-Match, the ref-log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import morag
from morag import Settings
from tests.wire.talk import TABLE, Talk, put

if TYPE_CHECKING:
    from morag import Repository


@pytest.mark.parametrize(
    "path",
    ["/api/v2/trees/main", "/api/v2/trees/-", "/api/v2/trees/main/contents/t",
     "/api/v2/trees/main/contents", "/api/v1/trees/tree", "/api/v1/trees/tree/main"],
)  # fmt: skip
def test_an_answer_about_a_reference_carries_its_hash(talk: Talk, path: str) -> None:
    talk.put("main", "t")
    assert talk.get(path, key="t").headers["etag"] == f'"{talk.head("main")}"'


def test_what_changes_a_reference_answers_with_its_new_hash(talk: Talk) -> None:
    told = talk.commit("main", put("t"))
    assert told.headers["etag"] == f'"{told.json["targetBranch"]["hash"]}"'


@pytest.mark.parametrize("tag", ['"{}"', 'W/"{}"', "{}"])
def test_if_match_stands_in_for_a_hash_that_the_path_leaves_out(talk: Talk, tag: str) -> None:
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    headers = {"If-Match": tag.format(talk.head("main"))}
    assert talk.post("/api/v2/trees/main/history/commit", body, headers).status == 200


def test_the_hash_in_the_path_stays_the_main_way(talk: Talk) -> None:
    path = f"/api/v2/trees/main@{talk.head('main')}/history/commit"
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    assert talk.post(path, body, {"If-Match": '"' + "ab" * 32 + '"'}).status == 200


def test_if_match_in_version_1(talk: Talk) -> None:
    body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
    headers = {"If-Match": f'"{talk.head("main")}"'}
    assert talk.post("/api/v1/trees/branch/main/commit", body, headers).status == 200


def test_deleting_what_moved_since_it_was_seen_is_a_conflict(talk: Talk) -> None:
    seen = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
    tag = talk.post("/api/v2/trees", seen, name="dev", type="BRANCH").headers["etag"]
    talk.put("dev", "t")
    assert talk.send("DELETE", "/api/v2/trees/dev", None, {"If-Match": tag}).status == 409
    tag = talk.get("/api/v2/trees/dev").headers["etag"]
    assert talk.send("DELETE", "/api/v2/trees/dev", None, {"If-Match": tag}).status == 200


@pytest.mark.parametrize("tag", ["nonsense", '"zz"', '""'])
def test_a_tag_that_is_no_hash_is_refused(talk: Talk, tag: str) -> None:
    assert talk.send("DELETE", "/api/v2/trees/main", None, {"If-Match": tag}).status == 400


def test_the_ref_log_is_read_page_by_page(talk: Talk) -> None:
    for name in ("a", "b", "c"):
        talk.put("main", name)
    moves, token = [], None
    while True:
        page = talk.get("/morag/v1/reflog", max_records=2, page_token=token or "").json
        assert len(page["moves"]) <= 2
        moves += page["moves"]
        token = page["token"]
        assert page["hasMore"] == (token is not None)
        if token is None:
            break
    commits = [move for move in moves if move["operation"] == "COMMIT"]
    assert [move["reference"]["name"] for move in commits] == ["main"] * 3
    assert commits[0]["hashAfter"] == talk.head("main")
    assert commits[0]["hashBefore"] == commits[1]["hashAfter"]


def test_a_page_of_the_ref_log_is_never_large(repository: Repository, talk: Talk) -> None:
    talk.put("main", "t")
    repository.references.create_branch("dev", "main")
    for _ in range(600):
        for target in ("main", "main~1"):
            repository.references.assign("dev", target)
    page = talk.get("/morag/v1/reflog", max_records=2_000_000_000).json
    assert len(page["moves"]) == 1000
    rest = talk.get("/morag/v1/reflog", max_records=2_000_000_000, page_token=page["token"]).json
    assert len(rest["moves"]) >= 200 and not rest["hasMore"]


def test_a_commit_is_split_into_ranges_of_keys() -> None:
    small = Settings(
        max_incremental_index_bytes=1024, min_index_segment_bytes=512, max_index_segment_bytes=2048
    )
    with morag.open("memory:", small) as repository:
        talk = Talk(repository)
        told = talk.get("/morag/v1/trees/main/splits").json
        assert (told["reference"]["name"], told["keys"]) == ("main", [])
        talk.commit("main", *[put(f"t{n:03}") for n in range(400)])
        told = talk.get("/morag/v1/trees/-/splits", parts=4).json
        head = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
        assert told["reference"] == head
        keys = [key["elements"] for key in told["keys"]]
        assert len(keys) == 3 and keys == sorted(keys) and keys[0] > ["t000"]
        before = talk.get("/morag/v1/trees/main~1/splits").json
        assert before["keys"] == []


@pytest.mark.parametrize(("ref", "status"), [("nowhere", 404), ("main@zz", 400)])
def test_what_is_not_there_is_not_split(talk: Talk, ref: str, status: int) -> None:
    assert talk.get(f"/morag/v1/trees/{ref}/splits").status == status


def test_without_namespace_validation_no_spec_version_is_claimed() -> None:
    with morag.open("memory:", Settings(namespace_validation=False)) as repository:
        talk = Talk(repository)
        assert talk.get("/api/v2/config").json["specVersion"] is None
        talk.put("main", "no", "namespace", content=TABLE)


def test_a_bug_says_nothing_of_itself(repository: Repository, talk: Talk) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("password=secret")

    repository.references.get = broken  # type: ignore[method-assign, assignment]
    told = talk.get("/api/v2/trees/main")
    assert (told.status, told.json["errorCode"]) == (500, "UNKNOWN")
    assert "secret" not in str(told.json)
