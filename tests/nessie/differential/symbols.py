"""Symbols for values that each server generates: a symbol has one value on either server."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias
from urllib.parse import quote

Json: TypeAlias = Any

NESSIE: Final = 0
MORAG: Final = 1

HASH: Final = "H"
CONTENT_ID: Final = "C"
TOKEN: Final = "P"

_SYMBOL: Final = re.compile(r"\$[HCP]\d+")
# A word in hex may be a hash or a prefix of one. Words without a symbol stay unchanged.
VOLATILE: Final = re.compile(
    r"(?P<C>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
    r"|(?P<T>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)"
    r"|(?P<H>(?<![0-9A-Za-z])[0-9a-fA-F]{8,64}(?![0-9A-Za-z]))"
)
FULL_HASH: Final = 64


class Symbols:
    """Translates between symbols and values, one to one on either side.

    Hashes are `$H1`, content ids `$C1`, paging tokens `$P1`. Requests are written with symbols, and
    get the values of a server when they are sent to it.
    """

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, str]] = {}
        self._names: tuple[dict[str, str], dict[str, str]] = ({}, {})

    def bind(self, kind: str, nessie: str, morag: str) -> str:
        name = f"${kind}{len(self._values) + 1}"
        self._values[name] = (nessie, morag)
        self._names[NESSIE][nessie] = name
        self._names[MORAG][morag] = name
        return name

    def part(self, name: str, length: int) -> str:
        """A symbol for the first characters of a hash."""
        nessie, morag = (value[:length] for value in self._values[name])
        return self._names[NESSIE].get(nessie) or self.bind(HASH, nessie, morag)

    def upper(self, name: str) -> str:
        """A symbol for a hash in upper case."""
        nessie, morag = (value.upper() for value in self._values[name])
        return self._names[NESSIE].get(nessie) or self.bind(HASH, nessie, morag)

    def name(self, side: int, value: str) -> str | None:
        return self._names[side].get(value)

    def real(self, text: str, side: int, *, quoted: bool = False) -> str:
        def value(match: re.Match[str]) -> str:
            if match[0] not in self._values:  # The text was cut off within a symbol.
                return match[0]
            found = self._values[match[0]][side]
            return quote(found, safe="") if quoted else found

        return _SYMBOL.sub(value, text)

    def symbolic(self, value: Json, side: int) -> Json:
        """An answer with symbols for all values that have one."""
        if isinstance(value, dict):
            return {key: self.symbolic(part, side) for key, part in value.items()}
        if isinstance(value, list):
            return [self.symbolic(part, side) for part in value]
        if isinstance(value, str):
            if whole := self._names[side].get(value):
                return whole
            return VOLATILE.sub(lambda m: self._names[side].get(m[0], m[0]), value)
        return value
