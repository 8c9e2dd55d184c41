"""Endpoints as data: the router and the OpenAPI document are built from one list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from morag.api.call import Handler

if TYPE_CHECKING:
    from collections.abc import Callable


class Parameter(Struct, frozen=True):
    """A query parameter."""

    name: str
    help: str
    type: Literal["string", "integer", "boolean"] = "string"
    values: tuple[str, ...] = ()
    repeated: bool = False
    required: bool = False


class Endpoint(Struct, frozen=True):
    """A method and a path, with its handler. `takes` and `gives` are the types of request and
    response bodies; None means no body.

    Bodies whose content type is not JSON are refused, unless `any_media` leaves the check to the
    handler. So are clients that accept no JSON, except by a page for browsers.
    """

    method: str
    path: str
    summary: str
    handler: Handler
    query: tuple[Parameter, ...] = ()
    takes: Any = None
    gives: Any = None
    errors: tuple[int, ...] = ()
    any_media: bool = False
    is_page: bool = False


class Endpoints:
    """Collects the endpoints of one API."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.list: list[Endpoint] = []

    def __call__(
        self,
        method: str,
        path: str,
        summary: str,
        *,
        query: tuple[Parameter, ...] = (),
        takes: Any = None,
        gives: Any = None,
        errors: tuple[int, ...] = (),
        any_media: bool = False,
    ) -> Callable[[Handler], Handler]:
        """Declare an endpoint."""

        def declare(handler: Handler) -> Handler:
            whole = self.prefix + path
            self.list.append(
                Endpoint(method, whole, summary, handler, query, takes, gives, errors, any_media)
            )
            return handler

        return declare


_FETCHES: Final = ("MINIMAL", "ALL")
FETCH_METADATA: Final = Parameter(
    "fetch",
    "ALL adds `metadata`: the head commit, and the distance from the default branch.",
    values=_FETCHES,
)
FETCH_OPERATIONS: Final = Parameter(
    "fetch", "ALL adds the operations of each commit.", values=_FETCHES
)
FILTER: Final = Parameter("filter", "A CEL expression; only items for which it is true are listed.")
