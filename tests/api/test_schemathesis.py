"""A running server holds against whatever schemathesis makes of its description.

Two of its checks are left out, because they do not hold by design: that all which fits the schemas
is accepted (a name must also exist), and that all else is refused (the original reads what it can).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.request import urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from msgspec import Struct
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from morag.api.app import ENDPOINTS
from morag.api.openapi import described
from tests.clients.rest import NOTHING, Rest, delta, namespace, put, table, view
from tests.clients.serving import Morag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemathesis import Case

Json: TypeAlias = Any

_ALWAYS: Final = [not_a_server_error, checks.status_code_conformance]
_WITH_BODY: Final = [
    *_ALWAYS,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
_WITHOUT_BODY: Final = frozenset({204, 400, 404, 406})
_OTHER_METHOD: Final = frozenset({200, 404, 405})

_MAIN: Final = "HASH_OF_MAIN"
_DEV: Final = "HASH_OF_DEV"
_HASHES: Final = [_MAIN, _DEV, NOTHING, "~1", f"{_DEV}~1"]
_PLACES: Final = ["main", "-", "dev~1", f"dev@{_DEV}", f"@{_MAIN}"]
_KEYS: Final = ["db", "db.t", "v", "absent"]
_WORDS: Final[Mapping[str, list[Json]]] = {
    "ref": _PLACES,
    "from": _PLACES,
    "to": _PLACES,
    "branch": [f"main@{_MAIN}", f"dev@{_DEV}", f"main@{NOTHING}"],
    "name": ["main", "dev", "made"],
    "references": ["main...dev", f"dev*{_DEV}...main*{_MAIN}"],
    "key": _KEYS,
    "min-key": _KEYS,
    "max-key": _KEYS,
    "prefix-key": _KEYS,
    "filter": ["true", "refType == 'BRANCH'", "entry.namespace == 'db'", "commit.author == ''"],
    "limit-hash": _HASHES,
    "hashOnRef": _HASHES,
    "startHash": _HASHES,
    "endHash": _HASHES,
    "expectedHash": [_MAIN, _DEV, NOTHING],
    "If-Match": [f'"{_MAIN}"', f'"{_DEV}"'],
    "Nessie-Client-Spec": ["2", "1"],
    "sourceRefName": ["main", "dev"],
    "fromRefName": ["dev"],
    "fromHash": [_DEV, f"{_DEV}~1"],
    "hashesToTransplant": [[_DEV]],
    "hash": [_MAIN, _DEV, NOTHING],
    "elements": [["db"], ["db", "t"], ["v"], ["absent"]],
    "authorTime": ["2024-05-06T07:08:09Z"],
}
"""What parameters and fields of a name may well be. Chance alone would meet errors only."""
_SPARE: Final = ["spare", f"spare@{_MAIN}"]
_REF: Final = "#/components/schemas/"


class Served(Struct, frozen=True):
    address: str
    hashes: Mapping[str, str]

    def filled(self, value: Json) -> Json:
        """The value, with hashes in the place of their names."""
        if isinstance(value, str):
            for name, hash in self.hashes.items():
                value = value.replace(name, hash)
            return value
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if isinstance(value, dict):
            return {key: self.filled(item) for key, item in value.items()}
        return value


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Morag(tmp_path_factory.mktemp("morag")) as server:
        rest = Rest(server.address)
        contents = {
            ("db",): namespace("db"),
            ("db", "t"): table(1),
            ("v",): view(1),
            ("d",): delta(1),
        }
        main = rest.commit("main", "first", [put(*k, content=v) for k, v in contents.items()])
        rest.create("dev", main)
        rest.create("spare", main)
        dev = rest.commit("dev", "second", [put("new", content=table(2))])
        yield Served(server.address, {_MAIN: main, _DEV: dev})


def _document() -> Json:
    return json.loads(json.dumps(described(ENDPOINTS, "0", None)))


def _hinted(document: Json) -> Json:
    """The document, with words in the place of texts, but not in what the server answers.

    Whatever else fits, or does not fit, is what schemathesis makes of it to be wrong.
    """
    schemas = document["components"]["schemas"]
    taken = json.loads(json.dumps(schemas).replace(_REF, f"{_REF}Taken"))
    for component in taken.values():
        for name in component.get("properties", {}):
            _hint(component["properties"], name, _WORDS.get(name))
    schemas |= {f"Taken{name}": schema for name, schema in taken.items()}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                content = operation["requestBody"]["content"]["application/json"]
                content["schema"]["$ref"] = content["schema"]["$ref"].replace(_REF, f"{_REF}Taken")
            moves = method in ("put", "delete") and path.endswith(("{ref}", "{kind}/{name}"))
            for parameter in operation["parameters"]:
                name = parameter["name"]
                spare = moves and name in ("ref", "name")  # The others are still needed.
                _hint(parameter, "schema", _SPARE if spare else _WORDS.get(name))
    return document


def _hint(holder: Json, name: str, words: list[Json] | None) -> None:
    schema = holder[name]
    if words is None or schema.get("type") == ["array", "null"] or schema.get("type") == "null":
        return
    if schema.get("type") == "array" and not isinstance(words[0], list):
        schema["items"] = {"enum": words}
    else:
        holder[name] = {"enum": words}


_LONG: Final = schemathesis.openapi.from_dict(_hinted(_document()))
_SHORT: Final = schemathesis.openapi.from_dict(_hinted(_document()))
_SHORT.config.phases.coverage.enabled = False  # Thousands of bodies that are slightly wrong.
_FEW: Final = settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@_SHORT.parametrize()
@_FEW
def test_answers_are_as_described(case: Case, served: Served) -> None:
    _check(case, served)


@pytest.mark.long
@_LONG.parametrize()
@settings(_FEW, max_examples=200)
def test_answers_are_as_described_for_long(case: Case, served: Served) -> None:
    _check(case, served)


def test_the_server_describes_itself_so(served: Served) -> None:
    with urlopen(f"{served.address}/openapi.json") as answer:
        told = json.load(answer)
    del told["info"]
    assert told == {name: part for name, part in _document().items() if name != "info"}


def _check(case: Case, served: Served) -> None:
    case.path_parameters = served.filled(case.path_parameters)
    case.query = served.filled(case.query)
    case.headers.update(served.filled(dict(case.headers)))
    case.body = served.filled(case.body)
    response = case.call(base_url=served.address)
    if response.request.method != case.operation.method.upper():
        # Nobody described this method. HEAD and OPTIONS are answered nevertheless, and empty.
        assert not response.content
        assert response.status_code in _OTHER_METHOD
    elif response.content:
        case.validate_response(response, checks=_WITH_BODY)
    else:
        # OpenAPI cannot say that a body is there in some cases only.
        assert response.status_code in _WITHOUT_BODY
        assert "content-type" not in response.headers
        case.validate_response(response, checks=_ALWAYS)
