"""Contents of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.api import bodies
from morag.api.call import ok_at, ok_list
from morag.api.checks import Checks
from morag.api.endpoints import Parameter
from morag.api.paths import key_in_path, key_of_text
from morag.api.v2 import answers
from morag.api.v2.answers import KeyedContent, ReferenceView
from morag.api.v2.declared import FOR_WRITE, WITH_DOC, endpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.call import Call
    from morag.api.http import Response
    from morag.api.later import Answer, Pieces
    from morag.model.content import Content
    from morag.model.keys import ContentKey

_REQUESTED_KEYS: Final = "request.requestedKeys"
# Keys that are looked up at once, rather than by a thread. Their contents may be large, and a
# table with its namespaces is all that most clients ask for.
_FEW: Final = 4


@endpoint(
    "GET",
    "/trees/{ref}/contents/{key}",
    "Get the content of one key",
    query=(WITH_DOC, FOR_WRITE),
    gives=answers.SingleContent,
    errors=(404,),
)
def get_content(call: Call) -> Answer:
    key = key_in_path(call.parameters["key"])
    with Checks("getContent") as check:
        check.ref_spec("ref", call.parameters["ref"])
    place = call.place()

    def work() -> Answer:
        reference, found = call.service.contents.find(place, key)

        def show(content: Content) -> Response:
            view = ReferenceView.of(reference)
            return ok_at(answers.SingleContent(content, view), reference)

        return call.showing(found, show)

    return call.near(work, place)


@endpoint(
    "GET",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(Parameter("key", "The keys.", repeated=True, required=True), WITH_DOC, FOR_WRITE),
    gives=answers.Contents,
    errors=(404,),
)
def get_several_contents(call: Call) -> Answer:
    texts = call.query.texts("key")
    with Checks("getSeveralContents") as check:
        check.ref_spec("ref", call.parameters["ref"])
    with Checks("getMultipleContents") as check:
        check.not_empty(_REQUESTED_KEYS, texts)
    keys = [key_of_text(text) for text in texts]
    return _contents(call, [key for key in keys if key.elements])


@endpoint(
    "POST",
    "/trees/{ref}/contents",
    "Get the contents of several keys",
    query=(WITH_DOC, FOR_WRITE),
    takes=bodies.KeysBody,
    gives=answers.Contents,
    errors=(404,),
)
def get_multiple_contents(call: Call) -> Answer:
    body = call.body(bodies.KEYS)
    with Checks("getMultipleContents") as check:
        check.ref_spec("ref", call.parameters["ref"])
        check.is_there("request", body)
        if body is not None:
            check.not_empty(_REQUESTED_KEYS, body.requested_keys)
    assert body is not None, "checked"
    return _contents(call, body.keys())


def _contents(call: Call, keys: Sequence[ContentKey]) -> Answer:
    place = call.place()

    def at_once() -> Answer:
        reference, found = call.service.contents.find_all(place, keys)
        if any(content.is_large for _, content in found):
            return call.in_pieces(in_pieces)
        shown = tuple(KeyedContent(key, content.content()) for key, content in found)
        return ok_at(answers.Contents(shown, ReferenceView.of(reference)), reference)

    def in_pieces() -> Pieces:
        reference, batches = call.service.contents.get_all(place, keys)

        def frame() -> answers.Contents:
            return answers.Contents((), ReferenceView.of(reference))

        return ok_list("contents", batches, frame, KeyedContent.of, reference)

    return call.near(at_once, place) if len(keys) <= _FEW else call.in_pieces(in_pieces)
