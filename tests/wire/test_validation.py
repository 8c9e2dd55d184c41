"""Which of several mistakes a client is told, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from morag.model.names import HASH_RULE, NAME_RULE
from morag.model.refspecs import HASH_OR_RELATIVE_RULE, REF_SPEC_RULE
from tests.wire.talk import TABLE, Talk, Told, delete, put

SIZE = "size must be between 1 and 2147483647"
NOWHERE, ELSEWHERE = "ab" * 32, "cd" * 32
HALF_A_BYTE = "hash length needs to be a multiple of two, was 9"


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

    def test_of_a_transplant_that_would_walk_too_often(self, talk: Talk) -> None:
        hash = talk.get("/api/v2/trees/main").json["reference"]["hash"]
        body = {"fromRefName": "main", "hashesToTransplant": [f"{hash}~{n}" for n in range(1, 102)]}
        answer = talk.post(f"/api/v2/trees/main@{hash}/history/transplant", body)
        assert answer.status == 400
        assert "name commits by their hashes alone" in answer.json["message"]

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
        assert message(told) == (400, HALF_A_BYTE)

    def test_is_the_limit_of_a_history_and_then_a_place_without_a_name(self, talk: Talk) -> None:
        assert problems(talk.get("/api/v2/trees/@/history", limit_hash="z")) == [
            f"getCommitLog.params.startHash: {HASH_OR_RELATIVE_RULE}"
        ]

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    @pytest.mark.parametrize(
        "query",
        [{"page_token": "YWJj"}, {"page_token": "abc"}, {"min_key": "a", "prefix_key": "a"}],
    )
    @pytest.mark.parametrize("place", ["main", f"main@{NOWHERE}"])
    def test_is_the_filter_and_then_what_to_list(
        self, talk: Talk, place: str, path: str, query: dict[str, Any]
    ) -> None:
        talk.put("main", "t")
        told = talk.get(f"/api/v2/trees/{place}/{path}", filter="no filter", **query)
        assert message(told)[1].startswith("Filter cannot be read")

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    def test_is_a_pair_of_bounds_then_the_commit_and_then_the_token(
        self, talk: Talk, path: str
    ) -> None:
        talk.put("main", "t")  # Where nothing is, a token is not read.
        bounds: dict[str, Any] = {"min_key": "a", "prefix_key": "a"}
        lost, there = f"/api/v2/trees/main@{NOWHERE}/{path}", f"/api/v2/trees/main/{path}"
        refused = 400, "Combining prefixKey with either minKey or maxKey is not supported."
        assert message(talk.get(lost, page_token="abc", **bounds)) == refused
        assert message(talk.get(there, page_token="abc", **bounds)) == refused
        assert message(talk.get(lost, page_token="abc")) == (404, f"Commit '{NOWHERE}' not found")
        assert message(talk.get(there, page_token="abc"))[0] == 400

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    @pytest.mark.parametrize(
        "query", [{"min_key": "a", "prefix_key": "."}, {"max_key": "", "prefix_key": "a"}]
    )
    def test_is_a_pair_of_bounds_even_if_one_of_them_is_empty(
        self, talk: Talk, path: str, query: dict[str, Any]
    ) -> None:
        told = talk.get(f"/api/v2/trees/main/{path}", **query)
        refused = "Combining prefixKey with either minKey or maxKey is not supported."
        assert message(told) == (400, refused)

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
    def test_is_a_filter_and_then_a_commit_that_does_not_exist(self, talk: Talk, path: str) -> None:
        path, _, at = path.partition("?hashOnRef=")
        query: dict[str, Any] = {"filter": "nope == 1", **({"hashOnRef": at} if at else {})}
        assert message(talk.get(path, **query))[0] == 400
        query["filter"] = "true"
        assert message(talk.get(path, **query)) == (404, f"Commit '{NOWHERE}' not found")

    @pytest.mark.parametrize(
        ("path", "told"),
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
    def test_is_either_end_of_a_difference_and_then_a_commit_that_does_not_exist(
        self, talk: Talk, path: str, told: tuple[int, str]
    ) -> None:
        assert message(talk.get("/api/" + path.format(NOWHERE, ELSEWHERE))) == told

    @pytest.mark.parametrize("limit", ["cafebabe1", f"{ELSEWHERE}~1"])
    def test_is_the_limit_of_a_history_then_its_commit_and_then_the_filter(
        self, talk: Talk, limit: str
    ) -> None:
        path = f"/api/v2/trees/main@{NOWHERE}/history"
        told = message(talk.get(path, limit_hash=limit, filter="nope == 1"))
        assert told in ((400, HALF_A_BYTE), (404, f"Commit '{ELSEWHERE}' not found"))
        told = message(talk.get(path, limit_hash=ELSEWHERE, filter="nope == 1"))
        assert told == (404, f"Commit '{NOWHERE}' not found")


class TestDetails:
    @pytest.mark.parametrize(
        ("spec", "shown"),
        [
            *(("2", True), ("2.0", True), ("+3", True), ("02", True), (f"{2**31 - 1}", True)),
            *(("1.9", False), ("-2", False), ("x", False), ("", False), (f"{2**31}", False)),
            ("9" * 5000, False),
        ],
    )
    def test_are_for_clients_of_version_2_and_later(
        self, talk: Talk, spec: str, shown: bool
    ) -> None:
        told = talk.get("/api/v2/trees/main/contents/t", {"Nessie-Client-Spec": spec})
        assert told.status == 404
        assert ("errorDetails" in told.json) is shown


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

    @pytest.mark.parametrize("path", ["entries", "diff/main"])
    def test_reversed_bounds_are_refused_if_a_key_between_them_is_there_or_just_was(
        self, talk: Talk, path: str
    ) -> None:
        def told() -> int:
            return talk.get(f"/api/v2/trees/main/{path}", min_key="n", max_key="b").status

        talk.commit("main", put("a"), put("m"), put("z"))
        assert told() == 400
        talk.commit("main", delete("m"))
        assert told() == 400
        talk.put("main", "q")
        assert told() == 200


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
    def test_a_name_that_cannot_be_is_shown(
        self, talk: Talk, method: str, path: str, kind: str, type: str, name: str
    ) -> None:
        told = talk.send(method, path, {"type": kind, "name": name, "hash": "0011223344556677"})
        assert message(told) == (
            400,
            f"Cannot construct instance of `org.projectnessie.model.Immutable{type}`, "
            f"problem: {NAME_RULE} - but was: {name}\n",
        )

    def test_and_so_is_a_type_of_reference_that_nobody_knows(self, talk: Talk) -> None:
        body = {"type": "FOOBAR", "name": "hello", "hash": "0011223344556677"}
        status, told = message(talk.send("PUT", "/api/v1/trees/tag/hello", body))
        known = "Could not resolve type id 'FOOBAR' as a subtype of `org.projectnessie.model."
        assert status == 400
        assert told.startswith(f"{known}Reference`")

    @pytest.mark.parametrize("part", ["type", "name", "hash"])
    def test_a_very_long_one_is_cut_short(self, talk: Talk, part: str) -> None:
        body = {"type": "TAG", "name": "hello", "hash": "0011223344556677", part: "1" * 100_000}
        status, told = message(talk.send("PUT", "/api/v1/trees/tag/hello", body))
        assert status == 400
        assert len(told) < 2000


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
