"""Checks of media types: requests and responses are JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import UnsupportedMediaType

if TYPE_CHECKING:
    from morag.api.http import Request

_JSON: Final = frozenset({"application/json", "application/*", "*/*"})


def accepts_json(request: Request) -> bool:
    """Whether the client accepts JSON, or sends no preference."""
    accepted = request.header(b"accept")
    if accepted is None or accepted in _JSON or not accepted.strip():
        return True
    return any(_bare(part) in _JSON and not _refused(part) for part in accepted.split(","))


def check_media_type(request: Request) -> None:
    """Refuse a body whose content type is not JSON."""
    type = request.header(b"content-type")
    if type is None or type in _JSON:
        return
    main, slash, sub = _bare(type).partition("/")
    if not (main and slash and sub):
        raise UnsupportedMediaType(
            "The content-type header value did not correspond to a valid media type"
        )
    if (main, sub) != ("application", "json"):
        raise UnsupportedMediaType(
            "The content-type header value did not match the value in @Consumes"
        )


def _bare(type: str) -> str:
    return type.partition(";")[0].strip().lower()


def _refused(part: str) -> bool:
    parameters = (one.strip().lower() for one in part.split(";")[1:])
    return any(one in ("q=0", "q=0.0", "q=0.00", "q=0.000") for one in parameters)
