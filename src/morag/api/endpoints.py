"""Endpoints as data: the router, the OpenAPI description and the docs are made from one list."""

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
    """A call that clients can make. `gives` is what a success looks like, None is no body."""

    method: str
    path: str
    summary: str
    handler: Handler
    query: tuple[Parameter, ...] = ()
    takes: Any = None
    gives: Any = None
    errors: tuple[int, ...] = ()


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
    ) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self.list.append(
                Endpoint(method, self.prefix + path, summary, handler, query, takes, gives, errors)
            )
            return handler

        return declare


FETCH: Final = Parameter("fetch", "ALL adds metadata or operations.", values=("MINIMAL", "ALL"))
FILTER: Final = Parameter("filter", "A CEL expression that keeps what it is true for.")
