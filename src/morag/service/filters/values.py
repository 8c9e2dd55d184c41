"""Converts values of structs to those that the library accepts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from morag.service.filters.types import STRING, TIMESTAMP, Type, list_of
from morag.service.filters.variables import OBJECTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from morag.service.filters.variables import Getter

REPLACEMENT: Final = "\ufffd"
"""Stands for a character that the library cannot take."""
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")


def converter(type: Type, wanted: Mapping[str, set[str]]) -> Getter:
    """A function that converts values of this type. Objects get only the `wanted` fields."""
    if type in (STRING, TIMESTAMP):  # The expression parses times, to the nanosecond.
        return fit
    if type == list_of(STRING):
        return _texts
    if type.name == "list":
        element = converter(type.of[0], wanted)
        return lambda values: [element(value) for value in values]
    if type.name == "map":
        inner = converter(type.of[1], wanted)
        return lambda values: {fit(name): inner(value) for name, value in values.items()}
    if type.name in OBJECTS:
        return _object_converter(type, wanted)
    return _unchanged


def fit(text: str | None) -> str | None:
    """Replaces NULs, where the library would cut the text, and lone surrogates, where it fails.

    Keys have neither, but the message of a commit that another program wrote may have a NUL.
    """
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return _UNFIT.sub(REPLACEMENT, text)


def _object_converter(type: Type, wanted: Mapping[str, set[str]]) -> Getter:
    fields = [
        (name, field.get, converter(field.type, wanted))
        for name, field in OBJECTS[type.name].items()
        if name in wanted[type.name]
    ]

    def convert(value: Any) -> dict[str, object] | None:
        if value is None:
            return None
        return {name: inner(get(value)) for name, get, inner in fields}

    return convert


def _texts(texts: tuple[str, ...]) -> list[str | None]:
    return [fit(text) for text in texts]


def _unchanged(value: object) -> object:
    return value
