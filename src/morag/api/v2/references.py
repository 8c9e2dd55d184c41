"""Endpoints for branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import actions, body_readers
from morag.api.call import ok_at, ok_in_steps
from morag.api.checks import KINDS, Checks
from morag.api.endpoints import FETCH_METADATA, FILTER, Parameter
from morag.api.json_pieces import json_encoding
from morag.api.v2.parameters import MAX_RECORDS, PAGE_TOKEN, TYPE, endpoint, paging
from morag.errors import BadRequest
from morag.model.names import NAME_RULE
from morag.model.references import ReferenceHistory
from morag.rest import requests, responses
from morag.rest.responses import ReferenceView
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.names import ReferenceKind
    from morag.model.references import Reference

_REFERENCE: Final = json_encoding("reference of version 2", ReferenceView.of)


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH_METADATA, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=responses.References,
)
def list_references(call: Call) -> Answer:
    return actions.list_references(call, paging(call), responses.References, _REFERENCE)


@endpoint(
    "POST",
    "/trees",
    "Create a branch or tag",
    query=(
        Parameter("name", "The name of the new reference.", required=True),
        Parameter(
            "type", "The kind of the new reference.", values=("BRANCH", "TAG"), required=True
        ),
    ),
    takes=requests.ReferenceBody,
    gives=responses.SingleReference,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    source = call.body(body_readers.REFERENCE)
    name, type = call.query.text("name"), call.query.text("type")
    with Checks("createReference") as check:
        check.is_there("name", name)
        check.name("name", name)
        check.is_there("type", type)
        check.kind("type", type)
    assert name is not None and type is not None, "checked"
    ref = RequestedRef() if source is None else RequestedRef.of_body(source)
    return actions.create_reference(call, KINDS[type], name, ref, _single)


@endpoint(
    "GET",
    "/trees/{ref}",
    "Get a branch or tag",
    query=(FETCH_METADATA,),
    gives=responses.SingleReference,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    name, fetch_all = call.once(_name_and_fetch)
    return actions.get_reference(call, name, responses.SingleReference, fetch_all=fetch_all)


def _name_and_fetch(call: Call) -> tuple[str, bool]:
    fetch_all = call.query.fetches_all()
    return _name_only(call, "getReferenceByName", "by name"), fetch_all


@endpoint(
    "PUT",
    "/trees/{ref}",
    "Assign a branch or tag to another commit",
    query=(TYPE,),
    takes=requests.ReferenceBody,
    gives=responses.SingleReference,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    body = call.body(body_readers.REFERENCE)
    with Checks("assignReference") as check:
        ref = check.ref_spec("reference", call.parameters["ref"])
        kind = _checked_kind(call, check)
        check.is_there("assignTo", body)
    assert body is not None, "checked"
    target, to = call.target(ref), RequestedRef.of_body(body)
    return actions.assign_reference(call, kind, target, to, _single)


@endpoint(
    "DELETE",
    "/trees/{ref}",
    "Delete a branch or tag",
    query=(TYPE,),
    gives=responses.SingleReference,
    errors=(404, 409),
)
def delete_reference(call: Call) -> Answer:
    with Checks("deleteReference") as check:
        ref = check.ref_spec("reference", call.parameters["ref"])
        kind = _checked_kind(call, check)
    return actions.delete_reference(call, kind, call.target(ref), _single)


@endpoint(
    "GET",
    "/trees/{ref}/recent-changes",
    "List recent heads of a reference, checked against the store",
    query=(Parameter("scan-commits", "The number of commits below the head to check.", "integer"),),
    gives=ReferenceHistory,
    errors=(404,),
)
def get_recent_changes(call: Call) -> Answer:
    scan = call.query.number("scan-commits") or 0
    name = _name_only(call, "getReferenceHistory", "history")
    references = call.service.references
    return call.in_pieces(lambda: ok_in_steps(references.history(name, scan)))


def _checked_kind(call: Call, check: Checks) -> ReferenceKind | None:
    """The kind that the reference must have; None if the client sends none."""
    kind = call.query.text("type")
    check.kind("type", kind)
    return None if kind is None else KINDS.get(kind)


def _name_only(call: Call, method: str, request: str) -> str:
    """The name in the path, which must not have a hash or steps."""
    with Checks(method) as check:
        spec = check.ref_spec("params.ref", call.parameters["ref"], NAME_RULE)
    ref = call.ref(spec)
    if ref.names_a_commit:
        raise BadRequest(f"Hashes are not allowed when fetching a reference {request}")
    assert ref.name is not None, "a path has a name, or DETACHED"
    return ref.name


def _single(reference: Reference) -> Response:
    return ok_at(responses.SingleReference(ReferenceView.of(reference)), reference)
