"""The list that the endpoints of version 2 go to, and the parameters that they share."""

from __future__ import annotations

from typing import Final

from morag.api.endpoints import Endpoints, Parameter

endpoint: Final = Endpoints("/api/v2")

MAX_RECORDS: Final = Parameter("max-records", "How many to answer, at the most.", "integer")
PAGE_TOKEN: Final = Parameter("page-token", "The `token` of the page before.")
KEY: Final = Parameter("key", "Only these keys.", repeated=True)
MIN_KEY: Final = Parameter("min-key", "The first key.")
MAX_KEY: Final = Parameter("max-key", "The last key.")
PREFIX_KEY: Final = Parameter("prefix-key", "Only this key and the keys below it.")
WITH_DOC: Final = Parameter("with-doc", "Accepted; no documentation is stored.", "boolean")
FOR_WRITE: Final = Parameter("for-write", "Accepted; reads do not differ.", "boolean")
TYPE: Final = Parameter("type", "What the reference must be.", values=("BRANCH", "TAG"))
