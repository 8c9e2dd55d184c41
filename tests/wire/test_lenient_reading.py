"""Malformed bodies that Nessie accepts or refuses, and how it reads them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.json_client import TABLE, JsonClient, put


def diverged(client: JsonClient) -> tuple[str, str]:
    """The heads of `source`, which has one more commit, and of `target`."""
    client.put("main", "base")
    source = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
    for name in ("source", "target"):
        client.post("/api/v2/trees", source, name=name, type="BRANCH")
    client.put("source", "t")
    return client.head("source"), client.head("target")


def send_merge(client: JsonClient, verb: str = "merge", **more: object) -> Any:
    source, target = diverged(client)
    what = {"fromHash": source} if verb == "merge" else {"hashesToTransplant": [source]}
    body = {"fromRefName": "source", **what, **more}
    reply = client.post(f"/api/v2/trees/target@{target}/history/{verb}", body)
    return reply.json if reply.status == 200 else (reply.status, reply.json["message"])


@pytest.mark.parametrize("field", ["snapshotId", "schemaId", "specId", "sortOrderId"])
@pytest.mark.parametrize(("sent", "stored"), [(None, 0), ("", 0), (" ", 0), ("7", 7), (7.9, 7)])
def test_a_blank_number_is_zero(client: JsonClient, field: str, sent: Any, stored: int) -> None:
    client.put("main", "t", content={**TABLE, field: sent})
    found = client.get("/api/v2/trees/main/contents/t").json["content"]
    assert found[field] == stored


@pytest.mark.parametrize("sent", ["x", "1.5", True, [], {}])
def test_a_text_without_a_number_is_refused(client: JsonClient, sent: Any) -> None:
    assert client.commit("main", put("t", content={**TABLE, "specId": sent})).status == 400


def test_a_missing_number_is_refused(client: JsonClient) -> None:
    without = {name: value for name, value in TABLE.items() if name != "specId"}
    assert client.commit("main", put("t", content=without)).status == 400


@pytest.mark.parametrize(
    ("sent", "dry"),
    [(-1, True), (2, True), (0, False), ("", False), (" ", False), (None, False), ("TRUE", True)],
)
def test_a_boolean_may_be_a_number_and_a_blank_one_is_false(
    client: JsonClient, sent: Any, dry: bool
) -> None:
    assert send_merge(client, isDryRun=sent)["wasApplied"] is not dry


@pytest.mark.parametrize(
    ("sent", "meant"),
    [(0, "NORMAL"), (1, "FORCE"), (2, "DROP"), ("1", "FORCE"), ("DROP ", "DROP")],
)
def test_a_merge_behavior_may_be_sent_as_its_number(
    client: JsonClient, sent: Any, meant: str
) -> None:
    details = send_merge(client, defaultKeyMergeMode=sent)["details"]
    assert {detail["mergeBehavior"] for detail in details} == {meant}


@pytest.mark.parametrize("sent", [3, -1, 1.0, True, "", "normal"])
def test_an_unknown_merge_behavior_is_refused(client: JsonClient, sent: Any) -> None:
    status, _ = send_merge(client, defaultKeyMergeMode=sent)
    assert status == 400


@pytest.mark.parametrize("key", [{}, {"elements": []}, {"elements": None}])
def test_a_merge_behavior_without_a_key_is_reported_as_unused(
    client: JsonClient, key: dict[str, object]
) -> None:
    mode = {"key": key, "mergeBehavior": "DROP"}
    status, message = send_merge(client, keyMergeModes=[mode])
    assert status == 400
    assert message.endswith("The following keys were not used: []")


def test_a_transplant_accepts_a_merge_behavior_without_a_key(client: JsonClient) -> None:
    mode = {"key": {}, "mergeBehavior": "DROP"}
    assert send_merge(client, "transplant", keyMergeModes=[mode])["wasApplied"]


@pytest.mark.parametrize("content", ["x", -1, {"type": -1}, {"type": "nope"}, []])
def test_v2_does_not_read_expected_content(client: JsonClient, content: Any) -> None:
    operation = {**put("t"), "expectedContent": content}
    assert client.commit("main", operation).status == 200


def test_v1_accepts_and_ignores_expected_content(client: JsonClient) -> None:
    path = "/api/v1/trees/branch/main/commit"
    for content, status in ((TABLE, 200), ("x", 400)):
        operation = {**put(f"t{status}"), "expectedContent": content}
        body = {"commitMeta": {"message": "m"}, "operations": [operation]}
        assert client.post(path, body, expectedHash=client.head("main")).status == status


@pytest.mark.parametrize("field", ["author", "signedOffBy"])
def test_an_unreadable_body_is_reported_before_a_missing_branch(
    client: JsonClient, field: str
) -> None:
    body = {"commitMeta": {"message": "m", field: ["a"]}, "operations": [put("t")]}
    assert client.post("/api/v2/trees/nope/history/commit", body).status == 400
