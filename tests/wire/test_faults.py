"""Faults of the original that are not copied: a clean 400 instead, and nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.wire.talk import TABLE, VIEW, Talk, Told, delete, put

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE: dict[str, object] = {"type": "NAMESPACE", "elements": ["t"]}


def refused(talk: Talk, ask: Callable[[], Told]) -> str:
    """The message of a clean refusal."""
    before = state(talk)
    told = ask()
    assert (told.status, told.json["errorCode"]) == (400, "BAD_REQUEST"), told
    assert told.json["message"]
    assert state(talk) == before
    return str(told.json["message"])


def state(talk: Talk) -> Any:
    references = talk.get("/api/v2/trees", fetch="ALL").json["references"]
    return references, [
        talk.get(f"/api/v2/trees/{reference['name']}/entries", content="true").json
        for reference in references
    ]


@pytest.mark.parametrize(
    "filter",
    [
        "'abc'",
        "1",
        "null",
        "entry.name",
        "1/0 == 1",
        "entry.keyElements[5] == 'x'",
        "type(entry.name) == nothing",
    ],
)
def test_a_filter_that_fails_or_is_no_condition(talk: Talk, filter: str) -> None:
    talk.put("main", "t")
    refused(talk, lambda: talk.get("/api/v2/trees/main/entries", filter=filter))


@pytest.mark.parametrize(
    "filter", ["commit.properties['job'] == 'j'", "commit.allProperties['job'] == ['j']"]
)
def test_a_property_that_a_commit_does_not_have(talk: Talk, filter: str) -> None:
    talk.put("main", "t")
    refused(talk, lambda: talk.get("/api/v2/trees/main/history", filter=filter))


def test_a_filter_of_references_that_is_no_condition(talk: Talk) -> None:
    refused(talk, lambda: talk.get("/api/v2/trees", filter="'abc'"))


def test_a_bare_at_sign(talk: Talk) -> None:
    refused(talk, lambda: talk.get("/api/v2/trees/@/history"))


@pytest.mark.parametrize("path", ["trees/tree/DETACHED/entries", "trees/tree/DETACHED/log"])
def test_detached_without_a_hash(talk: Talk, path: str) -> None:
    message = refused(talk, lambda: talk.get(f"/api/v1/{path}"))
    assert "must be provided" in message


def test_content_of_detached_without_a_hash(talk: Talk) -> None:
    refused(talk, lambda: talk.get("/api/v1/contents/t", ref="DETACHED"))


def test_a_detached_reference_cannot_be_created(talk: Talk) -> None:
    body = {"type": "DETACHED", "hash": talk.head("main")}
    refused(talk, lambda: talk.post("/api/v1/trees/tree", body, sourceRefName="main"))


def test_a_key_that_two_merge_modes_are_for(talk: Talk) -> None:
    talk.put("main", "base")
    start = talk.head("main")
    source = {"type": "BRANCH", "name": "main", "hash": start}
    talk.post("/api/v2/trees", source, name="dev", type="BRANCH")
    talk.put("dev", "a")
    modes = [
        {"key": {"elements": ["a"]}, "mergeBehavior": behavior} for behavior in ("DROP", "FORCE")
    ]
    body = {"fromRefName": "dev", "fromHash": talk.head("dev"), "keyMergeModes": modes}
    refused(talk, lambda: talk.post(f"/api/v2/trees/main@{start}/history/merge", body))


@pytest.mark.parametrize("verb", ["commit", "merge", "transplant"])
@pytest.mark.parametrize("body", [b"", b"null", b" \n"])
def test_a_change_without_a_body(talk: Talk, verb: str, body: bytes) -> None:
    path = f"/api/v2/trees/main@{talk.head('main')}/history/{verb}"
    refused(talk, lambda: talk.post(path, body))


def test_another_type_under_an_existing_id(talk: Talk) -> None:
    id = talk.put("main", "t")
    message = refused(talk, lambda: talk.commit("main", put("t", content={**VIEW, "id": id})))
    assert "ICEBERG_VIEW" in message


def test_a_rename_that_changes_the_type(talk: Talk) -> None:
    id = talk.put("main", "t")
    renamed = put("r", content={**VIEW, "id": id})
    refused(talk, lambda: talk.commit("main", delete("t"), renamed))


@pytest.mark.parametrize(
    ("was", "now"), [(TABLE, VIEW), (NAMESPACE, TABLE), (TABLE, NAMESPACE)], ids=str
)
def test_another_type_in_the_place_of_a_deleted_one(
    talk: Talk, was: dict[str, object], now: dict[str, object]
) -> None:
    talk.put("main", "t", content=was)
    message = refused(talk, lambda: talk.commit("main", delete("t"), put("t", content=now)))
    assert f"of type {was['type']}" in message
    assert talk.commit("main", delete("t")).status == 200
    talk.put("main", "t", content=now)


@pytest.mark.parametrize("verb", ["merge", "transplant"])
def test_a_rename_stays_a_rename(talk: Talk, verb: str) -> None:
    id = talk.put("main", "old")
    start = talk.head("main")
    source = {"type": "BRANCH", "name": "main", "hash": start}
    talk.post("/api/v2/trees", source, name="dev", type="BRANCH")
    assert talk.commit("dev", delete("old"), put("new", content={**TABLE, "id": id})).status == 200
    head = talk.head("dev")
    what = {"fromHash": head} if verb == "merge" else {"hashesToTransplant": [head]}
    path = f"/api/v2/trees/main@{start}/history/{verb}"
    assert talk.post(path, {"fromRefName": "dev", **what}).json["wasApplied"]
    entries = talk.get("/api/v2/trees/main/entries").json["entries"]
    assert [(e["name"]["elements"], e["contentId"]) for e in entries] == [(["new"], id)]
