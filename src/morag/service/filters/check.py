"""Type-checks an expression before it runs, and finds the fields of items that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest
from morag.service.filters.functions import FUNCTIONS, METHODS
from morag.service.filters.syntax import (
    Call,
    Constant,
    Expression,
    ListOf,
    Loop,
    MapOf,
    Name,
    Parsed,
    Select,
)
from morag.service.filters.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    OPEN,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    accepts,
    common,
    filled,
    list_of,
    map_of,
    mentions,
)
from morag.service.filters.variables import OBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from morag.service.filters.functions import Signature
    from morag.service.filters.variables import Fields

_CONSTANTS: Final = {1: NULL, 2: BOOL, 3: INT, 4: UINT, 5: DOUBLE, 6: STRING, 7: BYTES}
_EQUALITY: Final = frozenset({"_==_", "_!=_"})
_FIELDS_UNUSED: Final = frozenset({"size", "_[_]"})
"""Functions that do not look at the fields of objects in their arguments."""


class Checked:
    """The types of all parts, by their ids, and the needed fields of each kind of object.

    `lowering` uses the types to rewrite the expression, and the fields to convert objects.
    """

    def __init__(self) -> None:
        self.types: dict[int, Type] = {}
        self.fields: dict[str, set[str]] = {name: set() for name in OBJECTS}


def check(parsed: Parsed, variables: Fields) -> Checked:
    """Refuse unknown names, functions and fields, and wrong types."""
    checker = _Checker(parsed, variables)
    root = checker.type_of(parsed.root, {})
    if root not in (BOOL, DYN, OPEN):
        raise BadRequest(f"Filter must be true or false, but is {_a(root)}")
    return checker.checked


class _Checker:
    def __init__(self, parsed: Parsed, variables: Fields) -> None:
        self.checked = Checked()
        self._positions = parsed.positions
        self._variables = variables

    def type_of(self, tree: Expression, scope: Mapping[str, Type]) -> Type:
        """`scope` has the variables of the enclosing macros."""
        type = self._found(tree, scope)
        self.checked.types[tree.id] = type
        return type

    def _found(self, tree: Expression, scope: Mapping[str, Type]) -> Type:
        match tree:
            case Constant():
                return _CONSTANTS[tree.kind]
            case Name():
                return self._name(tree, scope)
            case Select():
                return self._select(tree, scope)
            case Call():
                return self._call(tree, scope)
            case ListOf():
                elements = [self.type_of(element, scope) for element in tree.elements]
                return list_of(self._any_of(elements))
            case MapOf():
                if tree.type:
                    raise self._wrong(tree, f"'{tree.type}' is not a type that filters can create")
                keys = [self.type_of(key, scope) for key, _ in tree.entries]
                values = [self.type_of(value, scope) for _, value in tree.entries]
                return map_of(self._any_of(keys), self._any_of(values))
            case Loop():
                return self._loop(tree, scope)

    def _name(self, tree: Name, scope: Mapping[str, Type]) -> Type:
        if tree.name in scope:
            return scope[tree.name]
        variable = self._variables.get(tree.name.removeprefix("."))
        if variable is None:
            known = ", ".join(self._variables)
            raise self._wrong(tree, f"there is no variable '{tree.name}', only {known}")
        return variable.type

    def _select(self, tree: Select, scope: Mapping[str, Type]) -> Type:
        operand = self.type_of(tree.operand, scope)
        field = DYN
        if operand.name in OBJECTS:
            fields = OBJECTS[operand.name]
            if tree.field not in fields:
                known = ", ".join(fields)
                raise self._wrong(tree, f"there is no field '{tree.field}', only {known}")
            self.checked.fields[operand.name].add(tree.field)
            field = fields[tree.field].type
        elif operand.name == "map":
            field = operand.of[1]
        elif operand not in (DYN, OPEN):
            raise self._wrong(tree, f"{_a(operand)} has no fields, so no '{tree.field}'")
        return BOOL if tree.is_test else field

    def _call(self, tree: Call, scope: Mapping[str, Type]) -> Type:
        signatures, given = FUNCTIONS.get(tree.function), tree.args
        if tree.target is not None:
            signatures, given = METHODS.get(tree.function), (tree.target, *tree.args)
        is_known = tree.function in FUNCTIONS or tree.function in METHODS
        if not is_known:
            raise self._wrong(tree, f"there is no function '{tree.function}'")
        args = [self.type_of(arg, scope) for arg in given]
        results = list(_results(signatures or [], args))
        if tree.function in _EQUALITY and _is_time_and_other(*args):
            results = []
        if not results:
            shown = f"({', '.join(map(str, args))})"
            if tree.target is not None:
                shown = f"{args[0]}.({', '.join(map(str, args[1:]))})"
            raise self._wrong(tree, f"'{tree.function}' cannot be applied to {shown}")
        result = results[0] if all(other == results[0] for other in results) else DYN
        if tree.function not in _FIELDS_UNUSED:
            self._note_hidden(args, result)
        return result

    def _loop(self, tree: Loop, scope: Mapping[str, Type]) -> Type:
        over = self.type_of(tree.range, scope)
        if over in (DYN, OPEN):
            element = DYN
        elif over.name in ("list", "map"):
            element = over.of[0]
        else:
            raise self._wrong(tree, f"{_a(over)} cannot be iterated over, only lists and maps")
        inside = {**scope, tree.variable: element, tree.total: self.type_of(tree.start, scope)}
        self.type_of(tree.condition, inside)
        inside[tree.total] = self.type_of(tree.step, inside)
        return self.type_of(tree.result, inside)

    def _any_of(self, types: list[Type]) -> Type:
        """The common type of elements; `DYN` if they are mixed."""
        result: Type = OPEN
        for type in types:
            result = common(result, type) or DYN
        self._note_hidden(types, result)
        return result

    def _note_hidden(self, types: Iterable[Type], result: Type) -> None:
        """If the result hides the type of an object, any of its fields may be needed later."""
        for name in OBJECTS:
            if not mentions(result, name) and any(mentions(type, name) for type in types):
                self._need_all(name)

    def _need_all(self, name: str) -> None:
        for field, about in OBJECTS[name].items():
            self.checked.fields[name].add(field)
            if about.type.name in OBJECTS:
                self._need_all(about.type.name)

    def _wrong(self, tree: Expression, problem: str) -> BadRequest:
        position = self._positions.get(tree.id, 0) + 1
        return BadRequest(f"Filter is wrong at character {position}: {problem}")


def _results(signatures: list[Signature], args: list[Type]) -> Iterable[Type]:
    for wanted, result in signatures:
        bound: dict[str, Type] = {}
        if len(wanted) == len(args) and all(
            accepts(want, arg, bound) for want, arg in zip(wanted, args, strict=True)
        ):
            yield filled(result, bound)


def _is_time_and_other(one: Type, other: Type) -> bool:
    """A time compared with another type is an error: most likely `timestamp()` is missing."""
    times, rest = (TIMESTAMP, DURATION), (NULL, DYN, OPEN)
    return one != other and (
        (one in times and other not in rest) or (other in times and one not in rest)
    )


def _a(type: Type) -> str:
    return f"{'an' if type.name[0] in 'aeiouAEIOU' else 'a'} {type}"
