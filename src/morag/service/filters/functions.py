"""The functions and operators that filters may use, with their signatures.

They are those of standard CEL, as in Nessie, where equality takes any two types.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from morag.service.filters.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
)

Signature: TypeAlias = tuple[tuple[Type, ...], Type]
"""The types of arguments and of the result. A method's target is its first argument."""

_NUMBERS: Final = (INT, UINT, DOUBLE)
_ORDERED: Final = (BOOL, *_NUMBERS, STRING, BYTES, TIMESTAMP, DURATION)
_SIZED: Final = (STRING, BYTES, list_of(A), map_of(A, B))
_LOGIC: Final[list[Signature]] = [((BOOL, BOOL), BOOL)]
_ORDER: Final[list[Signature]] = [((kind, kind), BOOL) for kind in _ORDERED]
_EQUALITY: Final[list[Signature]] = [((A, B), BOOL)]
_SIZE: Final[list[Signature]] = [((kind,), INT) for kind in _SIZED]
_TEXT_TEST: Final[list[Signature]] = [((STRING, STRING), BOOL)]
_DATE_PART: Final[list[Signature]] = [((TIMESTAMP,), INT), ((TIMESTAMP, STRING), INT)]
_TIME_PART: Final[list[Signature]] = [*_DATE_PART, ((DURATION,), INT)]


def _same(*kinds: Type) -> list[Signature]:
    return [((kind, kind), kind) for kind in kinds]


def _conversion(result: Type, *kinds: Type) -> list[Signature]:
    return [((kind,), result) for kind in kinds]


FUNCTIONS: Final[dict[str, list[Signature]]] = {
    "_&&_": _LOGIC,
    "_||_": _LOGIC,
    "!_": _conversion(BOOL, BOOL),
    "@not_strictly_false": _conversion(BOOL, BOOL),
    "_?_:_": [((BOOL, A, A), A)],
    "_==_": _EQUALITY,
    "_!=_": _EQUALITY,
    "_<_": _ORDER,
    "_<=_": _ORDER,
    "_>_": _ORDER,
    "_>=_": _ORDER,
    "@in": [((A, list_of(A)), BOOL), ((A, map_of(A, B)), BOOL)],
    "_[_]": [((list_of(A), INT), A), ((map_of(A, B), A), B)],
    "_+_": [
        *_same(*_NUMBERS, STRING, BYTES, list_of(A), DURATION),
        ((TIMESTAMP, DURATION), TIMESTAMP),
        ((DURATION, TIMESTAMP), TIMESTAMP),
    ],
    "_-_": [
        *_same(*_NUMBERS, DURATION),
        ((TIMESTAMP, TIMESTAMP), DURATION),
        ((TIMESTAMP, DURATION), TIMESTAMP),
    ],
    "_*_": _same(*_NUMBERS),
    "_/_": _same(*_NUMBERS),
    "_%_": _same(INT, UINT),
    "-_": [((INT,), INT), ((DOUBLE,), DOUBLE)],
    "size": _SIZE,
    "type": _conversion(TYPE, A),
    "dyn": _conversion(DYN, A),
    "int": _conversion(INT, *_NUMBERS, STRING, TIMESTAMP, DURATION),
    "uint": _conversion(UINT, *_NUMBERS, STRING),
    "double": _conversion(DOUBLE, *_NUMBERS, STRING),
    "bool": _conversion(BOOL, BOOL, STRING),
    "string": _conversion(STRING, STRING, BOOL, *_NUMBERS, BYTES, TIMESTAMP, DURATION),
    "bytes": _conversion(BYTES, BYTES, STRING),
    "timestamp": _conversion(TIMESTAMP, TIMESTAMP, STRING, INT),
    "duration": _conversion(DURATION, DURATION, STRING),
}

METHODS: Final[dict[str, list[Signature]]] = {
    "size": _SIZE,
    "contains": _TEXT_TEST,
    "startsWith": _TEXT_TEST,
    "endsWith": _TEXT_TEST,
    "matches": _TEXT_TEST,
    "getFullYear": _DATE_PART,
    "getMonth": _DATE_PART,
    "getDayOfYear": _DATE_PART,
    "getDayOfMonth": _DATE_PART,
    "getDate": _DATE_PART,
    "getDayOfWeek": _DATE_PART,
    "getHours": _TIME_PART,
    "getMinutes": _TIME_PART,
    "getSeconds": _TIME_PART,
    "getMilliseconds": _TIME_PART,
}
