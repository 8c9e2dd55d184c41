"""What Morag offers beyond the original, under a path of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import answers
from morag.api.call import ok
from morag.api.endpoints import Endpoints
from morag.api.v2.declared import MAX_RECORDS, PAGE_TOKEN

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer

endpoint = Endpoints("/morag/v1")

_PAGE: Final = 100


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
        page = call.service.repository.references.moves(limit, token)
        return ok(answers.RefLog(page.token, page.items, page.token is not None))

    return call.in_thread(work)


ENDPOINTS: Final = tuple(endpoint.list)
