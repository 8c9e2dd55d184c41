"""What an expression may cost per item, told from its tree before it runs.

The library already refuses texts of a hundred thousand characters, trees deeper than 32, and more
than ten thousand rounds of loops per evaluation; numbers never grow past 64 bits. What is left is
the work within those rounds and the size of what `+` and `map` build. Both are estimated here for
an item of ordinary size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.service.filters.patterns import pattern_weight
from morag.service.filters.syntax import (
    Call,
    Constant,
    Expression,
    ListOf,
    Loop,
    MapOf,
    Name,
    Select,
)
from morag.service.filters.types import BYTES, DYN, OPEN, STRING, Type
from morag.service.filters.variables import OBJECTS

if TYPE_CHECKING:
    from morag.service.filters.check import Checked

MOST_CHARACTERS: Final = 4096
"""Of a filter's text. The original takes no longer request line."""
MOST_STEPS: Final = 50_000
"""Of one evaluation. A step is about 50 ns."""
MOST_BUILT: Final = 100_000
"""Characters and elements in a value that an expression builds from an ordinary item."""
MOST_DATA: Final = 20_000
"""Characters and elements of an item that is given to a heavy expression."""

_TEXT: Final = 100
_ELEMENTS: Final = 10
_OPERATIONS: Final = 100
_LIGHT_PATTERN: Final = 100
_COMPILE: Final = 15
"""Steps to compile one state of a pattern."""
_AT_ONCE: Final = 64
"""Characters that are copied, compared or matched in one step."""
_CARRIED: Final = frozenset({"dyn", "string", "bytes"})


class Size(Struct, frozen=True):
    """How long a text, list or map is, and the largest thing in it."""

    items: float
    inside: Size | None = None

    @property
    def whole(self) -> float:
        return self.items * (1 + self.inside.whole) if self.inside else self.items


class Cost(Struct, frozen=True):
    """`is_heavy` if the cost may grow out of hand with items far larger than usual."""

    steps: float
    is_heavy: bool


_ONE: Final = Size(1)


def check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(
            f"Filter has {len(text)} characters, but at most {MOST_CHARACTERS} are allowed"
        )


def check_cost(root: Expression, checked: Checked) -> Cost:
    """Refuse an expression that would take long, or much memory, for a single item."""
    estimate = _Estimate(checked)
    steps, _ = estimate.measure(root, {})
    if steps > MOST_STEPS:
        raise BadRequest(
            f"Filter is too expensive: about {steps:.0f} steps for each item, "
            f"but at most {MOST_STEPS} are allowed"
        )
    return Cost(steps, estimate.is_heavy)


class _Estimate:
    def __init__(self, checked: Checked) -> None:
        self.is_heavy = False
        self._types = checked.types

    def measure(self, tree: Expression, scope: dict[str, Size]) -> tuple[float, Size]:
        """Steps to evaluate, and a bound for what comes out."""
        steps, size = self._measured(tree, scope)
        if size.whole > MOST_BUILT and not isinstance(tree, Name | Select):
            raise BadRequest("Filter is too expensive: it builds texts or lists that are too large")
        return steps, size

    def _measured(self, tree: Expression, scope: dict[str, Size]) -> tuple[float, Size]:
        match tree:
            case Constant():
                return 1, Size(len(tree.data))
            case Name():
                return 1, scope.get(tree.name) or _usual(self._types[tree.id])
            case Select():
                steps, operand = self.measure(tree.operand, scope)
                usual = _usual(self._types[tree.id])
                known = self._types[tree.operand.id].name in OBJECTS
                return steps + 1, usual if known else operand.inside or usual
            case ListOf():
                return self._collected(tree.elements, len(tree.elements), scope)
            case MapOf():
                parts = tuple(part for entry in tree.entries for part in entry)
                return self._collected(parts, len(tree.entries), scope)
            case Call():
                return self._call(tree, scope)
            case Loop():
                return self._loop(tree, scope)

    def _collected(
        self, parts: tuple[Expression, ...], items: int, scope: dict[str, Size]
    ) -> tuple[float, Size]:
        measured = [self.measure(part, scope) for part in parts]
        inside = _widest(*(size for _, size in measured))
        return 1 + sum(steps for steps, _ in measured), Size(items, inside)

    def _call(self, tree: Call, scope: dict[str, Size]) -> tuple[float, Size]:
        given = tree.args if tree.target is None else (tree.target, *tree.args)
        measured = [self.measure(arg, scope) for arg in given]
        steps = 1 + sum(steps for steps, _ in measured)
        sizes = [size for _, size in measured]
        type = self._types[tree.id]
        match tree.function:
            case "_[_]":
                return steps, sizes[0].inside or _usual(type)
            case "_?_:_":
                return steps, _widest(*sizes[1:]) or _ONE
            case "_+_" if type in (STRING, BYTES, DYN, OPEN) or type.name == "list":
                # A macro adds to its own list in place; all other sums are copies.
                self.is_heavy |= not (isinstance(given[0], Name) and given[0].name.startswith("@"))
                items = sum(size.items for size in sizes)
                inside = _widest(*(size.inside for size in sizes if size.inside))
                return steps + items / _AT_ONCE, Size(items, inside)
            case "matches":
                return steps + self._match(tree, sizes[0]), _ONE
        steps += sum(size.whole for size in sizes) / _AT_ONCE
        return steps, sizes[0] if tree.function in _CARRIED else _ONE

    def _match(self, tree: Call, text: Size) -> float:
        pattern = tree.args[0]
        found = pattern.text if isinstance(pattern, Constant) else None
        if found is None:
            raise BadRequest("Filter is not supported: the pattern of 'matches' must be a literal")
        weight = pattern_weight(found)
        self.is_heavy |= weight > _LIGHT_PATTERN
        return weight * (_COMPILE + text.items / _AT_ONCE)

    def _loop(self, tree: Loop, scope: dict[str, Size]) -> tuple[float, Size]:
        steps, over = self.measure(tree.range, scope)
        more, start = self.measure(tree.start, scope)
        inside = {**scope, tree.variable: over.inside or _ONE, tree.total: start}
        condition, _ = self.measure(tree.condition, inside)
        step, once = self.measure(tree.step, inside)
        grown = max(once.items - start.items, 0)
        inside[tree.total] = Size(start.items + over.items * grown, once.inside)
        last, result = self.measure(tree.result, inside)
        return steps + more + over.items * (condition + step) + last, result


def _usual(type: Type) -> Size:
    """The size of a value that comes from an ordinary item."""
    if type in (STRING, BYTES):
        return Size(_TEXT)
    if type.name == "list":
        element = type.of[0]
        return Size(_OPERATIONS if element.name in OBJECTS else _ELEMENTS, _usual(element))
    if type.name == "map":
        return Size(_ELEMENTS, _usual(type.of[1]))
    if type in (DYN, OPEN):
        return Size(_ELEMENTS, Size(_TEXT))
    return _ONE


def _widest(*sizes: Size) -> Size | None:
    if not sizes:
        return None
    inside = _widest(*(size.inside for size in sizes if size.inside))
    return Size(max(size.items for size in sizes), inside)
