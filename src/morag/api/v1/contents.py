"""Contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import answers, bodies
from morag.api.answers import KeyedContent
from morag.api.call import ok
from morag.api.checks import reference_name, required, some
from morag.api.paths import key_in_path
from morag.api.v1.declared import HASH_ON_REF, REF, endpoint, on_reference
from morag.model.content import Content
from morag.model.keys import check_key

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.service.places import Asked


@endpoint(
    "GET",
    "/contents/{key}",
    "Get the content of one key",
    query=(REF, HASH_ON_REF),
    gives=Content,
    errors=(404,),
)
def get_content(call: Call) -> Answer:
    key = key_in_path(call.parameters["key"])
    asked = _asked_in_query(call, "getContent")
    _, content = call.service.contents.get(asked, key)
    return ok(content)


@endpoint(
    "POST",
    "/contents",
    "Get the contents of several keys",
    query=(REF, HASH_ON_REF),
    takes=bodies.KeysBody,
    gives=answers.Contents,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    where = "getMultipleContents"
    body = required(f"{where}.request", bodies.KEYS.read(call.request.body))
    asked = _asked_in_query(call, where)
    keys = body.requested_keys or ()
    some(f"{where}.request.requestedKeys", keys)
    for key in keys:
        check_key(key)

    def work() -> Response:
        _, found = call.service.contents.get_all(asked, keys)
        shown = tuple(KeyedContent(key, content) for key, content in found.items())
        return ok(answers.Contents(shown))

    return call.in_thread(work)


def _asked_in_query(call: Call, where: str) -> Asked:
    name = call.query.text("ref")
    if name is not None:
        reference_name(f"{where}.ref", name)
    return on_reference(call, name, f"{where}.hashOnRef")
