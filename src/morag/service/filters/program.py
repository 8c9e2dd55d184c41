"""A filter that is ready to run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

# The library has types but no marker that says so.
from cel_expr_python import cel  # type: ignore[import-untyped]

from morag.errors import BadRequest
from morag.service.filters.check import check
from morag.service.filters.cost import Cost, check_text
from morag.service.filters.lowering import Lowering
from morag.service.filters.syntax import Call, Constant, children, read_tree, text, tree_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.service.filters.syntax import Expression, Parsed
    from morag.service.filters.variables import Fields

_ENVIRONMENT: Final = cel.NewEnv()
_FAILURES: Final = (RuntimeError, ValueError, LookupError, TypeError)
"""Whatever the library raises."""
_TROUBLE: Final = re.compile(r"ERROR: <input>:(?P<line>\d+):(?P<column>\d+): (?P<what>.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_PLAIN: Final = (
    (re.compile("Index error: index=(.*) size=(.*)"), r"there is no element \1 in a list of \2"),
    (re.compile("Key not found in map : (.*)"), r"there is no \1 in the map"),
    (re.compile("No matching overloads.*"), "a function was given null, or another wrong type"),
    (re.compile("Applying SELECT to non-message type"), "a field was asked of null"),
    (re.compile("Iteration budget exceeded"), "it takes more than 10000 rounds for one item"),
    (re.compile(".*recursion (limit|depth).*"), "it is nested too deeply"),
)


class Program:
    """Compiled once, then called with the items of a listing, if need be from several threads."""

    def __init__(self, source: str, variables: Fields) -> None:
        check_text(source)
        parsed = _parsed(source)
        checked = check(parsed, variables)
        self._cost = Cost(parsed.root, checked)
        _check_patterns(parsed.root)
        lowering = Lowering(checked, variables)
        root = lowering.root(parsed.root)
        self._inputs = tuple(lowering.inputs.values())
        self._run = _ENVIRONMENT.deserialize(tree_bytes(root)).eval

    def __call__(self, item: object) -> bool:
        data = {name: get(item) for name, get in self._inputs}
        if self._cost.grows:
            self._cost.check_for(data.values())
        answer = _answer(self._run, data)
        if isinstance(answer, str):
            raise BadRequest(f"Filter fails: {answer}")
        return answer


def _answer(run: Callable[..., Any], data: dict[str, object]) -> bool | str:
    """What came out, or what went wrong."""
    try:
        answer = run(data=data).value()
    except _FAILURES as failure:
        answer = str(failure)
    return answer if answer is True or answer is False else _plain(str(answer))


def _parsed(source: str) -> Parsed:
    try:
        tree = _ENVIRONMENT.compile(source, disable_check=True).serialize()
    except _FAILURES as failure:
        message = str(failure)
        trouble = _TROUBLE.search(message)
        if trouble is None:
            raise BadRequest(f"Filter cannot be read: {_plain(message)}") from None
        where = f" at line {trouble['line']}, column {trouble['column']}"
        if int(trouble["line"]) > source.count("\n") + 1:
            where = ""  # The library counts one back from zero where it means no place.
        raise BadRequest(f"Filter cannot be read{where}: {_plain(trouble['what'])}") from None
    return read_tree(tree)


def _check_patterns(tree: Expression) -> None:
    """A pattern that is wrong should be told even if no item is ever matched against it."""
    if isinstance(tree, Call) and tree.function == "matches" and isinstance(tree.args[0], Constant):
        test = tree_bytes(Call(0, "matches", tree.args, text(0, "")))
        answer = _answer(_ENVIRONMENT.deserialize(test).eval, {})
        if isinstance(answer, str):
            raise BadRequest(f"Filter is wrong: {answer}")
    for part in children(tree):
        _check_patterns(part)


def _plain(message: str) -> str:
    """What the library says, without its codes, and in our words where they are better."""
    message = _STATUS.sub("", message).partition("\n")[0]
    for pattern, words in _PLAIN:
        if pattern.fullmatch(message):
            return pattern.sub(words, message)
    return message
