"""The server, branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import NO_CONTENT, ok, ok_at, ok_page
from morag.api.checks import KINDS, Checks
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.paths import NoSuchPath
from morag.api.reading import asked_by
from morag.api.v1 import answers
from morag.api.v1.answers import ReferenceV1
from morag.api.v1.declared import (
    EXPECTED_HASH,
    MAX_RECORDS,
    PAGE_TOKEN,
    endpoint,
    expected_hash,
    single,
)
from morag.errors import BadRequest
from morag.service.paging import Paging
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer, Pieces
    from morag.model.names import ReferenceKind


@endpoint("GET", "/config", "What this server is", gives=answers.ConfigV1, any_media=True)
def get_config(call: Call) -> Answer:
    config = call.service.config
    return ok(answers.ConfigV1(config.default_branch, config.max_supported_api_version))


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=answers.ReferencesV1,
)
def list_references(call: Call) -> Answer:
    query = call.query
    all, filter = query.fetches_all(), query.text("filter")
    paging = Paging(query.limit("maxRecords"), query.text("pageToken"))

    def work() -> Pieces:
        found = call.service.references.list(paging, fetch_all=all, filter=filter)
        return ok_page("references", found, answers.ReferencesV1, ReferenceV1.of)

    return call.in_pieces(work)


@endpoint("GET", "/trees/tree", "Get the default branch", gives=answers.ReferenceV1)
def get_default_branch(call: Call) -> Answer:
    name = call.service.default_branch
    return call.near(lambda: _reference(call, name, fetch_all=False))


@endpoint(
    "POST",
    "/trees/tree",
    "Create a branch or tag",
    query=(Parameter("sourceRefName", "The reference that the hash is on."),),
    takes=bodies.ReferenceBody,
    gives=answers.ReferenceV1,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    body, source = call.body(bodies.REFERENCE), call.query.text("sourceRefName")
    with Checks("createReference") as check:
        check.is_there("reference", body)
        check.name("sourceRefName", source)
    assert body is not None, "checked"
    if isinstance(body, bodies.DetachedBody):
        raise BadRequest("createReference.reference: must be a branch or a tag")
    asked = Asked(source, body.hash or "")
    kind: ReferenceKind = "BRANCH" if isinstance(body, bodies.BranchBody) else "TAG"
    references = call.service.references
    return call.in_turn(lambda: single(references.create(kind, body.name, asked)))


@endpoint(
    "GET",
    "/trees/tree/{name}",
    "Get a branch or tag",
    query=(FETCH,),
    gives=answers.ReferenceV1,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    all, name = call.query.fetches_all(), call.parameters["name"]
    with Checks("getReferenceByName") as check:
        check.name("params.refName", name)
    if all:
        return call.in_thread(lambda: _reference(call, name, fetch_all=True))
    return call.near(lambda: _reference(call, name, fetch_all=False))


@endpoint(
    "PUT",
    "/trees/{kind}/{name}",
    "Point a branch or tag elsewhere",
    query=(EXPECTED_HASH,),
    takes=bodies.ReferenceBody,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    body, kind = call.body(bodies.REFERENCE), _kind(call)
    with Checks("assignReference") as check:
        target = _checked_target(call, check)
        check.is_there("assignTo", body)
    assert body is not None, "checked"
    to = asked_by(body)

    def work() -> Response:
        call.service.references.assign(kind, target, to)
        return NO_CONTENT

    return call.in_turn(work)


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
        target = _checked_target(call, check)

    def work() -> Response:
        call.service.references.delete(kind, target)
        return NO_CONTENT

    return call.in_turn(work)


def _reference(call: Call, name: str, *, fetch_all: bool) -> Response:
    found = call.service.references.get(name, fetch_all=fetch_all)
    return ok_at(ReferenceV1.of(found), found.reference)


def _kind(call: Call) -> ReferenceKind:
    """A path with another word in it leads nowhere."""
    kind = KINDS.get(call.parameters["kind"])
    if kind is None:
        raise NoSuchPath(call.request.path)
    return kind


def _checked_target(call: Call, check: Checks) -> Asked:
    name = call.parameters["name"]
    check.name("referenceName", name)
    return Asked(name, expected_hash(call, check))
