"""The types of CEL, and which one may stand where another is wanted."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Type(Struct, frozen=True):
    """A type by its name; lists and maps have others inside.

    Names in capitals stand for any type, the same wherever the letter occurs in a signature. Names
    that are none of the constants below are those of our objects.
    """

    name: str
    of: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.of))})" if self.of else self.name


BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
NULL: Final = Type("null")
TYPE: Final = Type("type")
DYN: Final = Type("dyn")
"""Known only when it runs."""
OPEN: Final = Type("any")
"""What is in an empty list: it becomes whatever is added."""
A: Final = Type("A")
B: Final = Type("B")

_NEVER_NULL: Final = frozenset({BOOL, INT, UINT, DOUBLE, STRING, BYTES, TYPE})


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def accepts(wanted: Type, given: Type, letters: dict[str, Type]) -> bool:
    """Whether `given` may be an argument where `wanted` is. Fills in what the letters stand for."""
    if wanted in (A, B):
        met = common(letters.get(wanted.name, OPEN), given)
        if met is not None:
            letters[wanted.name] = met
        return met is not None
    if wanted == DYN or given in (DYN, OPEN):
        return True
    if given == NULL:
        return _nullable(wanted)
    return wanted.name == given.name and all(
        accepts(inner, other, letters) for inner, other in zip(wanted.of, given.of, strict=True)
    )


def common(one: Type, other: Type) -> Type | None:
    """The type of what may be either of two, if there is one."""
    if one == other or other == OPEN:
        return one
    if one == OPEN:
        return other
    if DYN in (one, other):
        return DYN
    if other == NULL and _nullable(one):
        return one
    if one == NULL and _nullable(other):
        return other
    if one.name != other.name:
        return None
    inner = [common(a, b) for a, b in zip(one.of, other.of, strict=True)]
    known = tuple(part for part in inner if part is not None)
    return Type(one.name, known) if len(known) == len(inner) else None


def filled(type: Type, letters: dict[str, Type]) -> Type:
    """A signature's type with the letters replaced."""
    if type in (A, B):
        return letters.get(type.name, OPEN)
    return Type(type.name, tuple(filled(inner, letters) for inner in type.of))


def mentions(type: Type, name: str) -> bool:
    return type.name == name or any(mentions(inner, name) for inner in type.of)


def _nullable(type: Type) -> bool:
    return type not in _NEVER_NULL and type.name not in ("list", "map")
