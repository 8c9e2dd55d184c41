"""What Morag offers beyond the original, under a path of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.endpoints import Endpoints, Parameter
from morag.api.v2 import answers
from morag.api.v2.declared import MAX_RECORDS, PAGE_TOKEN

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
    "How references moved, newest first",
    query=(MAX_RECORDS, PAGE_TOKEN),
    gives=answers.RefLog,
)
def get_ref_log(call: Call) -> Answer:
    limit = call.query.limit("max-records") or _PAGE
    token = call.query.text("page-token") or None

    def work() -> Response:
        page = call.service.references.moves(limit, token)
        return ok(answers.RefLog(page.items, page.token, page.token is not None))

    return call.in_thread(work)


@endpoint(
    "GET",
    "/trees/{ref}/splits",
    "Keys that cut a commit into ranges, for clients that list several at once",
    query=(Parameter("parts", "How many ranges, at the most.", "integer"),),
    gives=answers.Splits,
    errors=(404,),
)
def get_splits(call: Call) -> Answer:
    parts = call.query.limit("parts") or _PARTS
    with Checks("getSplits") as check:
        check.ref_spec("ref", call.parameters["ref"])
    asked = call.place()

    def work() -> Response:
        reference, keys = call.service.listings.splits(asked, parts)
        return ok(answers.Splits(answers.ReferenceView.of(reference), keys))

    return call.in_thread(work)


ENDPOINTS: Final = tuple(endpoint.list)
