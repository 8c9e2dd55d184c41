"""Judges items by common comparisons, without the library.

A verdict is true, false, or None if only the library can tell: if there is no verdict on a part of
the expression, or if that part would fail. In CEL a part that fails does not matter if another
part decides, so None does not matter then either: `None && false` is false.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import contains, eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from morag.service.filters.comparisons import SizeComparison, TextComparison
from morag.service.filters.lowering import through
from morag.service.filters.moments import moment_of
from morag.service.filters.syntax import Call, Expression, chain

if TYPE_CHECKING:
    from morag.service.filters.comparisons import Comparison, Comparisons
    from morag.service.filters.lowering import Lowering
    from morag.service.filters.variables import Getter

Verdict: TypeAlias = Callable[[Any], bool | None]

_TESTS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "_==_": eq,
    "_!=_": ne,
    "_<_": lt,
    "_<=_": le,
    "_>_": gt,
    "_>=_": ge,
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": contains,
}


class Verdicts:
    """Makes verdicts for one expression. They are `complete` if none of its parts needs the
    library, except for unset values."""

    def __init__(self, comparisons: Comparisons, lowering: Lowering) -> None:
        self.complete = True
        self._comparisons = comparisons
        self._lowering = lowering

    def of(self, tree: Expression) -> Verdict | None:
        """A function that judges items; None if it could judge none."""
        match tree:
            case Call(function="_&&_"):
                return self._of_chain(tree, decisive=False)
            case Call(function="_||_"):
                return self._of_chain(tree, decisive=True)
            case Call(function="!_"):
                inner = self.of(tree.args[0])
                return inner and _opposite(inner)
        compared = self._comparisons.read(tree)
        if compared is None:
            self.complete = False
            return None
        return self._of_comparison(compared)

    def _of_chain(self, tree: Call, *, decisive: bool) -> Verdict | None:
        """Any part that is `decisive` decides."""
        parts = [self.of(part) for part in chain(tree)]
        known = [part for part in parts if part is not None]
        if not known:
            return None
        return _joined(known, decisive, None if len(known) < len(parts) else not decisive)

    def _of_comparison(self, compared: Comparison) -> Verdict:
        get = self._lowering.getter(compared.field)
        if isinstance(compared, TextComparison):
            return _of_text(get, compared)
        if isinstance(compared, SizeComparison):
            return _tested(through(get, len), compared.operator, compared.number)
        return _tested(through(get, moment_of), compared.operator, compared.moment)


def _of_text(get: Getter, compared: TextComparison) -> Verdict:
    """Equality takes an unset value, too."""
    texts = frozenset(compared.texts)
    if compared.operator in ("_==_", "@in"):
        return lambda item: get(item) in texts
    if compared.operator == "_!=_":
        return lambda item: get(item) not in texts
    return _tested(get, compared.operator, compared.texts[0])


def _tested(get: Getter, operator: str, literal: str | int) -> Verdict:
    """There is no verdict on an unset value: the library refuses it."""
    test = _TESTS[operator]

    def verdict(item: Any) -> bool | None:
        value = get(item)
        return None if value is None else test(value, literal)

    return verdict


def _joined(parts: list[Verdict], decisive: bool, otherwise: bool | None) -> Verdict:
    def verdict(item: Any) -> bool | None:
        result = otherwise
        for part in parts:
            found = part(item)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    return verdict


def _opposite(inner: Verdict) -> Verdict:
    def verdict(item: Any) -> bool | None:
        found = inner(item)
        return None if found is None else not found

    return verdict
