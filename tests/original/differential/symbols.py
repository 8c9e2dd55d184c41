"""Names for values that each server makes up: a name stands for one value here and one there."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Json: TypeAlias = Any

ORIGINAL: Final = 0
MORAG: Final = 1

HASH: Final = "H"
CONTENT_ID: Final = "C"
TOKEN: Final = "P"

_SYMBOL: Final = re.compile(r"\$[HCP]\d+")
# A word in hex may be a hash or the beginning of one. Words that nobody made up stay as they are.
VOLATILE: Final = re.compile(
    r"(?P<C>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<T>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)"
    r"|(?P<H>(?<![0-9A-Za-z])[0-9a-fA-F]{8,64}(?![0-9A-Za-z]))"
)
FULL_HASH: Final = 64


class Symbols:
    """Both ways between names and values, one to one on either side.

    Hashes are `$H1`, content ids `$C1`, paging tokens `$P1`. Requests are written with names, and
    become real for each server on their way out.
    """

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        self._names: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def bind(self, kind: str, here: str, there: str) -> str:
        name = f"${kind}{len(self._values) + 1}"
        self._values[name] = (here, there)
        self._names[ORIGINAL][here] = name
        self._names[MORAG][there] = name
        return name

    def part(self, name: str, length: int) -> str:
        """A name for the first characters of a hash."""
        here, there = (value[:length] for value in self._values[name])
        return self._names[ORIGINAL].get(here) or self.bind(HASH, here, there)

    def shouted(self, name: str) -> str:
        """A name for a hash in upper case."""
        here, there = (value.upper() for value in self._values[name])
        return self._names[ORIGINAL].get(here) or self.bind(HASH, here, there)

    def name(self, side: int, value: str) -> str | None:
        return self._names[side].get(value)

    def real(self, text: str, side: int, *, quoted: bool = False) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] not in self._values:  # What is left of a name where a text was cut off.
                return match[0]
            found = self._values[match[0]][side]
            return quote(found, safe="") if quoted else found

        return _SYMBOL.sub(value, text)

    def symbolic(self, value: Json, side: int) -> Json:
        """An answer with names instead of values, as far as they have one."""
        if isinstance(value, dict):
            return {key: self.symbolic(part, side) for key, part in value.items()}
        if isinstance(value, list):
            return [self.symbolic(part, side) for part in value]
        if isinstance(value, str):
            if whole := self._names[side].get(value):
                return whole
            return VOLATILE.sub(lambda m: self._names[side].get(m[0], m[0]), value)
        return value
