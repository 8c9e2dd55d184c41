"""Requests with several mistakes: which one is reported, and with which message."""

from __future__ import annotations

from typing import Any

import pytest

from morag.model.names import HASH_RULE, NAME_RULE
from morag.model.refspecs import HASH_AND_STEPS_RULE, REF_SPEC_RULE
from tests.wire.json_client import TABLE, JsonClient, JsonReply, delete, put

SIZE = "size must be between 1 and 2147483647"
NOWHERE, ELSEWHERE = "ab" * 32, "cd" * 32
HALF_A_BYTE = "hash length needs to be a multiple of two, was 9"


def problems(reply: JsonReply) -> list[str]:
    """The violations that an answer reports, sorted."""
    assert (reply.status, reply.json["errorCode"]) == (400, "BAD_REQUEST"), reply
    text = reply.json["message"]
    for rule in (REF_SPEC_RULE, HASH_AND_STEPS_RULE, NAME_RULE):
        text = text.replace(rule, rule.replace(",", "\0"))
    return sorted(part.replace("\0", ",") for part in text.split(", "))


def message(reply: JsonReply) -> tuple[int, str]:
    return reply.status, reply.json["message"] if reply.json else ""


def dev(client: JsonClient) -> str:
    """Create the branch `dev` with one more commit; returns the hash of that commit."""
    source = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
    assert client.post("/api/v2/trees", source, name="dev", type="BRANCH").status == 200
    client.put("dev", "d")
    return client.head("dev")


class TestAllViolationsAreReportedTogether:
    def test_all_violations_of_a_new_reference_are_reported_together(
        self, client: JsonClient
    ) -> None:
        assert problems(client.post("/api/v2/trees", b"")) == [
            "createReference.name: must not be null",
            "createReference.type: must not be null",
        ]
        assert problems(client.post("/api/v2/trees", b"", name="1", type="x")) == [
            f"createReference.name: {NAME_RULE}",
            "createReference.type: Reference type name must be either 'branch' or 'tag'",
        ]

    def test_all_violations_of_a_reference_that_is_assigned_are_reported_together(
        self, client: JsonClient
    ) -> None:
        assert problems(client.send("PUT", "/api/v2/trees/1", b"", type="x")) == [
            "assignReference.assignTo: must not be null",
            f"assignReference.reference: {REF_SPEC_RULE}",
            "assignReference.type: Reference type name must be either 'branch' or 'tag'",
        ]
        assert problems(client.send("PUT", "/api/v1/trees/branch/1", b"", expectedHash="z")) == [
            "assignReference.assignTo: must not be null",
            f"assignReference.expectedHash: {HASH_RULE}",
            f"assignReference.referenceName: {NAME_RULE}",
        ]

    def test_all_violations_of_a_commit_are_reported_together(self, client: JsonClient) -> None:
        body = {"commitMeta": {"message": "m"}, "operations": []}
        assert problems(client.post("/api/v2/trees/1/history/commit", body)) == [
            f"commitMultipleOperations.branch: {REF_SPEC_RULE}",
            f"commitMultipleOperations.operations.operations: {SIZE}",
        ]
        assert problems(client.post("/api/v1/trees/branch/1/commit", b"null")) == [
            f"commitMultipleOperations.branchName: {NAME_RULE}",
            "commitMultipleOperations.expectedHash: must not be null",
            "commitMultipleOperations.operations: must not be null",
        ]

    def test_all_violations_of_a_merge_are_reported_together(self, client: JsonClient) -> None:
        body = {"fromRefName": "", "message": ""}
        assert problems(client.post("/api/v2/trees/1/history/merge", body)) == [
            f"mergeRefIntoBranch.branch: {REF_SPEC_RULE}",
            f"mergeRefIntoBranch.merge.fromRefName: {NAME_RULE}",
            "mergeRefIntoBranch.merge.fromRefName: must not be blank",
            f"mergeRefIntoBranch.merge.message: {SIZE}",
        ]

    def test_all_violations_of_a_transplant_are_reported_together(self, client: JsonClient) -> None:
        body = {"fromRefName": "1", "message": "", "hashesToTransplant": []}
        assert problems(client.post("/api/v2/trees/main/history/transplant", body)) == [
            f"transplantCommitsIntoBranch.transplant.fromRefName: {NAME_RULE}",
            f"transplantCommitsIntoBranch.transplant.hashesToTransplant: {SIZE}",
            f"transplantCommitsIntoBranch.transplant.message: {SIZE}",
        ]

    @pytest.mark.parametrize("body", [b"", b"null"])
    def test_a_missing_body_of_a_transplant_is_reported_alone(
        self, client: JsonClient, body: bytes
    ) -> None:
        path = "/api/v2/trees/{}/history/transplant"
        assert problems(client.post(path.format("1"), body)) == [
            f"transplantCommitsIntoBranch.branch: {REF_SPEC_RULE}"
        ]
        assert problems(client.post(path.format("main"), body)) == [
            "transplantCommitsIntoBranch.transplant: must not be null"
        ]
        assert problems(client.post("/api/v1/trees/branch/main/transplant", body)) == [
            "transplantCommitsIntoBranch.expectedHash: must not be null"
        ]

    def test_all_violations_of_contents_are_reported_together(self, client: JsonClient) -> None:
        body: dict[str, Any] = {"requestedKeys": []}
        assert problems(client.post("/api/v2/trees/1/contents", body)) == [
            f"getMultipleContents.ref: {REF_SPEC_RULE}",
            f"getMultipleContents.request.requestedKeys: {SIZE}",
        ]
        assert problems(client.post("/api/v1/contents", body, ref="1", hashOnRef="z")) == [
            f"getMultipleContents.hashOnRef: {HASH_AND_STEPS_RULE}",
            f"getMultipleContents.ref: {NAME_RULE}",
            f"getMultipleContents.request.requestedKeys: {SIZE}",
        ]

    def test_all_violations_of_a_history_are_reported_together(self, client: JsonClient) -> None:
        assert problems(client.get("/api/v2/trees/1/history", limit_hash="z")) == [
            f"getCommitLog.params.startHash: {HASH_AND_STEPS_RULE}",
            f"getCommitLog.ref: {REF_SPEC_RULE}",
        ]
        reply = client.get("/api/v1/trees/tree/1/log", startHash="z", endHash="z")
        assert problems(reply) == [
            f"getCommitLog.params.endHash: {HASH_AND_STEPS_RULE}",
            f"getCommitLog.params.startHash: {HASH_RULE}",
            f"getCommitLog.ref: {NAME_RULE}",
        ]

    def test_all_violations_of_a_difference_are_reported_together(self, client: JsonClient) -> None:
        assert problems(client.get("/api/v2/trees/1/diff/2")) == [
            f"getDiff.params.fromRef: {REF_SPEC_RULE}",
            f"getDiff.params.toRef: {REF_SPEC_RULE}",
        ]

    def test_keys_in_a_query_are_checked_after_the_reference(self, client: JsonClient) -> None:
        refused = [f"getSeveralContents.ref: {REF_SPEC_RULE}"]
        assert problems(client.get("/api/v2/trees/1/contents")) == refused

    def test_an_impossible_key_in_a_query_is_reported_before_a_missing_reference(
        self, client: JsonClient
    ) -> None:
        refused = client.get("/api/v2/trees/nope/contents", key="new\nline")
        assert message(refused) == (
            400,
            "Content key '[new\nline]' must not contain characters less than 0x20",
        )


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
    def test_a_parameter_that_cannot_be_read_is_reported_first(
        self, client: JsonClient, path: str, query: dict[str, Any]
    ) -> None:
        assert message(client.get(path, **query)) == (404, "")

    @pytest.mark.parametrize("body", [b"{", b'{"type": "BRANCH", "name": "1"}'])
    def test_the_body_is_checked_before_the_path(self, client: JsonClient, body: bytes) -> None:
        assert client.send("PUT", "/api/v1/trees/foo/main", body).status == 400

    def test_an_invalid_namespace_is_reported_before_its_path(self, client: JsonClient) -> None:
        body = {"type": "NAMESPACE", "elements": ["\x00"]}
        assert client.send("PUT", "/api/v1/namespaces/namespace/main/%00", body).status == 400

    @pytest.mark.parametrize(
        ("meta", "operation"),
        [
            ({"authorTime": "2020-02-03"}, put("t")),
            ({"commitTime": "now"}, put("t")),
            ({}, put("a", "")),
            ({}, delete("\x01")),
        ],
    )
    def test_an_invalid_time_or_key_in_a_body_is_reported_before_the_reference(
        self, client: JsonClient, meta: dict[str, str], operation: dict[str, object]
    ) -> None:
        body = {"commitMeta": {"message": "m", **meta}, "operations": [operation]}
        assert client.post(f"/api/v2/trees/nope@{NOWHERE}/history/commit", body).status == 400

    @pytest.mark.parametrize("place", ["main", "nope", f"main@{NOWHERE}"])
    @pytest.mark.parametrize("verb", ["commit", "merge"])
    def test_metadata_that_only_the_server_may_set_is_reported_first(
        self, client: JsonClient, place: str, verb: str
    ) -> None:
        body = {
            "commitMeta": {"message": "m", "committer": "me"},
            "operations": [put("t")],
            "fromRefName": "main",
            "fromHash": client.head("main"),
        }
        refused = "Cannot set the committer on the client side. It is set by the server."
        reply = client.post(f"/api/v2/trees/{place}/history/{verb}", body)
        assert message(reply) == (400, refused)

    @pytest.mark.parametrize("expected", [NOWHERE, "cafebabe12345678"])
    @pytest.mark.parametrize(
        ("verb", "what"),
        [
            ("commit", {"commitMeta": {"message": "m"}, "operations": [put("t"), put("t")]}),
            ("merge", {"fromHash": "cd" * 32}),
            ("transplant", {"hashesToTransplant": ["cd" * 32]}),
        ],
    )
    def test_an_expected_hash_that_is_not_on_the_branch_is_reported_first(
        self, client: JsonClient, verb: str, what: dict[str, object], expected: str
    ) -> None:
        reply = client.post(
            f"/api/v2/trees/main@{expected}/history/{verb}", {"fromRefName": "main", **what}
        )
        missing = f"Could not find commit '{expected}' in reference 'main'."
        assert message(reply) == (404, missing)

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
    def test_a_missing_reference_is_reported_before_an_invalid_hash(
        self, client: JsonClient, path: str
    ) -> None:
        assert message(client.get(path)) == (404, "Named reference 'nope' not found")

    def test_an_odd_hash_length_is_reported_before_the_kind_of_reference(
        self, client: JsonClient
    ) -> None:
        tagged = {"type": "BRANCH", "name": "main", "hash": client.head("main")}
        client.post("/api/v2/trees", tagged, name="tag", type="TAG")
        body = {"commitMeta": {"message": "m"}, "operations": [put("t")]}
        reply = client.post("/api/v2/trees/tag@cafebabe1~0/history/commit", body)
        assert message(reply) == (400, HALF_A_BYTE)

    def test_the_limit_of_a_history_is_reported_before_a_ref_spec_without_a_name(
        self, client: JsonClient
    ) -> None:
        assert problems(client.get("/api/v2/trees/@/history", limit_hash="z")) == [
            f"getCommitLog.params.startHash: {HASH_AND_STEPS_RULE}"
        ]

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    @pytest.mark.parametrize(
        "query",
        [{"page_token": "YWJj"}, {"page_token": "abc"}, {"min_key": "a", "prefix_key": "a"}],
    )
    @pytest.mark.parametrize("place", ["main", f"main@{NOWHERE}"])
    def test_an_invalid_filter_is_reported_before_a_token_and_before_bounds(
        self, client: JsonClient, place: str, path: str, query: dict[str, Any]
    ) -> None:
        client.put("main", "t")
        reply = client.get(f"/api/v2/trees/{place}/{path}", filter="no filter", **query)
        assert message(reply)[1].startswith("Filter cannot be read")

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    def test_a_pair_of_bounds_is_reported_before_the_commit_and_that_before_the_token(
        self, client: JsonClient, path: str
    ) -> None:
        client.put("main", "t")  # Without commits, a token is not read.
        bounds: dict[str, Any] = {"min_key": "a", "prefix_key": "a"}
        missing, existing = f"/api/v2/trees/main@{NOWHERE}/{path}", f"/api/v2/trees/main/{path}"
        refused = 400, "Combining prefixKey with either minKey or maxKey is not supported."
        assert message(client.get(missing, page_token="abc", **bounds)) == refused
        assert message(client.get(existing, page_token="abc", **bounds)) == refused
        assert message(client.get(missing, page_token="abc")) == (
            404,
            f"Commit '{NOWHERE}' not found",
        )
        assert message(client.get(existing, page_token="abc"))[0] == 400

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    @pytest.mark.parametrize(
        "query", [{"min_key": "a", "prefix_key": "."}, {"max_key": "", "prefix_key": "a"}]
    )
    def test_a_pair_of_bounds_is_refused_even_if_one_of_them_is_empty(
        self, client: JsonClient, path: str, query: dict[str, Any]
    ) -> None:
        reply = client.get(f"/api/v2/trees/main/{path}", **query)
        refused = "Combining prefixKey with either minKey or maxKey is not supported."
        assert message(reply) == (400, refused)

    @pytest.mark.parametrize(
        "path",
        [
            f"/api/v2/trees/main@{NOWHERE}/entries",
            f"/api/v2/trees/@{NOWHERE}/entries",
            f"/api/v2/trees/main@{NOWHERE}/diff/main",
            f"/api/v2/trees/main/diff/@{NOWHERE}",
            f"/api/v1/trees/tree/main/entries?hashOnRef={NOWHERE}",
        ],
    )
    def test_an_invalid_filter_is_reported_before_a_commit_that_does_not_exist(
        self, client: JsonClient, path: str
    ) -> None:
        path, _, at = path.partition("?hashOnRef=")
        query: dict[str, Any] = {"filter": "nope == 1", **({"hashOnRef": at} if at else {})}
        assert message(client.get(path, **query))[0] == 400
        query["filter"] = "true"
        assert message(client.get(path, **query)) == (404, f"Commit '{NOWHERE}' not found")

    @pytest.mark.parametrize(
        ("path", "reply"),
        [
            ("v2/trees/main@{}/diff/nope", (404, "Named reference 'nope' not found")),
            ("v2/trees/main@{}/diff/main@cafebabe1", (400, HALF_A_BYTE)),
            ("v2/trees/main@{}/diff/@{}~1", (404, f"Commit '{ELSEWHERE}' not found")),
            ("v2/trees/main@{}/diff/@{}", (404, f"Commit '{NOWHERE}' not found")),
            ("v1/diffs/main*{}...nope", (404, "Named reference 'nope' not found")),
            ("v1/diffs/main*{}...main*cafebabe1", (400, HALF_A_BYTE)),
            ("v1/diffs/main*{}...main*{}", (404, f"Commit '{NOWHERE}' not found")),
        ],
    )
    def test_either_end_of_a_difference_is_reported_before_a_commit_that_does_not_exist(
        self, client: JsonClient, path: str, reply: tuple[int, str]
    ) -> None:
        assert message(client.get("/api/" + path.format(NOWHERE, ELSEWHERE))) == reply

    @pytest.mark.parametrize("limit", ["cafebabe1", f"{ELSEWHERE}~1"])
    def test_the_limit_of_a_history_is_reported_before_its_commit_and_that_before_the_filter(
        self, client: JsonClient, limit: str
    ) -> None:
        path = f"/api/v2/trees/main@{NOWHERE}/history"
        reply = message(client.get(path, limit_hash=limit, filter="nope == 1"))
        assert reply in ((400, HALF_A_BYTE), (404, f"Commit '{ELSEWHERE}' not found"))
        reply = message(client.get(path, limit_hash=ELSEWHERE, filter="nope == 1"))
        assert reply == (404, f"Commit '{NOWHERE}' not found")


class TestDetails:
    @pytest.mark.parametrize(
        ("spec", "shown"),
        [
            *(("2", True), ("2.0", True), ("+3", True), ("02", True), (f"{2**31 - 1}", True)),
            *(("1.9", False), ("-2", False), ("x", False), ("", False), (f"{2**31}", False)),
            ("9" * 5000, False),
        ],
    )
    def test_details_are_for_clients_of_version_2_and_later(
        self, client: JsonClient, spec: str, shown: bool
    ) -> None:
        reply = client.get("/api/v2/trees/main/contents/t", {"Nessie-Client-Spec": spec})
        assert reply.status == 404
        assert ("errorDetails" in reply.json) is shown


class TestRequestedRefs:
    @pytest.mark.parametrize("spec", ["1abc", "abc.", "a b", "main@zz", "main~x"])
    @pytest.mark.parametrize(
        ("below", "where"), [("", "getReferenceByName"), ("/recent-changes", "getReferenceHistory")]
    )
    def test_a_call_that_takes_a_name_reports_the_rule_for_names(
        self, client: JsonClient, spec: str, below: str, where: str
    ) -> None:
        reply = client.get(f"/api/v2/trees/{spec}{below}")
        assert problems(reply) == [f"{where}.params.ref: {NAME_RULE}"]

    @pytest.mark.parametrize("diff", ["main*zz...main", "main...main*zz"])
    def test_a_hash_in_a_v1_diff_is_reported_as_it_was_sent(
        self, client: JsonClient, diff: str
    ) -> None:
        reply = client.get(f"/api/v1/diffs/{diff}")
        assert message(reply) == (400, f"{HASH_AND_STEPS_RULE} [zz]")

    @pytest.mark.parametrize("diff", ["...main", "main...", "...", "main*...", "main...main/"])
    def test_a_v1_diff_has_exactly_two_sides(self, client: JsonClient, diff: str) -> None:
        assert message(client.get(f"/api/v1/diffs/{diff}")) == (404, "")

    def test_the_newest_commit_of_a_v1_log_may_be_relative(self, client: JsonClient) -> None:
        for name in ("a", "b"):
            client.put("main", name)
        path = "/api/v1/trees/tree/main/log"
        whole = client.get(path).json["logEntries"]
        assert client.get(path, endHash="~1").json["logEntries"] == whole[1:]

    def test_only_the_last_of_several_steps_counts_even_after_an_invalid_one(
        self, client: JsonClient
    ) -> None:
        client.put("main", "a")
        client.put("main", "b")
        reply = client.get("/api/v2/trees/main~0~1/entries")
        assert reply.json == client.get("/api/v2/trees/main~1/entries").json
        reply = client.get("/api/v2/trees/main~1~0/entries")
        assert message(reply) == (400, "Illegal value 0 for spec type N_TH_PREDECESSOR (~)")

    def test_a_transplant_with_too_many_relative_hashes_is_refused(
        self, client: JsonClient
    ) -> None:
        hash = client.get("/api/v2/trees/main").json["reference"]["hash"]
        body = {"fromRefName": "main", "hashesToTransplant": [f"{hash}~{n}" for n in range(1, 102)]}
        answer = client.post(f"/api/v2/trees/main@{hash}/history/transplant", body)
        assert answer.status == 400
        assert "use plain hashes instead" in answer.json["message"]

    def test_dots_in_a_path_lead_up_even_when_they_are_escaped(self, client: JsonClient) -> None:
        assert (
            client.get("/api/v2/trees/x/%2e%2e/main").json == client.get("/api/v2/trees/main").json
        )
        assert message(client.get("/api/v2/trees/%2e%2e")) == (404, "")


class TestKeys:
    def test_a_key_without_elements_is_never_found(self, client: JsonClient) -> None:
        client.put("main", "t")
        keys: list[Any] = [{}, {"elements": []}, {"elements": None}, {"elements": ["t"]}]
        for path in ("/api/v2/trees/main/contents", "/api/v1/contents"):
            found = client.post(path, {"requestedKeys": keys}).json["contents"]
            assert [content["key"]["elements"] for content in found] == [["t"]]

    def test_the_keys_of_entries_are_bounds_and_those_of_a_difference_are_not(
        self, client: JsonClient
    ) -> None:
        client.put("main", "c")
        query: dict[str, Any] = {"min_key": "d", "key": "b"}
        reply = client.get("/api/v2/trees/main/entries", **query)
        assert message(reply) == (400, "'to' must be greater than 'from'")
        assert client.get("/api/v2/trees/main/diff/main", **query).json["diffs"] == []

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    def test_reversed_bounds_are_refused_if_a_key_between_them_is_there_or_just_was(
        self, client: JsonClient, path: str
    ) -> None:
        def reply() -> int:
            return client.get(f"/api/v2/trees/main/{path}", min_key="n", max_key="b").status

        client.commit("main", put("a"), put("m"), put("z"))
        assert reply() == 400
        client.commit("main", delete("m"))
        assert reply() == 400
        client.put("main", "q")
        assert reply() == 200


class TestNamesInBodies:
    """Nessie's own client tests look for these sentences, to the end of their lines."""

    @pytest.mark.parametrize(
        "name", ["", "abc'", ".foo", "abc'def'..'blah", "abc'de..blah", "abc'de@{blah"]
    )
    @pytest.mark.parametrize(("kind", "type"), [("BRANCH", "Branch"), ("TAG", "Tag")])
    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("PUT", "/api/v1/trees/tag/hello"),
            ("POST", "/api/v1/trees/tree"),
            ("PUT", f"/api/v2/trees/main@{NOWHERE}"),
        ],
    )
    def test_an_impossible_name_is_shown_in_the_message(
        self, client: JsonClient, method: str, path: str, kind: str, type: str, name: str
    ) -> None:
        reply = client.send(method, path, {"type": kind, "name": name, "hash": "0011223344556677"})
        assert message(reply) == (
            400,
            f"Cannot construct instance of `org.projectnessie.model.Immutable{type}`, "
            f"problem: {NAME_RULE} - but was: {name}\n",
        )

    def test_an_unknown_type_of_reference_is_cut_short_in_the_message(
        self, client: JsonClient
    ) -> None:
        body = {"type": "FOOBAR", "name": "hello", "hash": "0011223344556677"}
        status, reply = message(client.send("PUT", "/api/v1/trees/tag/hello", body))
        known = "Could not resolve type id 'FOOBAR' as a subtype of `org.projectnessie.model."
        assert status == 400
        assert reply.startswith(f"{known}Reference`")

    @pytest.mark.parametrize("part", ["type", "name", "hash"])
    def test_a_very_long_name_is_cut_short_in_the_message(
        self, client: JsonClient, part: str
    ) -> None:
        body = {"type": "TAG", "name": "hello", "hash": "0011223344556677", part: "1" * 100_000}
        status, reply = message(client.send("PUT", "/api/v1/trees/tag/hello", body))
        assert status == 400
        assert len(reply) < 2000


class TestVersion1:
    @pytest.mark.parametrize("verb", ["merge", "transplant"])
    @pytest.mark.parametrize("content", ["x", {"type": "x"}, TABLE])
    def test_version_1_ignores_resolved_content(
        self, client: JsonClient, verb: str, content: object
    ) -> None:
        client.put("main", "t")
        start, head = client.head("main"), dev(client)
        mode = {
            "key": {"elements": ["d"]},
            "mergeBehavior": "FORCE",
            "expectedTargetContent": content,
            "resolvedContent": content,
        }
        what = {"fromHash": head} if verb == "merge" else {"hashesToTransplant": [head]}
        body = {"fromRefName": "dev", "keyMergeModes": [mode], **what}
        reply = client.post(f"/api/v1/trees/branch/main/{verb}", body, expectedHash=start)
        assert (reply.status, reply.json["wasApplied"]) == (200, True)

    @pytest.mark.parametrize(
        ("method", "body"),
        [
            ("PUT", {"type": "NAMESPACE", "elements": ["n"]}),
            ("POST", {"propertyUpdates": {"a": "b"}}),
            ("DELETE", None),
        ],
    )
    def test_version_1_changes_no_namespace_of_a_detached_commit(
        self, client: JsonClient, method: str, body: dict[str, Any] | None
    ) -> None:
        reply = client.send(method, "/api/v1/namespaces/namespace/DETACHED/n", body)
        assert message(reply) == (400, "Cannot resolve DETACHED to HEAD")


class TestMediaTypes:
    @pytest.mark.parametrize("type", ["text/plain", "garbage"])
    def test_media_types_of_reads_must_be_json_as_well(self, client: JsonClient, type: str) -> None:
        assert client.get("/api/v2/trees", {"Content-Type": type}).status == 415

    @pytest.mark.parametrize(
        "path", ["/api/v2/config", "/api/v1/config", "/api/v2/config/repository"]
    )
    @pytest.mark.parametrize("type", ["text/plain", "garbage"])
    def test_media_types_do_not_matter_to_configs(
        self, client: JsonClient, path: str, type: str
    ) -> None:
        assert client.get(path, {"Content-Type": type}).status == 200

    def test_the_media_type_must_be_json_to_change_a_config(self, client: JsonClient) -> None:
        body = {"config": {"type": "GARBAGE_COLLECTOR"}}
        path = "/api/v2/config/repository"
        for headers, status in (
            ({"Content-Type": "text/plain"}, 415),
            ({}, 415),
            ({"Content-Type": "application/json"}, 200),
        ):
            assert client.post(path, body, headers).status == status
