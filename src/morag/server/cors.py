"""CORS: which pages of other origins may call the API from a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.api.http import Response

if TYPE_CHECKING:
    from morag.api.http import Header, Request

_METHODS: Final = b"GET, HEAD, POST, PUT, DELETE, OPTIONS"
_CACHE_SECONDS: Final = b"3600"
_VARY: Final = (b"vary", b"origin")


class Cors:
    """Answers preflight requests, and adds the headers that browsers check.

    For an origin that is not listed there are no headers, so the browser hides the response from
    the page.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._all = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, request: Request) -> Response | None:
        if request.method != "OPTIONS" or not _has(request, b"access-control-request-method"):
            return None
        names = _value(request, b"access-control-request-headers")
        allowed: tuple[Header, ...] = ((b"access-control-allow-headers", names),) if names else ()
        return Response(
            204,
            b"",
            (
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-max-age", _CACHE_SECONDS),
                *allowed,
            ),
        )

    def allows(self, origin: bytes) -> bool:
        return self._all or origin in self._origins

    def allowing(self, request: Request, response: Response) -> Response:
        """The response with the headers for the browser."""
        origin = _value(request, b"origin")
        headers: tuple[Header, ...] = (_VARY,)
        if origin and self.allows(origin):
            headers = (
                (b"access-control-allow-origin", b"*" if self._all else origin),
                (b"access-control-expose-headers", b"etag, retry-after"),
                *(() if self._all else headers),
            )
        return replace(response, headers=response.headers + headers)


def _value(request: Request, name: bytes) -> bytes:
    return next((value for known, value in request.headers if known == name), b"")


def _has(request: Request, name: bytes) -> bool:
    return bool(_value(request, name))
