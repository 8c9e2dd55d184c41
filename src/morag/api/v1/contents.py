"""Contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.paths import key_in_path
from morag.api.v1.declared import HASH_ON_REF, REF, endpoint
from morag.api.v2 import answers
from morag.api.v2.answers import KeyedContent
from morag.model.content import Content
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer


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
    with Checks("getContent") as check:
        asked = _checked_place(call, check)
    return call.near(lambda: ok(call.service.contents.get(asked, key)[1]), asked)


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
    body = bodies.KEYS.read(call.request.body)
    with Checks("getMultipleContents") as check:
        asked = _checked_place(call, check)
        check.is_there("request", body)
        if body is not None:
            check.not_empty("request.requestedKeys", body.requested_keys)
    assert body is not None, "checked"
    keys = body.keys()

    def work() -> Response:
        _, found = call.service.contents.get_all(asked, keys)
        shown = tuple(KeyedContent(key, content) for key, content in found.items())
        return ok(answers.Contents(shown))

    return call.in_thread(work)


def _checked_place(call: Call, check: Checks) -> Asked:
    name, hash = call.query.text("ref"), call.query.text("hashOnRef")
    check.name("ref", name)
    check.hash_or_relative("hashOnRef", hash)
    return Asked(name, hash or "")
