"""The OpenAPI description of the endpoints, made from their declarations and structs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from morag.api.json_schemas import Schemas
from morag.api.v1.structs import ReferenceV1
from morag.model.references import ReferenceHistory
from morag.rest import responses
from morag.rest.responses import NessieError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from morag.api.endpoints import Endpoint, Parameter

Json: TypeAlias = dict[str, Any]

_ABOUT: Final = """\
A Git-like, transactional catalog for data lakes. It has the REST API of Nessie, version 2 and \
version 1.

Bodies are JSON, and may be sent with `Content-Encoding: gzip`. The body of an error \
describes it. There is none if the URL, or a number or keyword in a parameter, is not valid."""
_TAGS: Final[Mapping[str, str]] = {
    "v2": "Version 2 of the REST API.",
    "v1": "Version 1 of the REST API, for older clients.",
    "morag": "Endpoints that Nessie does not have.",
}
_NAME_IN_PATH: Final = (
    " `-` is the default branch. Slashes in a name are sent as `%2F`, or the name is followed by "
    "`@`."
)
_REF_SPEC: Final = (
    "A branch, a tag or a commit: `main`, `main@HASH`, `main~2`, `@HASH`." + _NAME_IN_PATH
)
_NAME_ONLY: Final = "The name of a branch or a tag, without a hash." + _NAME_IN_PATH
_EXPECTING: Final = " The hash after `@` is the expected head; `If-Match` may carry it instead."
_TARGET: Final = "A branch or a tag: `main@HASH`." + _EXPECTING + _NAME_IN_PATH
_IN_PATH: Final[Mapping[str, tuple[str, str]]] = {
    "ref": (_REF_SPEC, "main"),
    "from": (_REF_SPEC, "main"),
    "to": (_REF_SPEC, "dev"),
    "branch": ("A branch: `main@HASH`." + _EXPECTING + _NAME_IN_PATH, "main"),
    "name": ("The name of a branch or a tag.", "main"),
    "kind": ("The kind of the reference.", "branch"),
    "references": (
        "Two references with three dots between them, each with an optional hash after `*`.",
        "main...dev",
    ),
    "key": (
        "A content key: its elements with dots between them. With a dot at the start, `*.` is a "
        "dot within an element, `**` is `*`, `*{` is `/`, `*}` is a backslash and `*[` is `%`.",
        "db.orders",
    ),
}
"""The descriptions of path parameters, and an example of each."""
_KINDS: Final = ("branch", "tag", "BRANCH", "TAG")

_CLIENT_SPEC: Final = (
    "Nessie-Client-Spec",
    "The API version of the client; from 2 on, errors have `errorDetails`.",
)
_IF_MATCH: Final = (
    "If-Match",
    "The expected hash, as in an `ETag`; it is ignored if the URL has an expected hash.",
)
_COMMIT_HEADERS: Final = (
    ("Nessie-Commit-Message", "Replaces the message of the commit."),
    ("Nessie-Commit-Authors", "Authors to add, with commas between them."),
    (
        "Nessie-Commit-SignedOffBy",
        "Sign-offs to add, with commas between them. There may also be headers "
        "`Nessie-Commit-Property-NAME`, which set properties.",
    ),
)
_TAGGED: Final = (
    responses.SingleReference,
    responses.SingleContent,
    responses.Contents,
    responses.Committed,
    ReferenceV1,
)
"""Responses about a reference, with its hash as the entity tag."""
_BY_NAME: Final = (responses.SingleReference, ReferenceHistory)
"""Responses to reads of a reference, which is named without a hash."""

_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    400: ("BadRequest", "The request is not valid; no body if the URL cannot be read."),
    404: ("NotFound", "Not found; no body if a parameter cannot be read."),
    406: ("NotAcceptable", "The client does not accept JSON."),
    409: ("Conflict", "The change conflicts with the current state."),
    413: ("TooLarge", "The body is larger than the server accepts."),
    415: ("UnsupportedMediaType", "The content type of the body is not JSON."),
    503: ("Unavailable", "The store is busy, or cannot write: its disk may be full."),
}
_WITHOUT_BODY: Final = 406
_BUSY: Final = 503


def described(endpoints: Sequence[Endpoint], version: str, spec_version: str | None) -> Json:
    """The document. `spec_version` is the one that the server reports to its clients."""
    taken = [endpoint.takes for endpoint in endpoints if endpoint.takes is not None]
    given = [endpoint.gives for endpoint in endpoints if endpoint.gives is not None]
    schemas = Schemas(taken, [*given, NessieError])
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    info = {
        "title": "Morag",
        "version": version,
        "description": _ABOUT,
        "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
    }
    if spec_version is not None:
        info["x-nessie-spec-version"] = spec_version
    return {
        "openapi": "3.1.0",
        "info": info,
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": {name: _error(status, schemas) for status, (name, _) in _ERRORS.items()},
        },
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> Json:
    tag = _tag(endpoint)
    operation: Json = {
        "tags": [tag],
        "operationId": _operation_id(endpoint, tag),
        "summary": endpoint.summary,
        "parameters": list(_parameters(endpoint)),
    }
    if endpoint.takes is not None:
        operation["requestBody"] = {"required": True, "content": _json(schemas.of(endpoint.takes))}
    operation["responses"] = {
        **_success(endpoint, schemas),
        **{
            str(status): {"$ref": f"#/components/responses/{_ERRORS[status][0]}"}
            for status in sorted(_statuses(endpoint))
        },
    }
    return operation


def _tag(endpoint: Endpoint) -> str:
    """The version in `/api/v2/…`, the name in `/morag/…`."""
    first, second, *_ = endpoint.path.strip("/").split("/")
    return second if first == "api" else first


def _operation_id(endpoint: Endpoint, tag: str) -> str:
    first, *rest = endpoint.handler.__name__.split("_")
    return first + "".join(map(str.capitalize, (*rest, tag)))


def _parameters(endpoint: Endpoint) -> Iterator[Json]:
    changes = _changes_reference(endpoint)
    for name in re.findall(r"{(\w+)}", endpoint.path):
        _, example = _IN_PATH[name]
        schema: Json = {"type": "string", "minLength": 1}
        if name == "kind":
            schema = {"type": "string", "enum": list(_KINDS)}
        yield {
            "name": name,
            "in": "path",
            "description": _path_text(endpoint, name, changes=changes),
            "required": True,
            "schema": schema,
            "example": example,
        }
    yield from map(_query_parameter, endpoint.query)
    yield _header(*_CLIENT_SPEC)
    if changes:
        yield _header(*_IF_MATCH)
    if "{branch}" in endpoint.path:
        yield from (_header(*header) for header in _COMMIT_HEADERS)


def _path_text(endpoint: Endpoint, name: str, *, changes: bool) -> str:
    """The description of a path parameter, which depends on the call."""
    if name == "ref" and changes:
        return _TARGET
    if name == "ref" and endpoint.gives in _BY_NAME:
        return _NAME_ONLY
    if name == "name" and "{kind}" not in endpoint.path and endpoint.method != "GET":
        return "The name of a branch."
    text, _ = _IN_PATH[name]
    return text


def _changes_reference(endpoint: Endpoint) -> bool:
    """Whether the call takes an expected hash, in its path or as a parameter."""
    return (
        "{branch}" in endpoint.path
        or ("{ref}" in endpoint.path and endpoint.method in ("PUT", "DELETE"))
        or any(parameter.name == "expectedHash" for parameter in endpoint.query)
    )


def _query_parameter(parameter: Parameter) -> Json:
    schema: Json = {"type": parameter.type}
    if parameter.type == "integer":
        schema["format"] = "int32"
    if parameter.values:
        schema["enum"] = list(parameter.values)
    described: Json = {"name": parameter.name, "in": "query", "description": parameter.help}
    if parameter.required:
        described["required"] = True
    if parameter.repeated:
        least = {"minItems": 1} if parameter.required else {}
        schema = {"type": "array", "items": schema, **least}
        described |= {"style": "form", "explode": True}
    return described | {"schema": schema}


def _header(name: str, text: str) -> Json:
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string"}}


def _success(endpoint: Endpoint, schemas: Schemas) -> Json:
    if endpoint.gives is None:
        return {"204": {"description": "Done."}}
    answer: Json = {"description": "Success.", "content": _json(schemas.of(endpoint.gives))}
    if endpoint.gives in _TAGGED:
        answer["headers"] = {
            "ETag": {
                "description": "The hash of the reference, in quotes.",
                "required": True,
                "schema": {"type": "string", "pattern": '^"[0-9a-f]+"$'},
            }
        }
    return {"200": answer}


def _statuses(endpoint: Endpoint) -> set[int]:
    found = {400, 406, 503, *endpoint.errors}
    if "{" in endpoint.path or endpoint.query:
        found.add(404)
    if endpoint.takes is not None:
        found |= {413, 415}
    return found


def _error(status: int, schemas: Schemas) -> Json:
    answer: Json = {"description": _ERRORS[status][1]}
    if status != _WITHOUT_BODY:
        answer["content"] = _json(schemas.of(NessieError))
    if status == _BUSY:
        answer["headers"] = {
            "Retry-After": {
                "description": "When to retry, in seconds.",
                "required": True,
                "schema": {"type": "integer"},
            }
        }
    return answer


def _json(schema: Json) -> Json:
    return {"application/json": {"schema": schema}}
