"""The list that the endpoints of version 1 go to, and how it names places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import checked, ok_at
from morag.api.checks import required
from morag.api.endpoints import Endpoints, Parameter
from morag.api.v1_answers import ReferenceV1
from morag.model.names import check_hash
from morag.service.places import Asked, asked_beside
from morag.service.references import Described

if TYPE_CHECKING:
    from morag.api.call import Call
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


def beside(name: str | None, where: str, hash: str | None) -> Asked:
    if hash is None:
        return Asked(name)
    return checked(where, lambda text: asked_beside(name, text), hash)


def on_reference(call: Call, name: str | None, where: str) -> Asked:
    return beside(name, where, call.query.text("hashOnRef"))


def expected(call: Call, where: str, name: str) -> Asked:
    """The expected hash is a hash and nothing else. If-Match may say it instead."""
    parameter = f"{where}.expectedHash"
    hash = call.query.text("expectedHash")
    if hash is not None:
        checked(parameter, check_hash, hash)
    asked = call.expected(name, hash)
    return asked if asked.names_a_commit else required(parameter, None)


def single(reference: Reference) -> Response:
    return ok_at(ReferenceV1.of(Described(reference)), reference)
