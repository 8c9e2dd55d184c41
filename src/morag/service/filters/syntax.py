"""The tree of an expression, and its encoding in the library.

The library parses a text and returns the tree as bytes of `cel.expr.ParsedExpr`. The tree is
checked and rewritten before it runs, and is passed to the library in the same form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.protobuf import bytes_field, fields, int_field, read_varint, signed, text_field

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPE_URL: Final = "type.googleapis.com/cel.expr.ParsedExpr"
_NULL, _BOOL, _INTEGER, _TEXT = 1, 2, 3, 6
"""Numbers of the kinds of constants that are read or created here."""


class Constant(Struct, frozen=True):
    """A literal. Only texts and integers are decoded."""

    id: int
    data: bytes

    @property
    def kind(self) -> int:
        return self.data[0] >> 3

    @property
    def text(self) -> str | None:
        if self.kind != _TEXT:
            return None
        _, start = read_varint(self.data, 1)
        return self.data[start:].decode()

    @property
    def integer(self) -> int | None:
        if self.kind != _INTEGER:
            return None
        return signed(read_varint(self.data, 1)[0])


class Name(Struct, frozen=True):
    id: int
    name: str


class Select(Struct, frozen=True):
    """`operand.field`, or `has(operand.field)` if it is a test."""

    id: int
    operand: Expression
    field: str
    is_test: bool = False


class Call(Struct, frozen=True):
    """A function or an operator. The target of a method is the expression before its dot."""

    id: int
    function: str
    args: tuple[Expression, ...]
    target: Expression | None = None


class ListOf(Struct, frozen=True):
    id: int
    elements: tuple[Expression, ...]


class MapOf(Struct, frozen=True):
    """A map; with a type, an object of that type, which filters must not create."""

    id: int
    type: str
    entries: tuple[tuple[Expression, Expression], ...]


class Loop(Struct, frozen=True):
    """The loop that the macros `all`, `exists`, `exists_one`, `map` and `filter` expand to.

    `total` starts as `start` and becomes `step` for every `variable` of `range`, while `condition`
    is true. Users cannot write its name.
    """

    id: int
    variable: str
    range: Expression
    total: str
    start: Expression
    condition: Expression
    step: Expression
    result: Expression


Expression: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Loop
_NUMBERS: Final = {Constant: 3, Name: 4, Select: 5, Call: 6, ListOf: 7, MapOf: 8, Loop: 9}


class Parsed(Struct, frozen=True):
    """A tree, and the positions of its parts in the text."""

    root: Expression
    positions: dict[int, int]


def read_tree(data: bytes) -> Parsed:
    parsed = _part(data, 2)
    positions = {}
    for number, value in fields(_part(parsed, 3)):
        if number == 4 and isinstance(value, bytes):
            entry = dict(fields(value))
            positions[int(entry.get(1, 0))] = int(entry.get(2, 0))
    return Parsed(_expression(_part(parsed, 2)), positions)


def tree_bytes(root: Expression) -> bytes:
    return text_field(1, _TYPE_URL) + bytes_field(2, bytes_field(2, _expression_bytes(root)))


def null(id: int) -> Constant:
    return Constant(id, int_field(_NULL, 0))


def boolean(id: int, value: bool) -> Constant:
    return Constant(id, int_field(_BOOL, value))


def text(id: int, value: str) -> Constant:
    return Constant(id, text_field(_TEXT, value))


def children(tree: Expression) -> Iterator[Expression]:
    """The parts of an expression, in the order of the text."""
    match tree:
        case Select():
            yield tree.operand
        case Call():
            if tree.target is not None:
                yield tree.target
            yield from tree.args
        case ListOf():
            yield from tree.elements
        case MapOf():
            for key, value in tree.entries:
                yield key
                yield value
        case Loop():
            yield from (tree.range, tree.start, tree.condition, tree.step, tree.result)
        case Constant() | Name():
            pass


def chain(tree: Call) -> Iterator[Expression]:
    """The operands of an operator that joins any number of them, such as `&&`, which the parser
    nests two by two."""
    for part in tree.args:
        if isinstance(part, Call) and part.function == tree.function:
            yield from chain(part)
        else:
            yield part


def _expression(data: bytes) -> Expression:
    id = 0
    for number, value in fields(data):
        if isinstance(value, int):
            id = value
            continue
        match number:
            case 3:
                return Constant(id, value)
            case 4:
                return Name(id, _text(value, 1))
            case 5:
                return Select(
                    id,
                    _expression(_part(value, 1)),
                    _text(value, 2),
                    any(part == (3, 1) for part in fields(value)),
                )
            case 6:
                target = _parts(value, 1)
                return Call(
                    id,
                    _text(value, 2),
                    tuple(_expression(part) for part in _parts(value, 3)),
                    _expression(target[0]) if target else None,
                )
            case 7:
                return ListOf(id, tuple(_expression(part) for part in _parts(value, 1)))
            case 8:
                return MapOf(id, _text(value, 1), tuple(_entry(e) for e in _parts(value, 2)))
            case 9:
                return _loop(id, value)
    raise ValueError("an expression without a kind")


def _entry(data: bytes) -> tuple[Expression, Expression]:
    keys = _parts(data, 3)
    key = _expression(keys[0]) if keys else Name(0, _text(data, 2))
    return key, _expression(_part(data, 4))


def _loop(id: int, data: bytes) -> Loop:
    return Loop(
        id=id,
        variable=_text(data, 1),
        range=_expression(_part(data, 2)),
        total=_text(data, 3),
        start=_expression(_part(data, 4)),
        condition=_expression(_part(data, 5)),
        step=_expression(_part(data, 6)),
        result=_expression(_part(data, 7)),
    )


def _parts(data: bytes, number: int) -> list[bytes]:
    return [value for found, value in fields(data) if found == number and isinstance(value, bytes)]


def _part(data: bytes, number: int) -> bytes:
    found = _parts(data, number)
    return found[0] if found else b""


def _text(data: bytes, number: int) -> str:
    return _part(data, number).decode()


def _expression_bytes(tree: Expression) -> bytes:
    return int_field(2, tree.id) + bytes_field(_NUMBERS[type(tree)], _content_bytes(tree))


def _content_bytes(tree: Expression) -> bytes:
    match tree:
        case Constant():
            return tree.data
        case Name():
            return text_field(1, tree.name)
        case Select():
            test = int_field(3, 1) if tree.is_test else b""
            return _part_bytes(1, tree.operand) + text_field(2, tree.field) + test
        case Call():
            target = _part_bytes(1, tree.target) if tree.target is not None else b""
            args = b"".join(_part_bytes(3, arg) for arg in tree.args)
            return target + text_field(2, tree.function) + args
        case ListOf():
            return b"".join(_part_bytes(1, element) for element in tree.elements)
        case MapOf():
            entries = [_part_bytes(3, key) + _part_bytes(4, value) for key, value in tree.entries]
            return b"".join(bytes_field(2, entry) for entry in entries)
        case Loop():
            return (
                text_field(1, tree.variable)
                + _part_bytes(2, tree.range)
                + text_field(3, tree.total)
                + _part_bytes(4, tree.start)
                + _part_bytes(5, tree.condition)
                + _part_bytes(6, tree.step)
                + _part_bytes(7, tree.result)
            )


def _part_bytes(number: int, tree: Expression) -> bytes:
    return bytes_field(number, _expression_bytes(tree))
