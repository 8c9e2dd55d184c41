"""Branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import ok_at, ok_in_steps, ok_page
from morag.api.checks import KINDS, Checks
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.reading import asked_by
from morag.api.v2 import answers
from morag.api.v2.answers import ReferenceView
from morag.api.v2.declared import MAX_RECORDS, PAGE_TOKEN, TYPE, endpoint
from morag.errors import BadRequest
from morag.model.names import NAME_RULE
from morag.service.paging import Paging
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer, Pieces
    from morag.model.names import ReferenceKind
    from morag.model.references import Reference


@endpoint(
    "GET",
    "/trees",
    "List branches and tags",
    query=(FETCH, FILTER, MAX_RECORDS, PAGE_TOKEN),
    gives=answers.References,
)
def list_references(call: Call) -> Answer:
    query = call.query
    all, filter = query.fetches_all(), query.text("filter")
    paging = Paging(query.limit("max-records"), query.text("page-token"))

    def work() -> Pieces:
        found = call.service.references.list(paging, fetch_all=all, filter=filter)
        return ok_page("references", found, answers.References, ReferenceView.described)

    return call.in_pieces(work)


@endpoint(
    "POST",
    "/trees",
    "Create a branch or tag",
    query=(
        Parameter("name", "The name of the new reference.", required=True),
        Parameter("type", "What it shall be.", values=("BRANCH", "TAG"), required=True),
    ),
    takes=bodies.ReferenceBody,
    gives=answers.SingleReference,
    errors=(404, 409),
)
def create_reference(call: Call) -> Answer:
    source = call.body(bodies.REFERENCE)
    name, type = call.query.text("name"), call.query.text("type")
    with Checks("createReference") as check:
        check.is_there("name", name)
        check.name("name", name)
        check.is_there("type", type)
        check.kind("type", type)
    assert name is not None and type is not None, "checked"
    asked = Asked() if source is None else asked_by(source)
    references = call.service.references
    return call.in_turn(lambda: _single(references.create(KINDS[type], name, asked)))


@endpoint(
    "GET",
    "/trees/{ref}",
    "Get a branch or tag",
    query=(FETCH,),
    gives=answers.SingleReference,
    errors=(404,),
)
def get_reference(call: Call) -> Answer:
    all = call.query.fetches_all()
    name = _name_only(call, "getReferenceByName", "by name")
    if all:
        return call.in_thread(lambda: _described(call, name, fetch_all=True))
    return call.near(lambda: _described(call, name, fetch_all=False))


@endpoint(
    "PUT",
    "/trees/{ref}",
    "Point a branch or tag elsewhere",
    query=(TYPE,),
    takes=bodies.ReferenceBody,
    gives=answers.SingleReference,
    errors=(404, 409),
)
def assign_reference(call: Call) -> Answer:
    body = call.body(bodies.REFERENCE)
    with Checks("assignReference") as check:
        kind = _checked_kind(call, check)
        check.is_there("assignTo", body)
    assert body is not None, "checked"
    target, to = call.target(), asked_by(body)
    return call.in_turn(lambda: _single(call.service.references.assign(kind, target, to)))


@endpoint(
    "DELETE",
    "/trees/{ref}",
    "Delete a branch or tag",
    query=(TYPE,),
    gives=answers.SingleReference,
    errors=(404, 409),
)
def delete_reference(call: Call) -> Answer:
    with Checks("deleteReference") as check:
        kind = _checked_kind(call, check)
    target = call.target()
    return call.in_turn(lambda: _single(call.service.references.delete(kind, target)))


@endpoint(
    "GET",
    "/trees/{ref}/recent-changes",
    "Recent heads of a reference, checked against the store",
    query=(Parameter("scan-commits", "How many commits to check below the head.", "integer"),),
    gives=answers.RecentChanges,
    errors=(404,),
)
def get_recent_changes(call: Call) -> Answer:
    scan = call.query.number("scan-commits") or 0
    name = _name_only(call, "getReferenceHistory", "history")
    references = call.service.references
    return call.in_pieces(
        lambda: ok_in_steps(references.history(name, scan), answers.RecentChanges.of)
    )


def _checked_kind(call: Call, check: Checks) -> ReferenceKind | None:
    """What kind of reference is to be changed, if the client says that."""
    kind = call.query.text("type")
    check.ref_spec("reference", call.parameters["ref"])
    check.kind("type", kind)
    return None if kind is None else KINDS.get(kind)


def _name_only(call: Call, where: str, what: str) -> str:
    with Checks(where) as check:
        check.ref_spec("params.ref", call.parameters["ref"], NAME_RULE)
    asked = call.place()
    if asked.names_a_commit:
        raise BadRequest(f"Hashes are not allowed when fetching a reference {what}")
    assert asked.name is not None, "a path has a name or says that there is none"
    return asked.name


def _described(call: Call, name: str, *, fetch_all: bool) -> Response:
    found = call.service.references.get(name, fetch_all=fetch_all)
    return ok_at(answers.SingleReference(ReferenceView.described(found)), found.reference)


def _single(reference: Reference) -> Response:
    return ok_at(answers.SingleReference(ReferenceView.of(reference)), reference)
