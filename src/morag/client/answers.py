"""Answers that report an error, as the error that the server raised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.client.errors import UnexpectedAnswer
from morag.client.wire import UNREADABLE, WireConflict
from morag.errors import BY_CODE, AboutKey, MoragError, ReferenceConflict
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from morag.client.http1 import Reply

_LONGEST_SHOWN: Final = 200
_HINTS: Final = {
    401: "the server wants to know who asks: pass a token",
    403: "the server does not allow it to who asks",
    404: "there is no such path: check the path of the server's URI",
    413: "the request is larger than the server takes",
    414: "the URL is longer than the server takes: ask for fewer keys at once",
    431: "the URL is longer than the server takes: ask for fewer keys at once",
}


class _Error(Struct, rename="camel"):
    error_code: str
    message: str | None = None
    reason: str | None = None
    error_details: msgspec.Raw = msgspec.Raw(b"null")


class _Details(Struct, rename="camel"):
    """Either of the two kinds that there are."""

    conflicts: tuple[WireConflict, ...] = ()
    content_key: ContentKey | None = None


_ERROR: Final = msgspec.json.Decoder(_Error)
_DETAILS: Final = msgspec.json.Decoder(_Details | None)


def error_of(reply: Reply, body: bytes, method: str, url: str, *, repeatable: bool) -> MoragError:
    try:
        sent = _ERROR.decode(body)
    except UNREADABLE:  # Perhaps somebody between us and the server speaks.
        sent = _Error("", _unreadable(reply, body))
    message = sent.message or sent.reason or sent.error_code
    kind = BY_CODE.get(sent.error_code)
    if kind is None:
        if reply.status >= 500 and not repeatable:
            message += ". Whether the change was made is unknown: look before you try it again"
        return UnexpectedAnswer(
            message,
            http_status=reply.status,
            method=method,
            url=url,
            server_code=sent.error_code,
        )
    if issubclass(kind, ReferenceConflict):
        return kind(message, [each.conflict() for each in _details(sent).conflicts])
    if issubclass(kind, AboutKey):
        return kind(message, _details(sent).content_key)
    return kind(message)


def _details(sent: _Error) -> _Details:
    """Details are a help, not a must: what cannot be read of them is left out."""
    try:
        return _DETAILS.decode(sent.error_details) or _Details()
    except UNREADABLE:
        return _Details()


def _unreadable(reply: Reply, body: bytes) -> str:
    if 300 <= reply.status < 400:
        where = reply.headers.get(b"location", b"elsewhere").decode("latin-1")
        return f"the server points to {where}: use the address that it is really at"
    text = body[:_LONGEST_SHOWN].decode(errors="replace").strip()
    shown = f", saying {text!r}" if text else ", without a word"
    return _HINTS.get(reply.status, "this is no answer of the API") + shown
