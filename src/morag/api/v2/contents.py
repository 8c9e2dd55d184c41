"""Endpoints for the contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.api import actions, body_readers
from morag.api.call import ok_at
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.url_parsing import key_in_path, key_of_text
from morag.api.v2.parameters import FOR_WRITE, WITH_DOC, endpoint
from morag.model.keys import check_elements
from morag.rest import requests, responses
from morag.rest.responses import ReferenceView

if TYPE_CHECKING:
    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.model.references import Reference
    from morag.rest.responses import KeyedContent
    from morag.service.ref_resolution import RequestedRef


@endpoint(
    "GET",
    "/trees/{ref}/contents/{key}",
    "Get the content of one key",
    query=(WITH_DOC, FOR_WRITE),
    gives=responses.SingleContent,
    errors=(404,),
)
def get_content(call: Call) -> Answer:
    ref, key = call.once(_ref_and_key)
    return actions.get_content(call, ref, key, _single)


def _ref_and_key(call: Call) -> tuple[RequestedRef, ContentKey]:
    key = key_in_path(call.parameters["key"])
    with Checks("getContent") as check:
        ref = check.ref_spec("ref", call.parameters["ref"])
    return call.ref(ref), key


@endpoint(
    "GET",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(Parameter("key", "The keys.", repeated=True, required=True), WITH_DOC, FOR_WRITE),
    gives=responses.Contents,
    errors=(404,),
)
def get_several_contents(call: Call) -> Answer:
    texts = call.query.texts("key")
    with Checks("getSeveralContents") as check:
        ref = check.ref_spec("ref", call.parameters["ref"])
    with Checks("getMultipleContents") as check:
        check.not_empty("request.requestedKeys", texts)
    keys = [key_of_text(text) for text in texts]
    for key in keys:
        check_elements("Content key", key.elements)  # Reported before a missing reference.
    known = [key for key in keys if key.elements]
    return actions.get_contents(call, call.ref(ref), known, _several, tagged=True)


@endpoint(
    "POST",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(WITH_DOC, FOR_WRITE),
    takes=requests.KeysBody,
    gives=responses.Contents,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    body = call.body(body_readers.KEYS)
    with Checks("getMultipleContents") as check:
        ref = check.ref_spec("ref", call.parameters["ref"])
        check.requested_keys(body)
    assert body is not None, "checked"
    return actions.get_contents(call, call.ref(ref), body.keys(), _several, tagged=True)


def _single(content: Content, reference: Reference) -> Response:
    view = ReferenceView.of(reference)
    return ok_at(responses.SingleContent(content, view), reference)


def _several(found: tuple[KeyedContent, ...], reference: Reference) -> responses.Contents:
    return responses.Contents(found, ReferenceView.of(reference))
