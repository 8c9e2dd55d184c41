"""Endpoints for the server, branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import actions, body_readers
from morag.api.call import NO_CONTENT, ok
from morag.api.checks import KINDS, Checks
from morag.api.endpoints import FETCH_METADATA, FILTER, Parameter
from morag.api.json_pieces import json_encoding
from morag.api.url_parsing import NoSuchPath
from morag.api.v1 import structs
from morag.api.v1.parameters import (
    EXPECTED_HASH,
    MAX_RECORDS,
    PAGE_TOKEN,
    checked_target,
    endpoint,
    paging,
    single,
)
from morag.api.v1.structs import ReferenceV1
from morag.errors import BadRequest
from morag.rest import requests
from morag.rest.responses import ReferenceView
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.names import ReferenceKind
    from morag.model.references import Reference

_REFERENCE: Final = json_encoding(
    "reference of version 1", lambda found: ReferenceV1.of(ReferenceView.of(found))
)


@endpoint(
    "GET", "/config", "Get the configuration of the server", gives=structs.ConfigV1, any_media=True
)
def get_config(call: Call) -> Answer:
    config = call.service.config
    return ok(structs.ConfigV1(config.default_branch, config.max_supported_api_version))


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH_METADATA, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=structs.ReferencesV1,
)
def list_references(call: Call) -> Answer:
    return actions.list_references(
        call, paging(call), structs.ReferencesV1, _REFERENCE, ReferenceV1.of
    )


@endpoint("GET", "/trees/tree", "Get the default branch", gives=structs.ReferenceV1)
def get_default_branch(call: Call) -> Answer:
    return actions.get_reference(call, call.service.default_branch, ReferenceV1.of)


@endpoint(
    "POST",
    "/trees/tree",
    "Create a branch or tag",
    query=(Parameter("sourceRefName", "The reference that the hash is on."),),
    takes=requests.ReferenceBody,
    gives=structs.ReferenceV1,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    body, source = call.body(body_readers.REFERENCE), call.query.text("sourceRefName")
    with Checks("createReference") as check:
        check.is_there("reference", body)
        check.name("sourceRefName", source)
    assert body is not None, "checked"
    if isinstance(body, requests.DetachedBody):
        raise BadRequest("createReference.reference: must be a branch or a tag")
    kind: ReferenceKind = "BRANCH" if isinstance(body, requests.BranchBody) else "TAG"
    at = RequestedRef.of(source, body.hash)
    return actions.create_reference(call, kind, body.name, at, single)


@endpoint(
    "GET",
    "/trees/tree/{name}",
    "Get a branch or tag",
    query=(FETCH_METADATA,),
    gives=structs.ReferenceV1,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    fetch_all, name = call.query.fetches_all(), call.parameters["name"]
    with Checks("getReferenceByName") as check:
        check.name("params.refName", name)
    return actions.get_reference(call, name, ReferenceV1.of, fetch_all=fetch_all)


@endpoint(
    "PUT",
    "/trees/{kind}/{name}",
    "Assign a branch or tag to another commit",
    query=(EXPECTED_HASH,),
    takes=requests.ReferenceBody,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    body, kind = call.body(body_readers.REFERENCE), _kind(call)
    with Checks("assignReference") as check:
        target = checked_target(call, check, "referenceName")
        check.is_there("assignTo", body)
    assert body is not None, "checked"
    to = RequestedRef.of_body(body)
    return actions.assign_reference(call, kind, target, to, _no_content)


@endpoint(
    "DELETE",
    "/trees/{kind}/{name}",
    "Delete a branch or tag",
    query=(EXPECTED_HASH,),
    errors=(404, 409),
)
def delete_reference(call: Call) -> Answer:
    kind = _kind(call)
    with Checks("deleteReference") as check:
        target = checked_target(call, check, "referenceName")
    return actions.delete_reference(call, kind, target, _no_content)


def _no_content(_: Reference) -> Response:
    return NO_CONTENT


def _kind(call: Call) -> ReferenceKind:
    """The kind in the path. Any other word there gives 404."""
    kind = KINDS.get(call.parameters["kind"])
    if kind is None:
        raise NoSuchPath(call.request.path)
    return kind
