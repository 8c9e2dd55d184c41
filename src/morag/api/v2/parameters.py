"""The list of endpoints of version 2, and the parameters that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api.endpoints import Endpoints, Parameter
from morag.service.paging import Paging

if TYPE_CHECKING:
    from morag.api.call import Call

endpoint: Final = Endpoints("/api/v2")

MAX_RECORDS: Final = Parameter(
    "max-records", "The maximum number of items in the response.", "integer"
)
PAGE_TOKEN: Final = Parameter("page-token", "The `token` of the previous page.")
KEY: Final = Parameter("key", "Only these keys.", repeated=True)
MIN_KEY: Final = Parameter("min-key", "The first key.")
MAX_KEY: Final = Parameter("max-key", "The last key.")
PREFIX_KEY: Final = Parameter("prefix-key", "Only this key and the keys below it.")
WITH_DOC: Final = Parameter(
    "with-doc", "Accepted and ignored: no documentation is stored.", "boolean"
)
FOR_WRITE: Final = Parameter("for-write", "Accepted and ignored: reads do not differ.", "boolean")
TYPE: Final = Parameter("type", "The expected kind of the reference.", values=("BRANCH", "TAG"))


def paging(call: Call) -> Paging:
    return Paging(call.query.limit("max-records"), call.query.text("page-token"))
