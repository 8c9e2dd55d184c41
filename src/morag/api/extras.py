"""The endpoints that Nessie does not have, below `/morag/v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import Endpoints, Parameter
from morag.api.v2.parameters import MAX_RECORDS, PAGE_TOKEN
from morag.rest.responses import ReferenceView, RefLog, Splits

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer

endpoint = Endpoints("/morag/v1")

_PAGE: Final = 100
_PARTS: Final = 8


@endpoint(
    "GET",
    "/reflog",
    "List how references moved, newest first",
    query=(MAX_RECORDS, PAGE_TOKEN),
    gives=RefLog,
)
def get_ref_log(call: Call) -> Answer:
    limit = call.query.limit("max-records") or _PAGE
    token = call.query.text("page-token") or None

    def work() -> Response:
        page = call.service.references.moves(limit, token)
        return ok(RefLog(page.items, page.token, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/trees/{ref}/splits",
    "Keys that cut a commit into ranges, for clients that list several at once",
    query=(Parameter("parts", "The maximum number of ranges.", "integer"),),
    gives=Splits,
    errors=(404,),
)
def get_splits(call: Call) -> Answer:
    parts = call.query.limit("parts") or _PARTS
    with Checks("getSplits") as check:
        spec = check.ref_spec("ref", call.parameters["ref"])
    ref = call.ref(spec)

    def work() -> Response:
        reference, keys = call.service.listings.splits(ref, parts)
        return ok(Splits(ReferenceView.of(reference), keys))

    return call.in_thread(work)


ENDPOINTS: Final = tuple(endpoint.list)
