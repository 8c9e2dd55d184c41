"""Random mistakes in a correct request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from tests.nessie.differential.vocabulary import BOOLEANS, NUMBERS, WRONG_HASHES

if TYPE_CHECKING:
    from random import Random

    from tests.nessie.differential.requests import Request
    from tests.nessie.differential.symbols import Json

_VALUES: Final[tuple[Json, ...]] = (
    *(None, "", "x", 0, -1, 1.5, True, False, [], {}, [None], ["qq"], {"x": "y"}, "ü" * 9, 2**70),
)
# The servers treat a value of the wrong type in these fields differently, and one may store it.
_SPARED_FIELDS: Final = frozenset({"type", "properties", "allProperties", "job", "other", "Key"})
_CONTENT_TYPES: Final = (
    *("text/plain", "application/xml", "garbage", "application/json; charset=utf-8", "*/*"),
    *("application/x-www-form-urlencoded", "APPLICATION/JSON", "application/json;charset=latin-1"),
)
_ACCEPTS: Final = (
    *("*/*", "application/*", "text/html", "application/xml", "application/json;q=0.5", "x"),
    *("text/html, application/json", "application/json;charset=UTF-8", "text/*, */*;q=0.1"),
)
_METHODS: Final = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")
_TEXTS: Final = ("", "null", "{}", "[]", '"x"', "hello", "1", "{", '{"a":', "{'a': 1}", "true", " ")
_ENDS: Final = ("/", "/nope", "/%zz", "/%", "//", ";a=b", "%2F", "/entries/x", "%00", "^", "/..")


def with_a_mistake(random: Random, request: Request) -> Request:
    ways = [_query, _end, _header, _method]
    if request.text:
        ways = [_body, _body, _body, _body, _text, *ways]
    return random.choice(ways)(random, request)


def _body(random: Random, request: Request) -> Request:
    """Change or remove one random value of the body."""
    body = request.json
    places = [place for place in _places(body) if place[1] not in _SPARED_FIELDS]
    if not places:
        return request
    inside, key = random.choice(places)
    roll = random.random()
    if roll < 0.3:
        del inside[key]
    elif roll < 0.9:
        inside[key] = random.choice(_VALUES)
    elif isinstance(inside, dict):
        inside["unknown"] = random.choice(_VALUES)
    return request.with_json(body)


def _places(value: Json) -> list[tuple[Json, Json]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Json, Json]] = []
    for key, part in inside:
        found.append((value, key))
        if isinstance(part, dict | list):
            found += _places(part)
    return found


def _text(random: Random, request: Request) -> Request:
    assert request.text is not None
    if random.random() < 0.3:
        return replace(request, text=request.text[: random.randrange(len(request.text))])
    if random.random() < 0.2:
        return replace(request, text=request.text + random.choice([" ", "x", "{}", "\n"]))
    return replace(request, text=random.choice(_TEXTS))


def _query(random: Random, request: Request) -> Request:
    """Add an unknown parameter, or remove, repeat or change one."""
    query = list(request.query)
    roll = random.random()
    if not query or roll < 0.2:
        return replace(request, query=(*query, ("unknown", "x")))
    place = random.randrange(len(query))
    name = query[place][0]
    if roll < 0.4:
        del query[place]
    elif roll < 0.5:
        query.append(query[place])
    else:
        values = [*NUMBERS, *BOOLEANS, *WRONG_HASHES, "%", "\x00", "ü"]
        query[place] = (name, random.choice(values))
    return replace(request, query=tuple(query))


def _end(random: Random, request: Request) -> Request:
    return replace(request, path=request.path + random.choice(_ENDS))


def _method(random: Random, request: Request) -> Request:
    method = random.choice(_METHODS)
    return replace(request, method=method, text=None if method == "HEAD" else request.text)


def _header(random: Random, request: Request) -> Request:
    name = random.choice(["Accept", "Content-Type", "Content-Type", "Nessie-Client-Spec"])
    values = {"Accept": _ACCEPTS, "Content-Type": _CONTENT_TYPES, "Nessie-Client-Spec": NUMBERS}
    others = tuple(pair for pair in request.headers if pair[0] != name)
    if random.random() < 0.2:
        return replace(request, headers=others)
    return replace(request, headers=(*others, (name, random.choice(values[name]))))
