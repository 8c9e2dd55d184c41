"""Branches and tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import answers, bodies
from morag.api.answers import ReferenceView
from morag.api.call import ok, ok_at
from morag.api.checks import optional_kind, reference_kind, reference_name, required
from morag.api.endpoints import FETCH, FILTER, Parameter
from morag.api.reading import asked_by
from morag.api.v2.declared import MAX_RECORDS, PAGE_TOKEN, TYPE, endpoint
from morag.errors import BadRequest
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
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
    all, limit = query.fetches_all(), query.limit("max-records")
    filter, token = query.text("filter"), query.text("page-token")

    def work() -> Response:
        page = call.service.references.list(fetch_all=all, filter=filter, limit=limit, token=token)
        shown = tuple(map(ReferenceView.described, page.items))
        return ok(answers.References(page.token, shown, page.token is not None))

    return call.in_thread(work)


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
    source = bodies.REFERENCE.read(call.request.body)
    where = "createReference"
    name = reference_name(f"{where}.name", required(f"{where}.name", call.query.text("name")))
    kind = reference_kind(f"{where}.type", required(f"{where}.type", call.query.text("type")))
    asked = Asked() if source is None else asked_by(source)
    return call.in_turn(lambda: _single(call.service.references.create(kind, name, asked)))


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
    name = _name_only(call, "getReferenceByName.params.ref", "by name")
    if all:
        return call.in_thread(lambda: _described(call, name, fetch_all=True))
    return _described(call, name, fetch_all=False)


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
    body = bodies.REFERENCE.read(call.request.body)
    where = "assignReference"
    kind = optional_kind(f"{where}.type", call.query.text("type"))
    target = call.target(f"{where}.reference")
    to = asked_by(bodies.REFERENCE.required(f"{where}.assignTo", body))
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
    kind = optional_kind("deleteReference.type", call.query.text("type"))
    target = call.target("deleteReference.reference")
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
    name = _name_only(call, "getReferenceHistory.params.ref", "history")
    return call.in_thread(
        lambda: ok(answers.RecentChanges.of(call.service.references.history(name, scan)))
    )


def _name_only(call: Call, where: str, what: str) -> str:
    refused = BadRequest(f"Hashes are not allowed when fetching a reference {what}")
    try:
        asked = call.place(where)
    except BadRequest as problem:
        raise problem if str(problem).startswith(where) else refused from None
    if asked.names_a_commit:
        raise refused
    assert asked.name is not None, "a path has a name or says that there is none"
    return asked.name


def _described(call: Call, name: str, *, fetch_all: bool) -> Response:
    found = call.service.references.get(name, fetch_all=fetch_all)
    return ok_at(answers.SingleReference(ReferenceView.described(found)), found.reference)


def _single(reference: Reference) -> Response:
    return ok_at(answers.SingleReference(ReferenceView.of(reference)), reference)
