"""The errors for responses: the error that the server raised, or an `UnexpectedAnswer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, ValidationError

from morag.client.decoders import BRIEF_ERROR, ERROR, UNREADABLE
from morag.client.errors import OUTCOME_UNKNOWN, UnexpectedAnswer, UnexpectedAnswerToWrite
from morag.errors import BY_CODE, AboutKey, MoragError, ReferenceConflict
from morag.rest.responses import ConflictDetails, KeyDetails, NessieError

if TYPE_CHECKING:
    from morag.client.connections import Reply

_LONGEST_SHOWN: Final = 200
_FOREIGN: Final = "this is not a response of the API"
_HINTS: Final = {
    401: "the server requires authentication: pass a token",
    403: "the server does not allow this request for this user",
    404: "there is no such path: check the path of the server's URI",
    413: "the request is larger than the server accepts",
    414: "the URL is longer than the server accepts: request fewer keys at once",
    431: "the URL is longer than the server accepts: request fewer keys at once",
}


class SentRequest(Struct, frozen=True):
    """The properties of a request that its errors depend on."""

    method: str
    url: str
    repeatable: bool
    has_credentials: bool


def error_of(reply: Reply, body: bytes, request: SentRequest) -> MoragError:
    """The error for a response with another status than 200."""
    try:
        sent = _decoded(body)
    except UNREADABLE:  # The response may come from a proxy before the server.
        return unexpected(reply, request, _hint(reply, request) + _shown(reply, body))
    message = sent.message or sent.reason or sent.error_code
    kind = BY_CODE.get(sent.error_code)
    if kind is None:
        return unexpected(reply, request, message, sent.error_code)
    details = sent.error_details
    if issubclass(kind, ReferenceConflict):
        return kind(message, details.conflicts if isinstance(details, ConflictDetails) else ())
    if issubclass(kind, AboutKey):
        return kind(message, details.content_key if isinstance(details, KeyDetails) else None)
    return kind(message)


def undecodable(
    reply: Reply, body: bytes, request: SentRequest, error: Exception
) -> UnexpectedAnswer:
    """The error for a response with status 200 that the decoder refuses."""
    if isinstance(error, ValidationError):  # It is JSON.
        problem = f"the response contains something that this client does not know: {error}"
    else:
        problem = _FOREIGN + _shown(reply, body)
    return unexpected(reply, request, problem)


def unexpected(
    reply: Reply, request: SentRequest, message: str, server_code: str = ""
) -> UnexpectedAnswer:
    kind = UnexpectedAnswer
    if not request.repeatable and (reply.status < 300 or reply.status >= 500):
        kind, message = UnexpectedAnswerToWrite, f"{message}. {OUTCOME_UNKNOWN}"
    return kind(
        message,
        http_status=reply.status,
        method=request.method,
        url=request.url,
        server_code=server_code,
    )


def _decoded(body: bytes) -> NessieError:
    """The error in the body, without its details if these cannot be decoded."""
    try:
        return ERROR.decode(body)
    except UNREADABLE:
        brief = BRIEF_ERROR.decode(body)
        return NessieError(
            status=brief.status,
            reason=brief.reason,
            message=brief.message,
            error_code=brief.error_code,
        )


def _hint(reply: Reply, request: SentRequest) -> str:
    if 300 <= reply.status < 400:
        location = reply.headers.get("location")
        if location is None:
            return "the server redirects, but to no address: check the server's URI"
        return (
            f"the server redirects to {location}: this client follows redirects only of GET "
            "requests and on the same server; use the URI it redirects to"
        )
    if reply.status == 401 and request.has_credentials:
        return "the server does not accept the credentials of this client: check the token"
    return _HINTS.get(reply.status, _FOREIGN)


def _shown(reply: Reply, body: bytes) -> str:
    """The start of the body and its type, in parentheses."""
    text = body[:_LONGEST_SHOWN].decode(errors="replace").strip()
    if not text:
        return " (the response has no body)"
    kind = reply.headers.get("content-type", "no content type").partition(";")[0].strip()
    return f" (the response has {kind}: {text!r})"
