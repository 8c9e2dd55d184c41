"""Key patterns: texts with random, counted and repeated parts, from which names are generated.

    stuff-${every,150,uuid}.key_${int,1000}

A pattern is text with functions in `${name,argument,...}`; `$$` is a dollar. Case does not matter
in the names of functions, and spaces around names and arguments are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias
from uuid import UUID

from msgspec import Struct

from morag.errors import BadRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from random import Random

Draw: TypeAlias = Callable[[], str]
"""Returns the next value of a function."""
_Start: TypeAlias = "Callable[[Random], Draw]"
"""Starts a function from its first value."""
_Arguments: TypeAlias = "Iterator[str]"

FUNCTIONS_HELP: Final = (
    "${uuid}, ${int,BOUND}, ${string,LENGTH}, ${seq,START}, ${prob,P,FUNCTION...} "
    "and ${every,N,FUNCTION...}"
)

_PART: Final = re.compile(r"\$\$|\$\{([^}]*)\}|([^$]+)|\$")
_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 ._-"
_MOST: Final = 1 << 63
_LONGEST: Final = 1000


class KeyPattern(Struct, frozen=True):
    """A parsed pattern. Each call of `texts` starts all functions anew."""

    text: str
    parts: tuple[_Start, ...]

    @classmethod
    def parse(cls, text: str) -> KeyPattern:
        parts: list[_Start] = []
        for found in _PART.finditer(text):
            call, literal = found.groups()
            if literal is not None:
                parts.append(_constant(literal))
            elif call is not None:
                parts.append(_Call(text, call).start())
            elif found[0] == "$$":
                parts.append(_constant("$"))
            else:
                raise _wrong(text, "a '$' must start a function such as ${uuid}; write $$ for '$'")
        if not parts:
            raise _wrong(text, "it is empty")
        return cls(text, tuple(parts))

    def texts(self, random: Random) -> Iterator[str]:
        """Texts without end. The same state of `random` gives the same texts."""
        draws = [start(random) for start in self.parts]
        while True:
            yield "".join([draw() for draw in draws])


class _Call:
    """One function of a pattern, as it is written between the braces."""

    def __init__(self, pattern: str, call: str) -> None:
        self._pattern = pattern
        self._call = call

    def start(self) -> _Start:
        arguments = iter([part.strip() for part in self._call.split(",")])
        start = self._function(arguments)
        extra = next(arguments, None)
        if extra is not None:
            raise self._wrong(f"{extra!r} is one argument too many")
        return start

    def _function(self, arguments: _Arguments) -> _Start:
        name = next(arguments, "")
        parse = _FUNCTIONS.get(name.lower())
        if parse is None:
            raise self._wrong(f"there is no function {name!r}" if name else "a function is missing")
        return parse(self, arguments)

    def number(self, arguments: _Arguments, what: str, least: int, most: int = _MOST) -> int:
        text = next(arguments, None)
        try:
            number = int(text or "")
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            raise self._wrong(
                f"{what} must be a whole number from {least} to {most}, not {text!r}"
                if text
                else f"{what} is missing"
            )
        return number

    def probability(self, arguments: _Arguments) -> float:
        text = next(arguments, None)
        try:
            probability = float(text or "")
        except ValueError:
            probability = -1.0
        if not 0 <= probability <= 1:
            raise self._wrong(f"a probability must be a number from 0 to 1, not {text!r}")
        return probability

    def nested(self, arguments: _Arguments) -> _Start:
        return self._function(arguments)

    def _wrong(self, problem: str) -> BadRequest:
        return _wrong(self._pattern, f"in '${{{self._call}}}', {problem}")


def _constant(text: str) -> _Start:
    return lambda _: lambda: text


def _uuid(call: _Call, arguments: _Arguments) -> _Start:
    return lambda random: lambda: str(UUID(int=random.getrandbits(128), version=4))


def _int(call: _Call, arguments: _Arguments) -> _Start:
    bound = call.number(arguments, "the bound", 1)
    return lambda random: lambda: str(random.randrange(bound))


def _string(call: _Call, arguments: _Arguments) -> _Start:
    length = call.number(arguments, "the length", 1, _LONGEST)
    return lambda random: lambda: "".join(random.choices(_LETTERS, k=length))


def _seq(call: _Call, arguments: _Arguments) -> _Start:
    first = call.number(arguments, "the start", -_MOST)

    def start(_: Random) -> Draw:
        following = first

        def draw() -> str:
            nonlocal following
            following += 1
            return str(following - 1)

        return draw

    return start


def _prob(call: _Call, arguments: _Arguments) -> _Start:
    probability = call.probability(arguments)
    return _repeated(call.nested(arguments), lambda random, _: random.random() < probability)


def _every(call: _Call, arguments: _Arguments) -> _Start:
    period = call.number(arguments, "the number of calls", 1)
    return _repeated(call.nested(arguments), lambda _, used: used >= period)


def _repeated(nested: _Start, is_over: Callable[[Random, int], bool]) -> _Start:
    """The last value again, until `is_over` says so; it gets how often the value was used."""

    def start(random: Random) -> Draw:
        inner = nested(random)
        value: str | None = None
        used = 0

        def draw() -> str:
            nonlocal value, used
            over = is_over(random, used)  # Before the test for None, so that each call draws once.
            if value is None or over:
                value, used = inner(), 0
            used += 1
            return value

        return draw

    return start


_FUNCTIONS: Final[Mapping[str, Callable[[_Call, _Arguments], _Start]]] = {
    "uuid": _uuid,
    "int": _int,
    "string": _string,
    "seq": _seq,
    "prob": _prob,
    "every": _every,
}


def _wrong(pattern: str, problem: str) -> BadRequest:
    return BadRequest(
        f"Key pattern '{pattern}' is wrong: {problem}. Functions are {FUNCTIONS_HELP}"
    )
