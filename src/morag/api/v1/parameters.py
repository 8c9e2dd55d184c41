"""The list of endpoints of version 1, and the parameters that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import ok_at
from morag.api.endpoints import Endpoints, Parameter
from morag.api.v1.structs import ReferenceV1
from morag.rest.responses import ReferenceView
from morag.service.paging import Paging
from morag.service.ref_resolution import RequestedRef

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.checks import Checks
    from morag.api.http import Response
    from morag.model.references import Reference

endpoint: Final = Endpoints("/api/v1")

MAX_RECORDS: Final = Parameter(
    "maxRecords", "The maximum number of items in the response.", "integer"
)
PAGE_TOKEN: Final = Parameter("pageToken", "The `token` of the previous page.")
REF: Final = Parameter("ref", "The reference; the default branch if absent.")
HASH_ON_REF: Final = Parameter("hashOnRef", "The commit to read; the head if absent.")
EXPECTED_HASH: Final = Parameter(
    "expectedHash", "The expected hash of the reference.", required=True
)


def paging(call: Call) -> Paging:
    return Paging(call.query.limit("maxRecords"), call.query.text("pageToken"))


def checked_target(call: Call, check: Checks, parameter: str) -> RequestedRef:
    """The reference to change, at its expected hash, which may be in If-Match instead."""
    name = call.parameters["name"]
    check.name(parameter, name)
    hash = call.query.text("expectedHash")
    if hash is None:
        hash = call.matched()
    check.is_there("expectedHash", hash)
    check.hash("expectedHash", hash)
    return RequestedRef.of(name, hash or "")


def single(reference: Reference) -> Response:
    return ok_at(ReferenceV1.of(ReferenceView.of(reference)), reference)
