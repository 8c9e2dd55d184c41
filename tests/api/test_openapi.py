"""The description of the API says what the API does."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml  # type: ignore[import-untyped]
from jsonschema_rs import Draft202012Validator, ValidationError
from msgspec import Struct

import morag
from morag.api import bodies
from morag.api.app import ENDPOINTS
from morag.api.meanings import OF_FIELDS
from morag.service.service import SPEC_VERSION
from tests.api.described import Described, references
from tests.clients.rest import NOTHING, delta, namespace, put, table, view

if TYPE_CHECKING:
    from collections.abc import Iterator

_UDF: Final = {"type": "UDF", "sqlText": "1", "dialect": "spark"}
_ACCEPTING_XML: Final = ((b"accept", b"application/xml"),)


@pytest.fixture
def api() -> Iterator[Described]:
    with morag.open("memory:") as repository:
        yield Described(repository)


def test_every_endpoint_is_described(api: Described) -> None:
    described = {(method, path) for method, path, _ in api.operations.values()}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert len(api.operations) == len(ENDPOINTS), "an operation id is taken twice"


def test_every_parameter_is_described_once(api: Described) -> None:
    for endpoint in ENDPOINTS:
        operation = api.document["paths"][endpoint.path][endpoint.method.lower()]
        named = [(one["in"], one["name"]) for one in operation["parameters"]]
        in_path = {part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")}
        assert len(set(named)) == len(named)
        assert {name for where, name in named if where == "path"} == in_path
        asked = {parameter.name for parameter in endpoint.query}
        assert {name for where, name in named if where == "query"} == asked
        assert all(one["description"] for one in operation["parameters"])


def test_every_field_of_a_request_is_explained(api: Described) -> None:
    schemas = api.document["components"]["schemas"]
    fields: set[str] = set()
    for name, struct in vars(bodies).items():
        if not isinstance(struct, type(Struct)) or struct.__module__ != bodies.__name__:
            continue
        fields.update(struct.__struct_encode_fields__)
        for field, property in schemas.get(name, {"properties": {}})["properties"].items():
            assert field == "type" or property["description"].endswith("."), (name, field)
    assert schemas["MergeBody"]["properties"]["keyMergeModes"]["description"]
    assert not OF_FIELDS.keys() - fields, "meanings of fields that no request has"


def test_everything_that_is_referred_to_is_there(api: Described) -> None:
    found = set(references(api.document))
    assert "#/components/schemas/Content" in found
    for reference in found:
        assert api.resolved({"$ref": reference})


def test_every_schema_is_one(api: Described) -> None:
    for schema in api.document["components"]["schemas"].values():
        Draft202012Validator({**schema, "components": api.document["components"]})


def test_every_operation_answers_as_described(api: Described) -> None:
    """A catalog's life, in which every operation succeeds at least once."""
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


def _read(api: Described, head: str) -> None:
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


def _change(api: Described, head: str, dev: str) -> None:
    dry = {"fromRefName": "dev", "fromHash": dev, "isDryRun": True}
    api("mergeV2", f"main@{head}", body=dry)
    api("mergeV1", "main", body=dry, query={"expectedHash": head})
    picked = {"fromRefName": "dev", "hashesToTransplant": [dev]}
    api("transplantV2", f"main@{head}", body={**picked, "isDryRun": True})
    api("transplantV1", "old", body=picked, query={"expectedHash": head})

    base = api("commitV2", f"main@{head}", body=_commit(put("x", content=table(3))))
    api("commitV2", f"dev@{dev}", body=_commit(put("x", content=table(4))))
    theirs = api("getReferenceV2", "dev")["reference"]["hash"]
    merge = {"fromRefName": "dev", "fromHash": theirs, "isReturnConflictAsResult": True}
    merged = api("mergeV2", f"main@{base['targetBranch']['hash']}", body=merge)
    assert any("conflict" in detail for detail in merged["details"])

    assign = {"type": "DETACHED", "hash": head}
    api("assignReferenceV2", f"dev@{theirs}", body=assign, query={"type": "BRANCH"})
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


def test_errors_are_as_described(api: Described) -> None:
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


def test_errors_without_a_body_are_described(api: Described) -> None:
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
        # Defaults are left out, and so are fields one by one: both are sent only if they are set.
        ("ReferenceView", {"type", "hash"}, {"name", "metadata"}),
        ("NessieError", {"serverStackTrace"}, {"errorDetails"}),
        ("MergedKey", {"key", "mergeBehavior"}, {"conflict"}),
        ("CommitMeta", {"authors", "parentCommitHashes"}, {"allProperties", "commitTime"}),
        # Defaults are written: clients find a null.
        ("Entry", {"content"}, set()),
        ("MergedV1", {"sourceCommits", "targetCommits"}, set()),
        # What clients send may lack whatever has a default, though we send it.
        ("IcebergTable", {"metadataLocation"}, {"id"}),
        ("MergeBody", {"fromRefName", "fromHash"}, {"commitMeta", "isDryRun"}),
    ],
)
def test_a_field_is_required_if_it_is_always_there(
    api: Described, name: str, required: set[str], optional: set[str]
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
def test_what_no_call_does_without_is_required(
    api: Described, id: str, path: list[str], body: Any
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
def test_what_the_server_sets_is_not_for_clients(api: Described, field: Any) -> None:
    body = _commit(put("t", content=table(1)))
    body["commitMeta"] |= field
    assert not api.fits("commitV2", body)
    api("commitV2", f"main@{NOTHING}", body=body, status=400)


def test_what_is_left_out_is_never_null(api: Described) -> None:
    schema = {"$ref": "#/components/schemas/ReferenceView", **api.document}
    reference = {"type": "DETACHED", "hash": NOTHING}
    Draft202012Validator(schema).validate(reference)
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate({**reference, "name": None})


def test_descriptions_name_fields_as_they_are_sent(api: Described) -> None:
    text = api.document["components"]["schemas"]["Committed"]["description"]
    assert "`addedContents`" in text


def test_the_description_tells_the_versions(api: Described) -> None:
    info = api.document["info"]
    assert info["version"] == version("morag")
    assert info["x-nessie-spec-version"] == SPEC_VERSION


def test_a_spec_that_is_not_kept_is_not_claimed() -> None:
    settings = morag.Settings(namespace_validation=False)
    with morag.open("memory:", settings) as repository:
        assert "x-nessie-spec-version" not in Described(repository).document["info"]


def test_clients_of_the_original_find_the_same_in_yaml(api: Described) -> None:
    response = api.ask("GET", "/nessie-openapi/openapi.yaml")
    assert (b"content-type", b"application/x-yaml") in response.headers
    assert yaml.safe_load(response.body) == api.document


def test_programs_get_it_compact(api: Described) -> None:
    response = api.ask("GET", "/openapi.json")
    assert (b"content-type", b"application/json") in response.headers
    compact = json.dumps(json.loads(response.body), separators=(",", ":"), ensure_ascii=False)
    assert response.body == compact.encode()


def _commit(*operations: Any) -> Any:
    return {"commitMeta": {"message": "m"}, "operations": list(operations)}
