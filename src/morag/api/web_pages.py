"""The pages for browsers: home and API documentation. They load nothing from other servers."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from morag.api.endpoints import Endpoint
from morag.api.http import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.api.call import Call, Handler
    from morag.api.http import Header
    from morag.api.later import Answer

_STATIC: Final = Path(__file__).with_name("static")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def pages(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The pages, among them the description of the endpoints."""

    @lru_cache(1)
    def document(spec_version: str | None) -> bytes:
        # Built at the first request: most servers never get one, and all should start fast.
        from morag.api import openapi

        return msgspec.json.encode(openapi.described(endpoints, version("morag"), spec_version))

    def describe_in_json(call: Call) -> Answer:
        def work() -> Response:
            return Response(
                200, document(call.service.config.spec_version), _headers("application/json")
            )

        return call.in_thread(work)

    def describe_in_yaml(call: Call) -> Answer:
        """The same document at the path that Nessie has. JSON is YAML; indents make it readable."""

        def work() -> Response:
            shown = msgspec.json.format(document(call.service.config.spec_version), indent=2)
            return Response(200, shown, _headers("application/x-yaml"))

        return call.in_thread(work)

    handlers = {
        "/": _file("home.html", "text/html;charset=UTF-8"),
        "/docs": _file("docs.html", "text/html;charset=UTF-8"),
        "/docs/docs.js": _file("docs.js", "text/javascript;charset=UTF-8"),
        "/docs/style.css": _file("style.css", "text/css;charset=UTF-8"),
        "/openapi.json": describe_in_json,
        "/nessie-openapi/openapi.yaml": describe_in_yaml,
    }
    return [
        Endpoint("GET", path, "", handler, any_media=True, is_page=True)
        for path, handler in handlers.items()
    ]


def _file(name: str, type: str) -> Handler:
    def show(call: Call) -> Answer:
        return Response(200, _content(name), _headers(type))

    return show


def _headers(type: str) -> tuple[Header, ...]:
    return (
        (b"content-type", type.encode()),
        (b"content-security-policy", _POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
    )


@lru_cache
def _content(name: str) -> bytes:
    return (_STATIC / name).read_bytes()
