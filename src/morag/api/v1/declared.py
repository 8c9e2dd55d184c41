"""The list that the endpoints of version 1 go to, and how it names places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import ok_at
from morag.api.endpoints import Endpoints, Parameter
from morag.api.v1.answers import ReferenceV1
from morag.service.references import Described

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.checks import Checks
    from morag.api.http import Response
    from morag.model.references import Reference

endpoint: Final = Endpoints("/api/v1")

MAX_RECORDS: Final = Parameter("maxRecords", "How many to answer, at the most.", "integer")
PAGE_TOKEN: Final = Parameter("pageToken", "The `token` of the page before.")
REF: Final = Parameter("ref", "The reference; the default branch if absent.")
HASH_ON_REF: Final = Parameter("hashOnRef", "The commit to read; the head if absent.")
EXPECTED_HASH: Final = Parameter(
    "expectedHash", "Where the client believes the reference to be.", required=True
)


def expected_hash(call: Call, check: Checks) -> str:
    """The expected hash is a hash and nothing else. If-Match may say it instead."""
    hash = call.query.text("expectedHash")
    if hash is None:
        hash = call.matched()
    check.is_there("expectedHash", hash)
    check.hash("expectedHash", hash)
    return hash or ""


def single(reference: Reference) -> Response:
    return ok_at(ReferenceV1.of(Described(reference)), reference)
