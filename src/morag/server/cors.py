"""Which pages of other origins may call the API from a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.api.http import Response

if TYPE_CHECKING:
    from morag.api.http import Header, Request

_METHODS: Final = b"GET, HEAD, POST, PUT, DELETE, OPTIONS"
_REMEMBER_SECONDS: Final = b"3600"
_VARY: Final = (b"vary", b"origin")


class Cors:
    """The browser asks first (`preflight`), then looks at what the answer itself allows.

    A page of an origin that is not listed gets the plain answer, which its browser keeps from it.
    """

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._all = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)

    def preflight(self, request: Request) -> Response | None:
        if request.method != "OPTIONS" or not _has(request, b"access-control-request-method"):
            return None
        wanted = _value(request, b"access-control-request-headers")
        asked: tuple[Header, ...] = ((b"access-control-allow-headers", wanted),) if wanted else ()
        return Response(
            204,
            b"",
            (
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-max-age", _REMEMBER_SECONDS),
                *asked,
            ),
        )

    def allows(self, origin: bytes) -> bool:
        return self._all or origin in self._origins

    def allowing(self, request: Request, response: Response) -> Response:
        """The response with what the browser must know about it."""
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
