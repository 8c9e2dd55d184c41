"""The OpenAPI document describes the API completely and correctly."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema_rs import Draft202012Validator, ValidationError
from msgspec import Struct

import morag
from morag.api.app import ENDPOINTS
from morag.api.v1 import structs
from morag.rest import requests
from morag.service.service import SPEC_VERSION
from tests.api.described_api import DescribedApi, references
from tests.interop.rest import NOTHING, delta, namespace, put, table, view

if TYPE_CHECKING:
    from collections.abc import Iterator

_UDF: Final = {"type": "UDF", "sqlText": "1", "dialect": "spark"}
_ACCEPTING_XML: Final = ((b"accept", b"application/xml"),)


@pytest.fixture
def api() -> Iterator[DescribedApi]:
    with morag.open("memory:") as repository:
        yield DescribedApi(repository)


def test_every_endpoint_is_described(api: DescribedApi) -> None:
    described = {(method, path) for method, path, _ in api.operations.values()}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert len(api.operations) == len(ENDPOINTS), "an operation id is used twice"


def test_every_parameter_is_described_once(api: DescribedApi) -> None:
    for endpoint in ENDPOINTS:
        operation = api.document["paths"][endpoint.path][endpoint.method.lower()]
        named = [(one["in"], one["name"]) for one in operation["parameters"]]
        in_path = {part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")}
        assert len(set(named)) == len(named)
        assert {name for where, name in named if where == "path"} == in_path
        declared = {parameter.name for parameter in endpoint.query}
        assert {name for where, name in named if where == "query"} == declared
        assert all(one["description"] for one in operation["parameters"])


@pytest.mark.parametrize(
    ("operation", "parameter", "text"),
    [
        ("getReferenceV2", "ref", "The name of a branch or a tag, without a hash."),
        ("getRecentChangesV2", "ref", "The name of a branch or a tag, without a hash."),
        ("getEntriesV2", "ref", "A branch, a tag or a commit: "),
        ("assignReferenceV2", "ref", "A branch or a tag: `main@HASH`."),
        ("commitV2", "branch", "A branch: `main@HASH`."),
        ("commitV1", "name", "The name of a branch."),
        ("deleteReferenceV1", "name", "The name of a branch or a tag."),
        ("getReferenceV2", "fetch", "ALL adds `metadata`"),
        ("getHistoryV2", "fetch", "ALL adds the operations"),
    ],
)
def test_a_parameter_is_described_as_its_operation_takes_it(
    api: DescribedApi, operation: str, parameter: str, text: str
) -> None:
    method, path, _ = api.operations[operation]
    described = api.document["paths"][path][method.lower()]["parameters"]
    (found,) = (one["description"] for one in described if one["name"] == parameter)
    assert found.startswith(text)


def test_every_field_of_a_request_is_explained(api: DescribedApi) -> None:
    schemas = api.document["components"]["schemas"]
    explained: set[str] = set()
    for module in (requests, structs):
        for name, struct in vars(module).items():
            if not isinstance(struct, type(Struct)) or "Body" not in name or name not in schemas:
                continue
            explained.add(name)
            for field, property in schemas[name]["properties"].items():
                assert field == "type" or property["description"].endswith("."), (name, field)
    assert {"CommitBody", "MergeBody", "MergeBodyV1", "NamespaceUpdateBody"} <= explained


def test_every_reference_in_the_document_resolves(api: DescribedApi) -> None:
    found = set(references(api.document))
    assert "#/components/schemas/Content" in found
    for reference in found:
        assert api.resolved({"$ref": reference})


def test_every_schema_is_valid(api: DescribedApi) -> None:
    for schema in api.document["components"]["schemas"].values():
        Draft202012Validator({**schema, "components": api.document["components"]})


def test_every_operation_answers_as_described(api: DescribedApi) -> None:
    """A sequence in which every operation succeeds at least once."""
    api("getConfigV2")
    api("getConfigV1")
    api("getDefaultBranchV1")
    api("getRepositoryConfigV2")
    config = {"type": "GARBAGE_COLLECTOR", "newFilesGracePeriod": "PT3H"}
    assert api("updateRepositoryConfigV2", body={"config": config}) == {"previous": None}
    assert api("updateRepositoryConfigV2", body={"config": config})["previous"]
    api("getRepositoryConfigV2", query={"type": ["GARBAGE_COLLECTOR"]})

    operations = [
        put("db", content=namespace("db")),
        put("db", "t", content=table(1)),
        put("v", content=view(1)),
        put("d", content=delta(1)),
        put("u", content=_UDF),
    ]
    body = _commit(*operations)
    head = api("commitV2", f"main@{NOTHING}", body=body)["targetBranch"]["hash"]
    deletion = {"type": "DELETE", "key": {"elements": ["u"]}}
    unchanged = {"type": "UNCHANGED", "key": {"elements": ["v"]}}
    body = _commit(deletion, unchanged)
    deleted = api("commitV2", "main", body=body, headers={"If-Match": f'"{head}"'})
    assert deleted["addedContents"] is None
    head = deleted["targetBranch"]["hash"]

    main = {"type": "BRANCH", "name": "main", "hash": head}
    api("createReferenceV2", body=main, query={"name": "dev", "type": "BRANCH"})
    api("createReferenceV1", body={**main, "name": "old"}, query={"sourceRefName": "main"})
    api("createReferenceV1", body={"type": "TAG", "name": "tag", "hash": head})
    body = _commit(put("db", "new", content=table(2)))
    body["commitMeta"]["properties"] = {"a": "b"}
    dev = api("commitV1", "dev", body=body, query={"expectedHash": head})["hash"]

    _read(api, head)
    _change(api, head, dev)

    api("getRefLogMorag", query={"max-records": 3})
    api("getSplitsMorag", "main", query={"parts": 3})
    assert api.succeeded == api.operations.keys()


def _read(api: DescribedApi, head: str) -> None:
    for fetch in ("MINIMAL", "ALL"):
        query = {"fetch": fetch}
        api("listReferencesV2", query=query)
        api("listReferencesV1", query=query)
        for name in ("main", "dev", "tag"):
            api("getReferenceV2", name, query=query)
            api("getReferenceV1", name, query=query)
        api("getHistoryV2", "dev", query=query)
        api("getLogV1", "dev", query={**query, "filter": "commit.message=='m'"})
    assert api("listReferencesV2", query={"max-records": 1})["hasMore"]
    api("getRecentChangesV2", "main", query={"scan-commits": 2})
    api("getEntriesV2", "main", query={"content": "true", "key": ["db.t", "v"]})
    assert api("getEntriesV2", f"@{head}")["effectiveReference"]["type"] == "DETACHED"
    api("getEntriesV1", "main", query={"namespaceDepth": 1})
    api("getDiffV2", "main", "dev")
    api("getDiffV1", "main...dev")
    for key in ("db", "db.t", "v", "d"):
        api("getContentV2", "main", key)
        api("getContentV1", key)
    api("getSeveralContentsV2", "main", query={"key": ["db.t", "absent"]})
    keys = {"requestedKeys": [{"elements": ["db", "t"]}]}
    api("getMultipleContentsV2", "main", body=keys)
    api("getMultipleContentsV1", body=keys, query={"ref": "main"})


def _change(api: DescribedApi, head: str, dev: str) -> None:
    dry = {"fromRefName": "dev", "fromHash": dev, "isDryRun": True}
    api("mergeV2", f"main@{head}", body=dry)
    api("mergeV1", "main", body=dry, query={"expectedHash": head})
    picked = {"fromRefName": "dev", "hashesToTransplant": [dev]}
    api("transplantV2", f"main@{head}", body={**picked, "isDryRun": True})
    api("transplantV1", "old", body=picked, query={"expectedHash": head})

    base = api("commitV2", f"main@{head}", body=_commit(put("x", content=table(3))))
    api("commitV2", f"dev@{dev}", body=_commit(put("x", content=table(4))))
    source = api("getReferenceV2", "dev")["reference"]["hash"]
    merge = {"fromRefName": "dev", "fromHash": source, "isReturnConflictAsResult": True}
    merged = api("mergeV2", f"main@{base['targetBranch']['hash']}", body=merge)
    assert any("conflict" in detail for detail in merged["details"])

    assign = {"type": "DETACHED", "hash": head}
    api("assignReferenceV2", f"dev@{source}", body=assign, query={"type": "BRANCH"})
    api("deleteReferenceV2", f"dev@{head}")
    query = {"expectedHash": head}
    api("assignReferenceV1", "tag", "tag", body=assign, query=query, status=204)
    api("deleteReferenceV1", "tag", "tag", query=query, status=204)

    api("createNamespaceV1", "main", "ns", body=namespace("ns"))
    update = {"propertyUpdates": {"a": "b"}, "propertyRemovals": ["c"]}
    api("updateNamespaceV1", "main", "ns", body=update, status=204)
    assert api("getNamespaceV1", "main", "ns")["properties"] == {"a": "b"}
    assert len(api("listNamespacesV1", "main")["namespaces"]) == 2
    api("deleteNamespaceV1", "main", "ns", status=204)


def test_errors_are_as_described(api: DescribedApi) -> None:
    spec = {"Nessie-Client-Spec": "2"}
    body = _commit(put("db", "t", content=table(1)))
    conflict = api("commitV2", f"main@{NOTHING}", body=body, headers=spec, status=409)
    assert conflict["errorDetails"]["conflicts"][0]["conflictType"] == "NAMESPACE_ABSENT"
    missing = api("getContentV2", "main", "db.t", headers=spec, status=404)
    assert missing["errorDetails"] == {
        "type": "CONTENT_KEY",
        "contentKey": {"elements": ["db", "t"]},
    }
    assert "errorDetails" not in api("getContentV2", "main", "db.t", status=404)
    api("getReferenceV2", "@", status=400)
    api("getReferenceV2", "absent", status=404)
    api("createReferenceV2", body={}, query={"name": "a", "type": "BRANCH"}, status=400)
    api("updateRepositoryConfigV2", body={"config": {"type": "OTHER"}}, status=400)


def test_errors_without_a_body_are_described(api: DescribedApi) -> None:
    assert api("listReferencesV2", query={"max-records": "many"}, status=404) is None
    assert api("listReferencesV1", query={"fetch": "SOME"}, status=404) is None
    assert api("getContentV1", ".*x", status=404) is None
    for id, (method, path, operation) in api.operations.items():
        refused = api.ask(method, path.replace("{", "").replace("}", ""), "", _ACCEPTING_XML)
        assert (id, refused.status, refused.body) == (id, 406, b"")
        assert "content" not in api.resolved(operation["responses"]["406"])


@pytest.mark.parametrize(
    ("name", "required", "optional"),
    [
        # These omit defaults or unset fields: such fields are sent only if they are set.
        ("ReferenceView", {"type", "hash"}, {"name", "metadata"}),
        ("NessieError", {"serverStackTrace"}, {"errorDetails"}),
        ("MergedKey", {"key", "mergeBehavior"}, {"conflict"}),
        ("CommitMeta", {"authors", "parentCommitHashes"}, {"allProperties", "commitTime"}),
        # These write defaults: clients get a null.
        ("Entry", {"content"}, set()),
        ("MergedV1", {"sourceCommits", "targetCommits"}, set()),
        # Clients may omit a field with a default, though we send it.
        ("IcebergTable", {"metadataLocation"}, {"id"}),
        ("MergeBody", {"fromRefName", "fromHash"}, {"commitMeta", "isDryRun"}),
    ],
)
def test_a_field_is_required_if_it_is_always_sent(
    api: DescribedApi, name: str, required: set[str], optional: set[str]
) -> None:
    schema = api.document["components"]["schemas"][name]
    assert required <= set(schema["required"])
    assert optional <= schema["properties"].keys() - set(schema["required"])


@pytest.mark.parametrize(
    ("id", "path", "body"),
    [
        ("assignReferenceV2", ["main"], {"type": "BRANCH", "name": "main"}),
        ("assignReferenceV2", ["main"], {"type": "TAG", "name": "main"}),
        ("commitV2", [f"main@{NOTHING}"], {"commitMeta": {"message": "m"}}),
        ("commitV2", [f"main@{NOTHING}"], {"commitMeta": {"message": "m"}, "operations": []}),
        ("getMultipleContentsV2", ["main"], {}),
        ("mergeV2", [f"main@{NOTHING}"], {"fromRefName": "main"}),
        ("transplantV2", [f"main@{NOTHING}"], {"fromRefName": "main"}),
        ("transplantV2", [f"main@{NOTHING}"], {"fromRefName": "main", "hashesToTransplant": []}),
    ],
)
def test_fields_that_every_call_needs_are_required(
    api: DescribedApi, id: str, path: list[str], body: Any
) -> None:
    assert not api.fits(id, body)
    api(id, *path, body=body, status=400)


@pytest.mark.parametrize(
    "field",
    [
        {"hash": NOTHING},
        {"committer": "me"},
        {"commitTime": "2024-05-06T07:08:09Z"},
        {"parentCommitHashes": [NOTHING]},
        {"unknown": 1},
    ],
)
def test_fields_that_the_server_sets_are_refused_from_clients(
    api: DescribedApi, field: Any
) -> None:
    body = _commit(put("t", content=table(1)))
    body["commitMeta"] |= field
    assert not api.fits("commitV2", body)
    api("commitV2", f"main@{NOTHING}", body=body, status=400)


def test_an_omitted_field_is_never_null(api: DescribedApi) -> None:
    schema = {"$ref": "#/components/schemas/ReferenceView", **api.document}
    reference = {"type": "DETACHED", "hash": NOTHING}
    Draft202012Validator(schema).validate(reference)
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate({**reference, "name": None})


def test_descriptions_name_fields_as_they_are_sent(api: DescribedApi) -> None:
    text = api.document["components"]["schemas"]["Committed"]["description"]
    assert "`addedContents`" in text


def test_the_openapi_document_has_the_versions(api: DescribedApi) -> None:
    info = api.document["info"]
    assert info["version"] == version("morag")
    assert info["x-nessie-spec-version"] == SPEC_VERSION


def test_without_namespace_validation_no_spec_version_is_claimed_in_the_document() -> None:
    settings = morag.Settings(namespace_validation=False)
    with morag.open("memory:", settings) as repository:
        assert "x-nessie-spec-version" not in DescribedApi(repository).document["info"]


def test_the_yaml_document_has_the_same_content(api: DescribedApi) -> None:
    response = api.ask("GET", "/nessie-openapi/openapi.yaml")
    assert (b"content-type", b"application/x-yaml") in response.headers
    assert yaml.safe_load(response.body) == api.document


def test_the_json_document_is_compact(api: DescribedApi) -> None:
    response = api.ask("GET", "/openapi.json")
    assert (b"content-type", b"application/json") in response.headers
    compact = json.dumps(json.loads(response.body), separators=(",", ":"), ensure_ascii=False)
    assert response.body == compact.encode()


def _commit(*operations: Any) -> Any:
    return {"commitMeta": {"message": "m"}, "operations": list(operations)}
