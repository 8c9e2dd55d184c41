"""Calls the API as its OpenAPI document describes it, and checks the responses against it."""

from __future__ import annotations

import copy
import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote, urlencode

from jsonschema_rs import Draft202012Validator

from morag.api.app import Api
from morag.api.http import Request, Response
from morag.api.later import run
from tests.spawners import at_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from morag import Repository
    from morag.api.http import Header

Json: TypeAlias = Any
_WITHOUT_BODY: Final = (204, 400, 404, 406)


class DescribedApi:
    def __init__(self, repository: Repository) -> None:
        self._api = Api(repository)
        self.document: Json = json.loads(self.ask("GET", "/openapi.json").body)
        self.operations = {
            operation["operationId"]: (method.upper(), path, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
        }
        self.succeeded: set[str] = set()
        self._components = _closed(self.document["components"])

    def ask(
        self,
        method: str,
        path: str,
        query: str = "",
        headers: tuple[Header, ...] = (),
        body: bytes = b"",
    ) -> Response:
        """Send any request. Work for threads runs in the calling thread."""
        request = Request(method, path, query, headers, body)
        answer = self._api.answer(request)
        if isinstance(answer, Response):
            return answer
        answers: list[Response] = []
        run(answer, at_once, answers.append, lambda error: self._api.failure(request, error))
        assert len(answers) == 1
        return answers[0]

    def __call__(
        self,
        id: str,
        *path: str,
        body: Json = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> Json:
        """Call an operation. `path` has the path parameters in order; all must be declared."""
        method, template, operation = self.operations[id]
        declared = {(one["in"], one["name"]) for one in operation["parameters"]}
        assert {("query", name) for name in query or {}} <= declared
        assert {("header", name) for name in headers or {}} <= declared
        assert (body is not None) == ("requestBody" in operation)
        assert body is None or status >= 300 or self.fits(id, body)
        values = iter(path)
        sent = {**(headers or {}), **({} if body is None else {"Content-Type": "application/json"})}
        response = self.ask(
            method,
            re.sub(r"{\w+}", lambda _: quote(next(values), safe=""), template),
            urlencode(query or {}, doseq=True),
            tuple((k.lower().encode(), v.encode()) for k, v in sent.items()),
            b"" if body is None else json.dumps(body).encode(),
        )
        assert next(values, None) is None, "more values than parameters"
        assert response.status == status, response
        if status < 300:
            self.succeeded.add(id)
        return self._checked(operation, response)

    def fits(self, id: str, body: Json) -> bool:
        """Whether the body fits the schema of the operation."""
        schema = self.operations[id][2]["requestBody"]["content"]["application/json"]["schema"]
        return _validator(schema, self.document["components"]).is_valid(body)

    def _checked(self, operation: Json, response: Response) -> Json:
        declared = self.resolved(operation["responses"][str(response.status)])
        sent = {name.decode(): value.decode() for name, value in response.headers}
        if not response.body:
            assert response.status in _WITHOUT_BODY
            assert "content-type" not in sent
            return None
        assert sent["content-type"].partition(";")[0] == "application/json"
        assert ("etag" in sent) == ("ETag" in declared.get("headers", {}))
        body = json.loads(response.body)
        schema = declared["content"]["application/json"]["schema"]
        _validator(schema, self._components).validate(body)
        return body

    def resolved(self, node: Json) -> Json:
        if "$ref" not in node:
            return node
        found = self.document
        for word in node["$ref"].removeprefix("#/").split("/"):
            found = found[word]
        return found


def references(node: Json) -> Iterator[str]:
    """All references of a document to its own parts."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        yield from node.get("discriminator", {}).get("mapping", {}).values()
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from references(item)


def _validator(schema: Json, components: Json) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": components})


def _closed(components: Json) -> Json:
    """The components without additional properties: every field that is sent must be described."""
    closed = copy.deepcopy(components)
    for schema in closed["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    return closed
