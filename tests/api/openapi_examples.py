"""The OpenAPI document with example values that exist: random values cause only errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.request import urlopen

from tests.interop.rest import NOTHING, Rest, delta, namespace, put, table, view

if TYPE_CHECKING:
    from collections.abc import Mapping

Json: TypeAlias = Any
Examples: TypeAlias = "Mapping[str, list[Json]]"

_REF: Final = "#/components/schemas/"
_CONTENTS: Final = [
    put("db", content=namespace("db")),
    put("db", "t", content=table(1)),
    put("v", content=view(1)),
    put("d", content=delta(1)),
]


def document_with_examples(address: str) -> Json:
    """Fill the catalog, and return the server's document with examples."""
    examples = _examples(Rest(address))
    with urlopen(f"{address}/openapi.json") as answer:
        document = json.load(answer)
    _add_to_bodies(document, examples)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            moves = method in ("put", "delete") and path.endswith(("{ref}", "{kind}/{name}"))
            for parameter in operation["parameters"]:
                name = parameter["name"]
                # References that are moved or deleted must not be used by other operations.
                key = "spare" if moves and name in ("ref", "name") else name
                _add_examples(parameter, "schema", examples.get(key))
    return document


def _examples(rest: Rest) -> Examples:
    """Examples for parameters and fields by name."""
    main = rest.commit("main", "first", _CONTENTS)
    rest.create("dev", main)
    rest.create("spare", main)
    dev = rest.commit("dev", "second", [put("new", content=table(2))])
    places = ["main", "-", "dev~1", f"dev@{dev}", f"@{main}"]
    keys = ["db", "db.t", "v", "absent"]
    hashes = [main, dev, NOTHING, "~1", f"{dev}~1"]
    return {
        "ref": places,
        "from": places,
        "to": places,
        "branch": [f"main@{main}", f"dev@{dev}", f"main@{NOTHING}"],
        "name": ["main", "dev", "made"],
        "spare": ["spare", f"spare@{main}"],
        "references": ["main...dev", f"dev*{dev}...main*{main}"],
        "key": keys,
        "min-key": keys,
        "max-key": keys,
        "prefix-key": keys,
        "filter": ["true", "refType == 'BRANCH'", "entry.namespace == 'db'", "commit.author == ''"],
        "limit-hash": hashes,
        "hashOnRef": hashes,
        "startHash": hashes,
        "endHash": hashes,
        "expectedHash": [main, dev, NOTHING],
        "If-Match": [f'"{main}"', f'"{dev}"'],
        "Nessie-Client-Spec": ["2", "1"],
        "sourceRefName": ["main", "dev"],
        "fromRefName": ["dev"],
        "fromHash": [dev, f"{dev}~1"],
        "hashesToTransplant": [[dev]],
        "hash": [main, dev, NOTHING],
        "elements": [["db"], ["db", "t"], ["v"], ["made"], ["absent"]],
    }


def _add_to_bodies(document: Json, examples: Examples) -> None:
    """Add examples to copies of the schemas for requests. Responses keep the originals."""
    schemas = document["components"]["schemas"]
    request_schemas = json.loads(json.dumps(schemas).replace(_REF, f"{_REF}Request"))
    for component in request_schemas.values():
        for name in component.get("properties", {}):
            _add_examples(component["properties"], name, examples.get(name))
    schemas |= {f"Request{name}": schema for name, schema in request_schemas.items()}
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                schema["$ref"] = schema["$ref"].replace(_REF, f"{_REF}Request")


def _add_examples(holder: Json, name: str, examples: list[Json] | None) -> None:
    type = holder[name].get("type")
    if examples is None or type not in ("string", "array"):
        return
    if type == "array" and not isinstance(examples[0], list):
        holder[name]["items"] = {"enum": examples}
    else:
        holder[name] = {"enum": examples}
