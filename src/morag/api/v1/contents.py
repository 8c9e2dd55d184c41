"""Contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import bodies
from morag.api.call import ok, ok_list
from morag.api.checks import Checks
from morag.api.paths import key_in_path
from morag.api.v1.declared import HASH_ON_REF, REF, endpoint
from morag.api.v2 import answers
from morag.api.v2.answers import KeyedContent
from morag.model.content import Content
from morag.service.places import Asked

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer, Pieces


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

    def work() -> Answer:
        _, found = call.service.contents.find(asked, key)
        return call.showing(found, ok)

    return call.near(work, asked)


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
    body = call.body(bodies.KEYS)
    with Checks("getMultipleContents") as check:
        asked = _checked_place(call, check)
        check.is_there("request", body)
        if body is not None:
            check.not_empty("request.requestedKeys", body.requested_keys)
    assert body is not None, "checked"
    keys = body.keys()

    def work() -> Pieces:
        _, found = call.service.contents.get_all(asked, keys)
        return ok_list("contents", found, lambda: answers.Contents(()), KeyedContent.of)

    return call.in_pieces(work)


def _checked_place(call: Call, check: Checks) -> Asked:
    name, hash = call.query.text("ref"), call.query.text("hashOnRef")
    check.name("ref", name)
    check.hash_or_relative("hashOnRef", hash)
    return Asked(name, hash or "")
