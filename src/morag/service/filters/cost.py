"""Estimates the cost of an expression per item, from its tree, before it runs.

The library itself limits the depth of trees to 32, loops to ten thousand rounds per evaluation and
numbers to 64 bits, and it matches patterns in linear time. It does not limit the work within the
rounds, and the size of values that `+`, `map` and `filter` build. Both are estimated here, for an
item of usual size and again for each larger item.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.keys import check_unicode
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
    from collections.abc import Iterable

    from morag.service.filters.check import Checked

MOST_CHARACTERS: Final = 4096
"""The limit of the text. Nessie does not accept longer request lines."""
MOST_STEPS: Final = 25_000
"""The limit for a usual item. A step takes 50 to 150 ns."""
MOST_STEPS_AT_ALL: Final = 1_000_000
"""The limit for any item."""
MOST_BUILT: Final = 50_000
"""The limit of characters and elements of a value that is built from a usual item."""
MOST_BUILT_AT_ALL: Final = 5_000_000

_CALL: Final = 20
"""Steps that a named function takes; operators take one."""
_TIME_ZONE: Final = 200
"""Steps to find a time zone."""
_COMPILE: Final = 15
"""Steps to compile one state of a pattern, which happens for every item."""
_AT_ONCE: Final = 64
"""Characters that are copied, compared or matched in a step."""
_APPEND: Final = 0.6
"""Steps per element to lengthen a list by one, halved: `map` and `filter` copy it every time."""
_LIGHT_PATTERN: Final = 100
_CARRIED: Final = frozenset({"dyn", "string", "bytes"})


class Usual(Struct, frozen=True):
    """The largest text, list and list of objects in an item."""

    text: int = 100
    elements: int = 10
    objects: int = 20

    def at_least(self, values: Iterable[object]) -> Usual:
        """The larger of each size and the size found in the values."""
        text, elements, objects = self.text, self.elements, self.objects
        left = [values]
        while left:
            for value in left.pop():
                if isinstance(value, str):
                    text = max(text, len(value))
                elif isinstance(value, dict):
                    elements = max(elements, len(value))
                    left.append(value.values())
                elif isinstance(value, list) and value:
                    if isinstance(value[0], dict):
                        objects = max(objects, len(value))
                    else:
                        elements = max(elements, len(value))
                    left.append(value)
        return Usual(text, elements, objects)


USUAL: Final = Usual()


class Size(Struct, frozen=True):
    """The length of a text, list or map, and the size of its largest element."""

    items: float
    inside: Size | None = None

    @property
    def whole(self) -> float:
        return self.items * (1 + self.inside.whole) if self.inside else self.items


_ONE: Final = Size(1)


class Cost:
    """The cost of one expression. It `grows` if large items may make it too high."""

    def __init__(self, root: Expression, checked: Checked) -> None:
        """Refuses an expression that would take long, or much memory, for a usual item."""
        self._root = root
        self._checked = checked
        self.grows = self._check(USUAL, MOST_STEPS, MOST_BUILT)

    def check_for(self, values: Iterable[object]) -> None:
        """Refuse an item that would take too long. Only needed if the cost grows."""
        usual = USUAL.at_least(values)
        if usual != USUAL:
            self._check(usual, MOST_STEPS_AT_ALL, MOST_BUILT_AT_ALL)

    def _check(self, usual: Usual, most_steps: int, most_built: int) -> bool:
        estimate = _Estimate(self._checked, usual)
        steps, _ = estimate.measure(self._root, {})
        if steps > most_steps:
            raise BadRequest(
                f"Filter is too expensive: it takes about {steps:.0f} steps for one item, "
                f"but at most {most_steps} are allowed"
            )
        if estimate.built > most_built:
            raise BadRequest(
                "Filter is too expensive: it builds a text or list of about "
                f"{estimate.built:.0f} characters, but at most {most_built} are allowed"
            )
        return estimate.grows


def check_text(text: str) -> None:
    check_unicode("Filter", text)
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(
            f"Filter has {len(text)} characters, but at most {MOST_CHARACTERS} are allowed"
        )


class _Estimate:
    def __init__(self, checked: Checked, usual: Usual) -> None:
        self.grows = False
        self.built = 0.0
        self._types = checked.types
        self._usual = usual

    def measure(self, tree: Expression, scope: dict[str, Size]) -> tuple[float, Size]:
        """Steps to evaluate, and an upper bound of the result's size."""
        match tree:
            case Constant():
                return 1, Size(len(tree.data))
            case Name():
                return 1, scope.get(tree.name) or self._size(self._types[tree.id])
            case Select():
                steps, operand = self.measure(tree.operand, scope)
                usual = self._size(self._types[tree.id])
                known = self._types[tree.operand.id].name in OBJECTS
                return steps + 1, usual if known else operand.inside or usual
            case ListOf():
                return self._collected(tree.elements, len(tree.elements), scope)
            case MapOf():
                parts = tuple(part for entry in tree.entries for part in entry)
                return self._collected(parts, len(tree.entries), scope)
            case Call():
                return self._noted(*self._call(tree, scope))
            case Loop():
                return self._noted(*self._loop(tree, scope))

    def _noted(self, steps: float, size: Size) -> tuple[float, Size]:
        self.built = max(self.built, size.whole)
        return steps, size

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
                return steps, sizes[0].inside or self._size(type)
            case "_?_:_":
                return steps, _widest(*sizes[1:]) or _ONE
            case "_+_" if type in (STRING, BYTES, DYN, OPEN) or type.name == "list":
                if not _is_total(given[0]):
                    self.grows = True
                items = sum(size.items for size in sizes)
                inside = _widest(*(size.inside for size in sizes if size.inside))
                return steps + (items if inside else items / _AT_ONCE), Size(items, inside)
            case "matches":
                return steps + self._match(tree, sizes[0]), _ONE
        steps += sum(size.whole for size in sizes) / _AT_ONCE
        if tree.function.isalpha():
            zoned = tree.function.startswith("get") and len(given) > 1
            steps += _TIME_ZONE if zoned else _CALL
        return steps, sizes[0] if tree.function in _CARRIED else _ONE

    def _match(self, tree: Call, text: Size) -> float:
        pattern = tree.args[0]
        found = pattern.text if isinstance(pattern, Constant) else None
        if found is None:
            raise BadRequest("Filter is not supported: the pattern of 'matches' must be a literal")
        weight = pattern_weight(found)
        if weight > _LIGHT_PATTERN:
            self.grows = True
        return _CALL + weight * (_COMPILE + text.items / _AT_ONCE)

    def _loop(self, tree: Loop, scope: dict[str, Size]) -> tuple[float, Size]:
        steps, over = self.measure(tree.range, scope)
        more, start = self.measure(tree.start, scope)
        inside = {**scope, tree.variable: over.inside or _ONE, tree.total: start}
        condition, _ = self.measure(tree.condition, inside)
        step, once = self.measure(tree.step, inside)
        steps += more + over.items * (condition + step)
        self.grows = True
        if self._types[tree.step.id].name == "list":
            steps += _APPEND * over.items**2
        growth = max(once.items - start.items, 0)
        inside[tree.total] = Size(start.items + over.items * growth, once.inside)
        last, result = self.measure(tree.result, inside)
        return steps + last, result

    def _size(self, type: Type) -> Size:
        """The size of a value that comes from an item."""
        if type in (STRING, BYTES):
            return Size(self._usual.text)
        if type.name == "list":
            many = type.of[0].name in OBJECTS
            items = self._usual.objects if many else self._usual.elements
            return Size(items, self._size(type.of[0]))
        if type.name == "map":
            return Size(self._usual.elements, self._size(type.of[1]))
        if type in (DYN, OPEN):
            return Size(self._usual.elements, Size(self._usual.text))
        return _ONE


def _is_total(tree: Expression) -> bool:
    """Whether it is the variable that the loop of a macro adds to: users cannot write its name."""
    return isinstance(tree, Name) and tree.name.startswith("@")


def _widest(*sizes: Size) -> Size | None:
    if not sizes:
        return None
    inside = _widest(*(size.inside for size in sizes if size.inside))
    return Size(max(size.items for size in sizes), inside)
