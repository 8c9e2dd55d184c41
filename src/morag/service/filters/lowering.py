"""Turns an expression about objects into one about single values.

`entry.name` becomes one text, and the rest of the entry is neither read nor converted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from morag.service.filters.syntax import (
    Call,
    Constant,
    Expression,
    ListOf,
    Loop,
    MapOf,
    Name,
    Select,
    boolean,
    null,
)
from morag.service.filters.types import BOOL, TIMESTAMP
from morag.service.filters.values import converter
from morag.service.filters.variables import OBJECTS

if TYPE_CHECKING:
    from morag.service.filters.check import Checked
    from morag.service.filters.variables import Fields, Getter

_NOTHING_HIDDEN: Final[frozenset[str]] = frozenset()


class Lowering:
    """Collects the values that the expression needs in `inputs`: their names and getters.

    Names start with @, so that no variable of a macro can hide them.
    """

    def __init__(self, checked: Checked, variables: Fields) -> None:
        self.inputs: dict[tuple[str, ...], tuple[str, Getter]] = {}
        self._checked = checked
        self._variables = variables

    def root(self, tree: Expression) -> Expression:
        lowered = self._lower(tree, _NOTHING_HIDDEN)
        if self._checked.types[tree.id] == BOOL:
            return lowered
        # The library miscounts references to None when a result is null, until the interpreter
        # crashes. So the result must be a bool or an error.
        return Call(tree.id, "_?_:_", (lowered, boolean(tree.id, True), boolean(tree.id, False)))

    def path(self, tree: Expression, hidden: frozenset[str] = _NOTHING_HIDDEN) -> tuple[str, ...]:
        """The names from a variable to a value; empty if the path has anything but selections."""
        if isinstance(tree, Name):
            name = tree.name.removeprefix(".")
            return () if tree.name in hidden or name not in self._variables else (name,)
        if isinstance(tree, Select) and self._checked.types[tree.operand.id].name in OBJECTS:
            above = self.path(tree.operand, hidden)
            return (*above, tree.field) if above else ()
        return ()

    def getter(self, path: tuple[str, ...]) -> Getter:
        """From an item to the value at the path, as the library gets it."""
        variable = self._variables[path[0]]
        type, get = variable.type, variable.get
        for name in path[1:]:
            field = OBJECTS[type.name][name]
            type, get = field.type, through(get, field.get)
        convert = converter(type, self._checked.fields)
        return lambda item: convert(get(item))

    def _lower(self, tree: Expression, hidden: frozenset[str]) -> Expression:
        """`hidden` are the variables of the enclosing macros."""
        match tree:
            case Constant():
                return tree
            case Name():
                path = self.path(tree, hidden)
                return self._value(tree.id, path) if path else tree
            case Select():
                return self._select(tree, hidden)
            case Call():
                target = tree.target and self._lower(tree.target, hidden)
                return Call(tree.id, tree.function, self._all(tree.args, hidden), target)
            case ListOf():
                return ListOf(tree.id, self._all(tree.elements, hidden))
            case MapOf():
                entries = tuple(
                    (self._lower(key, hidden), self._lower(value, hidden))
                    for key, value in tree.entries
                )
                return MapOf(tree.id, tree.type, entries)
            case Loop():
                inside = hidden | {tree.variable, tree.total}
                return Loop(
                    id=tree.id,
                    variable=tree.variable,
                    range=self._lower(tree.range, hidden),
                    total=tree.total,
                    start=self._lower(tree.start, hidden),
                    condition=self._lower(tree.condition, inside),
                    step=self._lower(tree.step, inside),
                    result=self._lower(tree.result, inside),
                )

    def _all(self, trees: tuple[Expression, ...], hidden: frozenset[str]) -> tuple[Expression, ...]:
        return tuple(self._lower(tree, hidden) for tree in trees)

    def _select(self, tree: Select, hidden: frozenset[str]) -> Expression:
        if self._checked.types[tree.operand.id].name not in OBJECTS:
            return Select(tree.id, self._lower(tree.operand, hidden), tree.field, tree.is_test)
        path = self.path(tree, hidden)
        value = (
            self._value(tree.id, path)
            if path
            else Select(tree.id, self._lower(tree.operand, hidden), tree.field)
        )
        if tree.is_test:
            return Call(tree.id, "_!=_", (value, null(tree.id)))
        if self._checked.types[tree.id] != TIMESTAMP:
            return value
        # Times are passed as texts, because a datetime would lose the nanoseconds.
        moment = Call(tree.id, "timestamp", (value,))
        if not path:
            return moment
        unset = Call(tree.id, "_==_", (value, null(tree.id)))
        return Call(tree.id, "_?_:_", (unset, null(tree.id), moment))

    def _value(self, id: int, path: tuple[str, ...]) -> Name:
        if path not in self.inputs:
            self.inputs[path] = (f"@{len(self.inputs)}", self.getter(path))
        return Name(id, self.inputs[path][0])


def through(outer: Getter, inner: Getter) -> Getter:
    """A field of an object that may be None."""

    def get(item: Any) -> Any:
        value = outer(item)
        return None if value is None else inner(value)

    return get
