"""The description with words that mean something to the server: chance alone meets only errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.request import urlopen

from tests.clients.rest import NOTHING, Rest, delta, namespace, put, table, view

if TYPE_CHECKING:
    from collections.abc import Mapping

Json: TypeAlias = Any
Words: TypeAlias = "Mapping[str, list[Json]]"

_REF: Final = "#/components/schemas/"
_CONTENTS: Final = [
    put("db", content=namespace("db")),
    put("db", "t", content=table(1)),
    put("v", content=view(1)),
    put("d", content=delta(1)),
]


def hinted_document(address: str) -> Json:
    """What the server says of itself, after filling its catalog."""
    words = _words(Rest(address))
    with urlopen(f"{address}/openapi.json") as answer:
        document = json.load(answer)
    _hint_bodies(document, words)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            moves = method in ("put", "delete") and path.endswith(("{ref}", "{kind}/{name}"))
            for parameter in operation["parameters"]:
                name = parameter["name"]
                # What is moved and deleted must not be what the others use.
                key = "spare" if moves and name in ("ref", "name") else name
                _hint(parameter, "schema", words.get(key))
    return document


def _words(rest: Rest) -> Words:
    """What parameters and fields of a name may well be."""
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


def _hint_bodies(document: Json, words: Words) -> None:
    """Only in what the server takes: what it gives is checked against the description as it is."""
    schemas = document["components"]["schemas"]
    taken = json.loads(json.dumps(schemas).replace(_REF, f"{_REF}Taken"))
    for component in taken.values():
        for name in component.get("properties", {}):
            _hint(component["properties"], name, words.get(name))
    schemas |= {f"Taken{name}": schema for name, schema in taken.items()}
    for methods in document["paths"].values():
        for operation in methods.values():
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                schema["$ref"] = schema["$ref"].replace(_REF, f"{_REF}Taken")


def _hint(holder: Json, name: str, words: list[Json] | None) -> None:
    type = holder[name].get("type")
    if words is None or type not in ("string", "array"):
        return
    if type == "array" and not isinstance(words[0], list):
        holder[name]["items"] = {"enum": words}
    else:
        holder[name] = {"enum": words}
