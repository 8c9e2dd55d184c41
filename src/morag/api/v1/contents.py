"""Endpoints for the contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import actions, body_readers
from morag.api.call import ok
from morag.api.checks import Checks
from morag.api.url_parsing import key_in_path
from morag.api.v1 import structs
from morag.api.v1.parameters import HASH_ON_REF, REF, endpoint
from morag.model.content import Content
from morag.rest import requests

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.later import Answer
    from morag.model.references import Reference
    from morag.rest.responses import KeyedContent
    from morag.service.ref_resolution import RequestedRef


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
        ref = _checked_ref(call, check)
    return actions.get_content(call, ref, key, lambda content, _: ok(content))


@endpoint(
    "POST",
    "/contents",
    "Get the contents of several keys",
    query=(REF, HASH_ON_REF),
    takes=requests.KeysBody,
    gives=structs.ContentsV1,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    body = call.body(body_readers.KEYS)
    with Checks("getMultipleContents") as check:
        ref = _checked_ref(call, check)
        check.requested_keys(body)
    assert body is not None, "checked"
    return actions.get_contents(call, ref, body.keys(), _several, tagged=False)


def _several(found: tuple[KeyedContent, ...], _: Reference) -> structs.ContentsV1:
    return structs.ContentsV1(found)


def _checked_ref(call: Call, check: Checks) -> RequestedRef:
    name, hash = call.query.text("ref"), call.query.text("hashOnRef")
    check.name("ref", name)
    return check.hash_and_steps("hashOnRef", name, hash)
