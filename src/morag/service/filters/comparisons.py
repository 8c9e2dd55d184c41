"""Recognises comparisons of a field with literals: most filters consist of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.service.filters.moments import moment_of
from morag.service.filters.syntax import Call, Constant, ListOf
from morag.service.filters.types import STRING, TIMESTAMP

if TYPE_CHECKING:
    from morag.service.filters.check import Checked
    from morag.service.filters.lowering import Lowering
    from morag.service.filters.syntax import Expression

_EQUALITY: Final = frozenset({"_==_", "_!=_"})
_ORDER: Final = _EQUALITY | {"_<_", "_<=_", "_>_", "_>=_"}
_METHODS: Final = frozenset({"startsWith", "endsWith", "contains"})


class TextComparison(Struct, frozen=True):
    """`entry.name == 'a'`: equality, `@in` with any number of texts, or a method with one."""

    field: tuple[str, ...]
    operator: str
    texts: tuple[str, ...]


class SizeComparison(Struct, frozen=True):
    """`size(entry.keyElements) == 2`: equality or order."""

    field: tuple[str, ...]
    operator: str
    number: int


class TimeComparison(Struct, frozen=True):
    """`commit.commitTime > timestamp('2024-01-01T00:00:00Z')`: equality or order."""

    field: tuple[str, ...]
    operator: str
    moment: str


Comparison: TypeAlias = TextComparison | SizeComparison | TimeComparison


class Comparisons:
    """Reads the comparisons in one expression."""

    def __init__(self, checked: Checked, lowering: Lowering) -> None:
        self._types = checked.types
        self._path = lowering.path

    def read(self, tree: Expression) -> Comparison | None:
        """None for everything else, and for literals of unusual form."""
        if not isinstance(tree, Call):
            return None
        if tree.function in _METHODS:
            assert tree.target is not None, "the types were checked"
            return self._of_text(tree.target, tree.function, tree.args[0])
        if tree.function not in _ORDER and tree.function != "@in":
            return None
        left, right = tree.args
        if tree.function in _EQUALITY and isinstance(left, Constant):
            left, right = right, left
        return (
            self._of_text(left, tree.function, right)
            or self._of_size(left, tree.function, right)
            or self._of_time(left, tree.function, right)
        )

    def _of_text(
        self, field: Expression, operator: str, literal: Expression
    ) -> TextComparison | None:
        path, texts = self._path(field), _texts(operator, literal)
        if not path or texts is None or self._types[field.id] != STRING:
            return None
        return TextComparison(path, operator, texts)

    def _of_size(
        self, size: Expression, operator: str, literal: Expression
    ) -> SizeComparison | None:
        number = literal.integer if isinstance(literal, Constant) else None
        if number is None or not isinstance(size, Call) or size.function != "size":
            return None
        field = size.args[0] if size.target is None else size.target
        path, type = self._path(field), self._types[field.id]
        if not path or (type != STRING and type.name != "list"):
            return None
        return SizeComparison(path, operator, number)

    def _of_time(
        self, field: Expression, operator: str, literal: Expression
    ) -> TimeComparison | None:
        field, time = _converted(field) or field, _converted(literal)
        path = self._path(field)
        text = time.text if isinstance(time, Constant) else None
        moment = None if text is None else moment_of(text)
        if not path or moment is None or self._types[field.id] != TIMESTAMP:
            return None
        return TimeComparison(path, operator, moment)


def _texts(operator: str, literal: Expression) -> tuple[str, ...] | None:
    """None if anything but texts is compared, or if texts are ordered."""
    literals: tuple[Expression, ...] = (literal,)
    if operator == "@in":
        if not isinstance(literal, ListOf):
            return None
        literals = literal.elements
    elif operator not in _EQUALITY | _METHODS:
        return None
    texts = [each.text if isinstance(each, Constant) else None for each in literals]
    known = tuple(text for text in texts if text is not None)
    return known if len(known) == len(texts) else None


def _converted(tree: Expression) -> Expression | None:
    """What `timestamp(...)` is called with."""
    if isinstance(tree, Call) and tree.function == "timestamp":
        return tree.args[0]
    return None
