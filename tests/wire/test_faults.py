"""Faults of Nessie that Morag does not copy: it answers 400 and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.wire.json_client import TABLE, VIEW, JsonClient, JsonReply, delete, put

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE: dict[str, object] = {"type": "NAMESPACE", "elements": ["t"]}


def refused(client: JsonClient, ask: Callable[[], JsonReply]) -> str:
    """The message of a clean refusal."""
    before = state(client)
    reply = ask()
    assert (reply.status, reply.json["errorCode"]) == (400, "BAD_REQUEST"), reply
    assert reply.json["message"]
    assert state(client) == before
    return str(reply.json["message"])


def state(client: JsonClient) -> Any:
    references = client.get("/api/v2/trees", fetch="ALL").json["references"]
    return references, [
        client.get(f"/api/v2/trees/{reference['name']}/entries", content="true").json
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
def test_a_filter_that_fails_or_returns_no_boolean(client: JsonClient, filter: str) -> None:
    client.put("main", "t")
    refused(client, lambda: client.get("/api/v2/trees/main/entries", filter=filter))


@pytest.mark.parametrize(
    "filter", ["commit.properties['job'] == 'j'", "commit.allProperties['job'] == ['j']"]
)
def test_a_property_that_a_commit_does_not_have(client: JsonClient, filter: str) -> None:
    client.put("main", "t")
    refused(client, lambda: client.get("/api/v2/trees/main/history", filter=filter))


def test_a_filter_of_references_that_returns_no_boolean(client: JsonClient) -> None:
    refused(client, lambda: client.get("/api/v2/trees", filter="'abc'"))


def test_a_bare_at_sign_names_no_commit(client: JsonClient) -> None:
    refused(client, lambda: client.get("/api/v2/trees/@/history"))


@pytest.mark.parametrize("path", ["trees/tree/DETACHED/entries", "trees/tree/DETACHED/log"])
def test_detached_without_a_hash(client: JsonClient, path: str) -> None:
    message = refused(client, lambda: client.get(f"/api/v1/{path}"))
    assert "must be provided" in message


def test_content_of_detached_without_a_hash(client: JsonClient) -> None:
    refused(client, lambda: client.get("/api/v1/contents/t", ref="DETACHED"))


def test_a_detached_reference_cannot_be_created(client: JsonClient) -> None:
    body = {"type": "DETACHED", "hash": client.head("main")}
    refused(client, lambda: client.post("/api/v1/trees/tree", body, sourceRefName="main"))


def test_two_merge_modes_for_one_key(client: JsonClient) -> None:
    client.put("main", "base")
    start = client.head("main")
    source = {"type": "BRANCH", "name": "main", "hash": start}
    client.post("/api/v2/trees", source, name="dev", type="BRANCH")
    client.put("dev", "a")
    modes = [
        {"key": {"elements": ["a"]}, "mergeBehavior": behavior} for behavior in ("DROP", "FORCE")
    ]
    body = {"fromRefName": "dev", "fromHash": client.head("dev"), "keyMergeModes": modes}
    refused(client, lambda: client.post(f"/api/v2/trees/main@{start}/history/merge", body))


@pytest.mark.parametrize("verb", ["commit", "merge", "transplant"])
@pytest.mark.parametrize("body", [b"", b"null", b" \n"])
def test_a_change_without_a_body(client: JsonClient, verb: str, body: bytes) -> None:
    path = f"/api/v2/trees/main@{client.head('main')}/history/{verb}"
    refused(client, lambda: client.post(path, body))


def test_another_type_under_an_existing_id(client: JsonClient) -> None:
    id = client.put("main", "t")
    message = refused(client, lambda: client.commit("main", put("t", content={**VIEW, "id": id})))
    assert "ICEBERG_VIEW" in message


def test_a_rename_that_changes_the_type(client: JsonClient) -> None:
    id = client.put("main", "t")
    renamed = put("r", content={**VIEW, "id": id})
    refused(client, lambda: client.commit("main", delete("t"), renamed))


@pytest.mark.parametrize(
    ("was", "now"), [(TABLE, VIEW), (NAMESPACE, TABLE), (TABLE, NAMESPACE)], ids=str
)
def test_another_type_under_the_key_of_a_deleted_one(
    client: JsonClient, was: dict[str, object], now: dict[str, object]
) -> None:
    client.put("main", "t", content=was)
    message = refused(client, lambda: client.commit("main", delete("t"), put("t", content=now)))
    assert f"of type {was['type']}" in message
    assert client.commit("main", delete("t")).status == 200
    client.put("main", "t", content=now)


@pytest.mark.parametrize("verb", ["merge", "transplant"])
def test_a_rename_stays_a_rename(client: JsonClient, verb: str) -> None:
    id = client.put("main", "old")
    start = client.head("main")
    source = {"type": "BRANCH", "name": "main", "hash": start}
    client.post("/api/v2/trees", source, name="dev", type="BRANCH")
    assert (
        client.commit("dev", delete("old"), put("new", content={**TABLE, "id": id})).status == 200
    )
    head = client.head("dev")
    what = {"fromHash": head} if verb == "merge" else {"hashesToTransplant": [head]}
    path = f"/api/v2/trees/main@{start}/history/{verb}"
    assert client.post(path, {"fromRefName": "dev", **what}).json["wasApplied"]
    entries = client.get("/api/v2/trees/main/entries").json["entries"]
    assert [(e["name"]["elements"], e["contentId"]) for e in entries] == [(["new"], id)]
