"""A compiled filter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

# The library has types, but lacks the file `py.typed`.
from cel_expr_python import cel  # type: ignore[import-untyped]

from morag.errors import BadRequest
from morag.index.keys import CONTENTS
from morag.service.filters.check import check
from morag.service.filters.comparisons import Comparisons
from morag.service.filters.cost import Cost, check_text
from morag.service.filters.key_ranges import key_range
from morag.service.filters.lowering import Lowering
from morag.service.filters.syntax import Call, Constant, children, read_tree, text, tree_bytes
from morag.service.filters.verdicts import Verdicts

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.service.filters.syntax import Expression, Parsed
    from morag.service.filters.variables import Fields
    from morag.service.filters.verdicts import Verdict

_ENVIRONMENT: Final = cel.NewEnv()
_FAILURES: Final = (RuntimeError, ValueError, LookupError, TypeError)
"""The exceptions that the library raises."""
_SYNTAX_ERROR: Final = re.compile(r"ERROR: <input>:(?P<line>\d+):(?P<column>\d+): (?P<what>.*)")
_STATUS: Final = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
_PLAIN: Final = (
    (re.compile("Index error: index=(.*) size=(.*)"), r"there is no element \1 in a list of \2"),
    (re.compile("Key not found in map : (.*)"), r"there is no \1 in the map"),
    (re.compile("No matching overloads.*"), "a function got null, or another wrong type"),
    (re.compile("Applying SELECT to non-message type"), "a field of null was selected"),
    (re.compile("Iteration budget exceeded"), "it takes more than 10000 rounds for one item"),
    (re.compile(".*recursion (limit|depth).*"), "it is nested too deeply"),
)


class Program:
    """Compiled once, then called with the items of listings, perhaps from several threads.

    `verdict` judges items without the library, as far as that is possible; `is_settled` if that is
    always possible, for items whose fields are set. `keys` is the range of keys that can pass.
    """

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
        self.verdict: Verdict | None = None
        self.is_settled = False
        self.keys = CONTENTS
        if not self._cost.grows:  # Otherwise every item must be checked, even one that cannot pass.
            comparisons = Comparisons(checked, lowering)
            verdicts = Verdicts(comparisons, lowering)
            self.verdict = verdicts.of(parsed.root)
            self.is_settled = verdicts.complete
            self.keys = key_range(parsed.root, comparisons)

    def __call__(self, item: object) -> bool:
        verdict = None if self.verdict is None else self.verdict(item)
        return self._evaluated(item) if verdict is None else verdict

    def _evaluated(self, item: object) -> bool:
        data = {name: get(item) for name, get in self._inputs}
        if self._cost.grows:
            self._cost.check_for(data.values())
        result = _result(self._run, data)
        if isinstance(result, str):
            raise BadRequest(f"Filter fails: {result}")
        return result


def _result(run: Callable[..., Any], data: dict[str, object]) -> bool | str:
    """The result of an evaluation, or its error."""
    try:
        result = run(data=data).value()
    except _FAILURES as failure:
        result = str(failure)
    return result if result is True or result is False else _plain(str(result))


def _parsed(source: str) -> Parsed:
    try:
        tree = _ENVIRONMENT.compile(source, disable_check=True).serialize()
    except _FAILURES as failure:
        message = str(failure)
        found = _SYNTAX_ERROR.search(message)
        if found is None:
            raise BadRequest(f"Filter cannot be read: {_plain(message)}") from None
        where = f" at line {found['line']}, column {found['column']}"
        if int(found["line"]) > source.count("\n") + 1:
            where = ""  # Without a position, the library reports a line that underflowed.
        raise BadRequest(f"Filter cannot be read{where}: {_plain(found['what'])}") from None
    return read_tree(tree)


def _check_patterns(tree: Expression) -> None:
    """Refuse an invalid pattern even if no item is ever matched against it."""
    if isinstance(tree, Call) and tree.function == "matches" and isinstance(tree.args[0], Constant):
        test = tree_bytes(Call(0, "matches", tree.args, text(0, "")))
        result = _result(_ENVIRONMENT.deserialize(test).eval, {})
        if isinstance(result, str):
            raise BadRequest(f"Filter is wrong: {result}")
    for part in children(tree):
        _check_patterns(part)


def _plain(message: str) -> str:
    """The library's message without its codes, in clearer words for common errors."""
    message = _STATUS.sub("", message).partition("\n")[0]
    for pattern, words in _PLAIN:
        if pattern.fullmatch(message):
            return pattern.sub(words, message)
    return message
