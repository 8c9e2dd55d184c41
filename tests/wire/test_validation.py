"""Which of several mistakes a client is told, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from morag.model.names import HASH_RULE, NAME_RULE
from morag.model.refspecs import HASH_OR_RELATIVE_RULE, REF_SPEC_RULE
from tests.wire.talk import TABLE, Talk, Told, delete, put

SIZE = "size must be between 1 and 2147483647"
NOWHERE = "ab" * 32


def problems(told: Told) -> list[str]:
    """The violations that an answer tells, in any order."""
    assert (told.status, told.json["errorCode"]) == (400, "BAD_REQUEST"), told
    text = told.json["message"]
    for rule in (REF_SPEC_RULE, HASH_OR_RELATIVE_RULE, NAME_RULE):
        text = text.replace(rule, rule.replace(",", "\0"))
    return sorted(part.replace("\0", ",") for part in text.split(", "))


def message(told: Told) -> tuple[int, str]:
    return told.status, told.json["message"] if told.json else ""


def dev(talk: Talk) -> str:
    """A branch with a commit of its own; the hash of that commit."""
    source = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
    assert talk.post("/api/v2/trees", source, name="dev", type="BRANCH").status == 200
    talk.put("dev", "d")
    return talk.head("dev")


class TestAllViolationsAreToldAtOnce:
    def test_of_a_new_reference(self, talk: Talk) -> None:
        assert problems(talk.post("/api/v2/trees", b"")) == [
            "createReference.name: must not be null",
            "createReference.type: must not be null",
        ]
        assert problems(talk.post("/api/v2/trees", b"", name="1", type="x")) == [
            f"createReference.name: {NAME_RULE}",
            "createReference.type: Reference type name must be either 'branch' or 'tag'",
        ]

    def test_of_a_reference_that_is_assigned(self, talk: Talk) -> None:
        assert problems(talk.send("PUT", "/api/v2/trees/1", b"", type="x")) == [
            "assignReference.assignTo: must not be null",
            f"assignReference.reference: {REF_SPEC_RULE}",
            "assignReference.type: Reference type name must be either 'branch' or 'tag'",
        ]
        assert problems(talk.send("PUT", "/api/v1/trees/branch/1", b"", expectedHash="z")) == [
            "assignReference.assignTo: must not be null",
            f"assignReference.expectedHash: {HASH_RULE}",
            f"assignReference.referenceName: {NAME_RULE}",
        ]

    def test_of_a_commit(self, talk: Talk) -> None:
        body = {"commitMeta": {"message": "m"}, "operations": []}
        assert problems(talk.post("/api/v2/trees/1/history/commit", body)) == [
            f"commitMultipleOperations.branch: {REF_SPEC_RULE}",
            f"commitMultipleOperations.operations.operations: {SIZE}",
        ]
        assert problems(talk.post("/api/v1/trees/branch/1/commit", b"null")) == [
            f"commitMultipleOperations.branchName: {NAME_RULE}",
            "commitMultipleOperations.expectedHash: must not be null",
            "commitMultipleOperations.operations: must not be null",
        ]

    def test_of_a_merge(self, talk: Talk) -> None:
        body = {"fromRefName": "", "message": ""}
        assert problems(talk.post("/api/v2/trees/1/history/merge", body)) == [
            f"mergeRefIntoBranch.branch: {REF_SPEC_RULE}",
            f"mergeRefIntoBranch.merge.fromRefName: {NAME_RULE}",
            "mergeRefIntoBranch.merge.fromRefName: must not be blank",
            f"mergeRefIntoBranch.merge.message: {SIZE}",
        ]

    def test_of_a_transplant(self, talk: Talk) -> None:
        body = {"fromRefName": "1", "message": "", "hashesToTransplant": []}
        assert problems(talk.post("/api/v2/trees/main/history/transplant", body)) == [
            f"transplantCommitsIntoBranch.transplant.fromRefName: {NAME_RULE}",
            f"transplantCommitsIntoBranch.transplant.hashesToTransplant: {SIZE}",
            f"transplantCommitsIntoBranch.transplant.message: {SIZE}",
        ]

    @pytest.mark.parametrize("body", [b"", b"null"])
    def test_that_a_transplant_says_nothing_is_told_alone(self, talk: Talk, body: bytes) -> None:
        path = "/api/v2/trees/{}/history/transplant"
        assert problems(talk.post(path.format("1"), body)) == [
            f"transplantCommitsIntoBranch.branch: {REF_SPEC_RULE}"
        ]
        assert problems(talk.post(path.format("main"), body)) == [
            "transplantCommitsIntoBranch.transplant: must not be null"
        ]
        assert problems(talk.post("/api/v1/trees/branch/main/transplant", body)) == [
            "transplantCommitsIntoBranch.expectedHash: must not be null"
        ]

    def test_of_contents(self, talk: Talk) -> None:
        body: dict[str, Any] = {"requestedKeys": []}
        assert problems(talk.post("/api/v2/trees/1/contents", body)) == [
            f"getMultipleContents.ref: {REF_SPEC_RULE}",
            f"getMultipleContents.request.requestedKeys: {SIZE}",
        ]
        assert problems(talk.post("/api/v1/contents", body, ref="1", hashOnRef="z")) == [
            f"getMultipleContents.hashOnRef: {HASH_OR_RELATIVE_RULE}",
            f"getMultipleContents.ref: {NAME_RULE}",
            f"getMultipleContents.request.requestedKeys: {SIZE}",
        ]

    def test_of_a_history(self, talk: Talk) -> None:
        assert problems(talk.get("/api/v2/trees/1/history", limit_hash="z")) == [
            f"getCommitLog.params.startHash: {HASH_OR_RELATIVE_RULE}",
            f"getCommitLog.ref: {REF_SPEC_RULE}",
        ]
        told = talk.get("/api/v1/trees/tree/1/log", startHash="z", endHash="z")
        assert problems(told) == [
            f"getCommitLog.params.endHash: {HASH_OR_RELATIVE_RULE}",
            f"getCommitLog.params.startHash: {HASH_RULE}",
            f"getCommitLog.ref: {NAME_RULE}",
        ]

    def test_of_a_difference(self, talk: Talk) -> None:
        assert problems(talk.get("/api/v2/trees/1/diff/2")) == [
            f"getDiff.params.fromRef: {REF_SPEC_RULE}",
            f"getDiff.params.toRef: {REF_SPEC_RULE}",
        ]

    def test_what_gets_keys_from_a_query_tells_of_the_reference_first(self, talk: Talk) -> None:
        refused = [f"getSeveralContents.ref: {REF_SPEC_RULE}"]
        assert problems(talk.get("/api/v2/trees/1/contents")) == refused


class TestTheFirstMistake:
    @pytest.mark.parametrize(
        ("path", "query"),
        [
            ("/api/v2/trees/1", {"fetch": "all"}),
            ("/api/v2/trees/1/entries", {"max_records": "x"}),
            ("/api/v2/trees/1/diff/2", {"max_records": " 2"}),
            ("/api/v1/trees/tree/1", {"fetch": "all"}),
            ("/api/v1/trees/tree/1/entries", {"maxRecords": "1.5"}),
            ("/api/v1/trees/tree/1/log", {"maxRecords": "x"}),
        ],
    )
    def test_is_a_parameter_that_cannot_be_read(
        self, talk: Talk, path: str, query: dict[str, Any]
    ) -> None:
        assert message(talk.get(path, **query)) == (404, "")

    @pytest.mark.parametrize("body", [b"{", b'{"type": "BRANCH", "name": "1"}'])
    def test_is_the_body_even_of_a_path_that_leads_nowhere(self, talk: Talk, body: bytes) -> None:
        assert talk.send("PUT", "/api/v1/trees/foo/main", body).status == 400

    def test_is_a_namespace_that_cannot_be_and_then_its_path(self, talk: Talk) -> None:
        body = {"type": "NAMESPACE", "elements": ["\x00"]}
        assert talk.send("PUT", "/api/v1/namespaces/namespace/main/%00", body).status == 400

    @pytest.mark.parametrize(
        ("meta", "operation"),
        [
            ({"authorTime": "2020-02-03"}, put("t")),
            ({"commitTime": "now"}, put("t")),
            ({}, put("a", "")),
            ({}, delete("\x01")),
        ],
    )
    def test_is_a_time_or_key_in_a_body(
        self, talk: Talk, meta: dict[str, str], operation: dict[str, object]
    ) -> None:
        body = {"commitMeta": {"message": "m", **meta}, "operations": [operation]}
        assert talk.post(f"/api/v2/trees/nope@{NOWHERE}/history/commit", body).status == 400

    @pytest.mark.parametrize("place", ["main", "nope", f"main@{NOWHERE}"])
    @pytest.mark.parametrize("verb", ["commit", "merge"])
    def test_is_metadata_that_only_the_server_may_set(
        self, talk: Talk, place: str, verb: str
    ) -> None:
        body = {
            "commitMeta": {"message": "m", "committer": "me"},
            "operations": [put("t")],
            "fromRefName": "main",
            "fromHash": talk.head("main"),
        }
        refused = "Cannot set the committer on the client side. It is set by the server."
        told = talk.post(f"/api/v2/trees/{place}/history/{verb}", body)
        assert message(told) == (400, refused)

    @pytest.mark.parametrize("expected", [NOWHERE, "cafebabe12345678"])
    @pytest.mark.parametrize(
        ("verb", "what"),
        [
            ("commit", {"commitMeta": {"message": "m"}, "operations": [put("t"), put("t")]}),
            ("merge", {"fromHash": "cd" * 32}),
            ("transplant", {"hashesToTransplant": ["cd" * 32]}),
        ],
    )
    def test_is_an_expected_hash_that_is_not_on_the_branch(
        self, talk: Talk, verb: str, what: dict[str, object], expected: str
    ) -> None:
        told = talk.post(
            f"/api/v2/trees/main@{expected}/history/{verb}", {"fromRefName": "main", **what}
        )
        missing = f"Could not find commit '{expected}' in reference 'main'."
        assert message(told) == (404, missing)

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v2/trees/nope~0/contents/t",
            "/api/v2/trees/nope@cafebabe1/history",
            "/api/v2/trees/nope*2001-13-01T00:00:00.000Z/entries",
            "/api/v2/trees/nope~0/diff/main",
            "/api/v1/diffs/nope*zz...main",
            "/api/v1/diffs/main...nope*0",
        ],
    )
    def test_is_the_name_of_a_reference_and_then_the_hash(self, talk: Talk, path: str) -> None:
        assert message(talk.get(path)) == (404, "Named reference 'nope' not found")

    def test_is_half_a_byte_and_then_the_kind_of_reference(self, talk: Talk) -> None:
        tagged = {"type": "BRANCH", "name": "main", "hash": talk.head("main")}
        talk.post("/api/v2/trees", tagged, name="tag", type="TAG")
        body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
        told = talk.post("/api/v2/trees/tag@cafebabe1~0/history/commit", body)
        assert message(told) == (400, "hash length needs to be a multiple of two, was 9")

    def test_is_the_limit_of_a_history_and_then_a_place_without_a_name(self, talk: Talk) -> None:
        assert problems(talk.get("/api/v2/trees/@/history", limit_hash="z")) == [
            f"getCommitLog.params.startHash: {HASH_OR_RELATIVE_RULE}"
        ]

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    @pytest.mark.parametrize(
        ("query", "refused"),
        [
            ({"page_token": "YWJj"}, "Illegal hex character 'Y'"),
            ({"page_token": "abc"}, "Invalid token string representation"),
            (
                {"min_key": "a", "prefix_key": "a"},
                "Combining prefixKey with either minKey or maxKey is not supported.",
            ),
        ],
    )
    def test_is_what_to_list_and_then_the_filter(
        self, talk: Talk, path: str, query: dict[str, Any], refused: str
    ) -> None:
        talk.put("main", "t")  # Where nothing is, a token is not read.
        told = talk.get(f"/api/v2/trees/main/{path}", filter="no filter", **query)
        assert message(told) == (400, refused)


class TestPlaces:
    @pytest.mark.parametrize("spec", ["1abc", "abc.", "a b", "main@zz", "main~x"])
    @pytest.mark.parametrize(
        ("below", "where"), [("", "getReferenceByName"), ("/recent-changes", "getReferenceHistory")]
    )
    def test_where_a_name_is_wanted_only_names_are_spoken_of(
        self, talk: Talk, spec: str, below: str, where: str
    ) -> None:
        told = talk.get(f"/api/v2/trees/{spec}{below}")
        assert problems(told) == [f"{where}.params.ref: {NAME_RULE}"]

    @pytest.mark.parametrize("diff", ["main*zz...main", "main...main*zz"])
    def test_a_hash_in_an_old_difference_is_told_as_it_was_sent(
        self, talk: Talk, diff: str
    ) -> None:
        told = talk.get(f"/api/v1/diffs/{diff}")
        assert message(told) == (400, f"{HASH_OR_RELATIVE_RULE} [zz]")

    @pytest.mark.parametrize("diff", ["...main", "main...", "...", "main*...", "main...main/"])
    def test_an_old_difference_has_two_sides_and_no_more(self, talk: Talk, diff: str) -> None:
        assert message(talk.get(f"/api/v1/diffs/{diff}")) == (404, "")

    def test_the_newest_commit_of_an_old_log_may_be_some_steps_away(self, talk: Talk) -> None:
        for name in ("a", "b"):
            talk.put("main", name)
        path = "/api/v1/trees/tree/main/log"
        whole = talk.get(path).json["logEntries"]
        assert talk.get(path, endHash="~1").json["logEntries"] == whole[1:]

    def test_only_the_last_of_several_steps_counts_even_after_one_that_cannot_be(
        self, talk: Talk
    ) -> None:
        talk.put("main", "a")
        talk.put("main", "b")
        told = talk.get("/api/v2/trees/main~0~1/entries")
        assert told.json == talk.get("/api/v2/trees/main~1/entries").json
        told = talk.get("/api/v2/trees/main~1~0/entries")
        assert message(told) == (400, "Illegal value 0 for spec type N_TH_PREDECESSOR (~)")

    def test_dots_in_a_path_lead_up_even_when_they_are_escaped(self, talk: Talk) -> None:
        assert talk.get("/api/v2/trees/x/%2e%2e/main").json == talk.get("/api/v2/trees/main").json
        assert message(talk.get("/api/v2/trees/%2e%2e")) == (404, "")


class TestKeys:
    def test_a_key_without_elements_is_never_found(self, talk: Talk) -> None:
        talk.put("main", "t")
        keys: list[Any] = [{}, {"elements": []}, {"elements": None}, {"elements": ["t"]}]
        for path in ("/api/v2/trees/main/contents", "/api/v1/contents"):
            found = talk.post(path, {"requestedKeys": keys}).json["contents"]
            assert [content["key"]["elements"] for content in found] == [["t"]]

    def test_the_keys_of_entries_are_bounds_and_those_of_a_difference_are_not(
        self, talk: Talk
    ) -> None:
        talk.put("main", "c")
        query: dict[str, Any] = {"min_key": "d", "key": "b"}
        told = talk.get("/api/v2/trees/main/entries", **query)
        assert message(told) == (400, "'to' must be greater than 'from'")
        assert talk.get("/api/v2/trees/main/diff/main", **query).json["diffs"] == []


class TestVersion1:
    @pytest.mark.parametrize("verb", ["merge", "transplant"])
    @pytest.mark.parametrize("content", ["x", {"type": "x"}, TABLE])
    def test_knows_no_resolved_content(self, talk: Talk, verb: str, content: object) -> None:
        talk.put("main", "t")
        start, head = talk.head("main"), dev(talk)
        mode = {
            "key": {"elements": ["d"]},
            "mergeBehavior": "FORCE",
            "expectedTargetContent": content,
            "resolvedContent": content,
        }
        what = {"fromHash": head} if verb == "merge" else {"hashesToTransplant": [head]}
        body = {"fromRefName": "dev", "keyMergeModes": [mode], **what}
        told = talk.post(f"/api/v1/trees/branch/main/{verb}", body, expectedHash=start)
        assert (told.status, told.json["wasApplied"]) == (200, True)

    @pytest.mark.parametrize(
        ("method", "body"),
        [
            ("PUT", {"type": "NAMESPACE", "elements": ["n"]}),
            ("POST", {"propertyUpdates": {"a": "b"}}),
            ("DELETE", None),
        ],
    )
    def test_changes_no_namespace_of_a_detached_commit(
        self, talk: Talk, method: str, body: dict[str, Any] | None
    ) -> None:
        told = talk.send(method, "/api/v1/namespaces/namespace/DETACHED/n", body)
        assert message(told) == (400, "Cannot resolve DETACHED to HEAD")


class TestMediaTypes:
    @pytest.mark.parametrize("type", ["text/plain", "garbage"])
    def test_of_reads_must_be_json_as_well(self, talk: Talk, type: str) -> None:
        assert talk.get("/api/v2/trees", {"Content-Type": type}).status == 415

    @pytest.mark.parametrize(
        "path", ["/api/v2/config", "/api/v1/config", "/api/v2/config/repository"]
    )
    @pytest.mark.parametrize("type", ["text/plain", "garbage"])
    def test_do_not_matter_to_configs(self, talk: Talk, path: str, type: str) -> None:
        assert talk.get(path, {"Content-Type": type}).status == 200

    def test_must_be_json_to_change_a_config(self, talk: Talk) -> None:
        body = {"config": {"type": "GARBAGE_COLLECTOR"}}
        path = "/api/v2/config/repository"
        for headers, status in (
            ({"Content-Type": "text/plain"}, 415),
            ({}, 415),
            ({"Content-Type": "application/json"}, 200),
        ):
            assert talk.post(path, body, headers).status == status
