"""Bodies that are not quite right, and what is made of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.talk import TABLE, Talk, put


def parted(talk: Talk) -> tuple[str, str]:
    """The heads of `source`, which has a commit of its own, and of `target`, where it started."""
    talk.put("main", "base")
    source = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
    for name in ("source", "target"):
        talk.post("/api/v2/trees", source, name=name, type="BRANCH")
    talk.put("source", "t")
    return talk.head("source"), talk.head("target")


def bring(talk: Talk, verb: str = "merge", **more: object) -> Any:
    source, target = parted(talk)
    what = {"fromHash": source} if verb == "merge" else {"hashesToTransplant": [source]}
    body = {"fromRefName": "source", **what, **more}
    told = talk.post(f"/api/v2/trees/target@{target}/history/{verb}", body)
    return told.json if told.status == 200 else (told.status, told.json["message"])


@pytest.mark.parametrize("field", ["snapshotId", "schemaId", "specId", "sortOrderId"])
@pytest.mark.parametrize(("sent", "stored"), [(None, 0), ("", 0), (" ", 0), ("7", 7), (7.9, 7)])
def test_a_number_that_is_nothing_is_zero(talk: Talk, field: str, sent: Any, stored: int) -> None:
    talk.put("main", "t", content={**TABLE, field: sent})
    found = talk.get("/api/v2/trees/main/contents/t").json["content"]
    assert found[field] == stored


@pytest.mark.parametrize("sent", ["x", "1.5", True, [], {}])
def test_what_is_no_number_is_refused(talk: Talk, sent: Any) -> None:
    assert talk.commit("main", put("t", content={**TABLE, "specId": sent})).status == 400


def test_a_number_that_is_left_out_is_refused(talk: Talk) -> None:
    without = {name: value for name, value in TABLE.items() if name != "specId"}
    assert talk.commit("main", put("t", content=without)).status == 400


@pytest.mark.parametrize(
    ("sent", "dry"),
    [(-1, True), (2, True), (0, False), ("", False), (" ", False), (None, False), ("TRUE", True)],
)
def test_truth_may_be_a_number_and_a_blank_is_none(talk: Talk, sent: Any, dry: bool) -> None:
    assert bring(talk, isDryRun=sent)["wasApplied"] is not dry


@pytest.mark.parametrize(
    ("sent", "meant"),
    [(0, "NORMAL"), (1, "FORCE"), (2, "DROP"), ("1", "FORCE"), ("DROP ", "DROP")],
)
def test_a_merge_behavior_may_come_by_its_number(talk: Talk, sent: Any, meant: str) -> None:
    details = bring(talk, defaultKeyMergeMode=sent)["details"]
    assert {detail["mergeBehavior"] for detail in details} == {meant}


@pytest.mark.parametrize("sent", [3, -1, 1.0, True, "", "normal"])
def test_what_is_no_merge_behavior_is_refused(talk: Talk, sent: Any) -> None:
    status, _ = bring(talk, defaultKeyMergeMode=sent)
    assert status == 400


@pytest.mark.parametrize("key", [{}, {"elements": []}, {"elements": None}])
def test_a_merge_behavior_for_no_key_is_one_that_is_not_used(
    talk: Talk, key: dict[str, object]
) -> None:
    mode = {"key": key, "mergeBehavior": "DROP"}
    status, message = bring(talk, keyMergeModes=[mode])
    assert status == 400
    assert message.endswith("The following keys were not used: []")


def test_a_transplant_does_not_mind_it(talk: Talk) -> None:
    mode = {"key": {}, "mergeBehavior": "DROP"}
    assert bring(talk, "transplant", keyMergeModes=[mode])["wasApplied"]


@pytest.mark.parametrize("content", ["x", -1, {"type": -1}, {"type": "nope"}, []])
def test_expected_content_is_not_even_read(talk: Talk, content: Any) -> None:
    operation = {**put("t"), "expectedContent": content}
    assert talk.commit("main", operation).status == 200


def test_version_1_reads_it_and_drops_it(talk: Talk) -> None:
    path = "/api/v1/trees/branch/main/commit"
    for content, status in ((TABLE, 200), ("x", 400)):
        operation = {**put(f"t{status}"), "expectedContent": content}
        body = {"commitMeta": {"message": "m"}, "operations": [operation]}
        assert talk.post(path, body, expectedHash=talk.head("main")).status == status


@pytest.mark.parametrize("field", ["author", "signedOffBy"])
def test_a_body_that_cannot_be_read_is_told_before_a_branch_that_is_not_there(
    talk: Talk, field: str
) -> None:
    body = {"commitMeta": {"message": "m", field: ["a"]}, "operations": [put("t")]}
    assert talk.post("/api/v2/trees/nope/history/commit", body).status == 400
