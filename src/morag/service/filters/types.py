"""The types of CEL, and which types are accepted for another."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class Type(Struct, frozen=True):
    """A type by its name; lists and maps have the types of their elements in `of`.

    `A` and `B` are type variables of a signature. Names without a constant below are those of
    objects such as `Entry`.
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
"""A type that is known only at run time."""
OPEN: Final = Type("any")
"""The element type of an empty list: it becomes the type of the first added element."""
A: Final = Type("A")
B: Final = Type("B")

_NEVER_NULL: Final = frozenset({BOOL, INT, UINT, DOUBLE, STRING, BYTES, TYPE})


def list_of(element: Type) -> Type:
    return Type("list", (element,))


def map_of(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def accepts(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Whether `given` may be passed for `wanted`. Binds type variables in `bound`."""
    if wanted in (A, B):
        both = common(bound.get(wanted.name, OPEN), given)
        if both is not None:
            bound[wanted.name] = both
        return both is not None
    if wanted == DYN or given in (DYN, OPEN):
        return True
    if given == NULL:
        return _nullable(wanted)
    return wanted.name == given.name and all(
        accepts(inner, other, bound) for inner, other in zip(wanted.of, given.of, strict=True)
    )


def common(one: Type, other: Type) -> Type | None:
    """The type that covers both, if there is one."""
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


def filled(type: Type, bound: dict[str, Type]) -> Type:
    """A type of a signature with its type variables replaced."""
    if type in (A, B):
        return bound.get(type.name, OPEN)
    return Type(type.name, tuple(filled(inner, bound) for inner in type.of))


def mentions(type: Type, name: str) -> bool:
    return type.name == name or any(mentions(inner, name) for inner in type.of)


def _nullable(type: Type) -> bool:
    return type not in _NEVER_NULL and type.name not in ("list", "map")
