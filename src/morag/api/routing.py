"""Which handler answers which path.

A path is matched element by element: words first, then `{parameters}`, then `{ref}`, which may
span elements up to one with an `@`, as in `trees/a/b@/history`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from morag.api.paths import check_path, decoded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

H = TypeVar("H")

REFERENCE: Final = frozenset({"ref", "from", "to", "branch"})
"""Parameters that may span several elements."""


class Match(Struct, Generic[H], frozen=True):
    """The handlers of a path, by method, and its parameters, decoded."""

    template: str
    handlers: Mapping[str, H]
    parameters: Mapping[str, str]


class _Node(Generic[H]):
    def __init__(self) -> None:
        self.template = ""
        self.words: dict[str, _Node[H]] = {}
        self.parameters: dict[str, _Node[H]] = {}
        self.handlers: dict[str, H] = {}


class Router(Generic[H]):
    def __init__(self) -> None:
        self._root: _Node[H] = _Node()

    def add(self, method: str, template: str, handler: H) -> None:
        """Templates look like `/api/v2/trees/{ref}/entries`."""
        node = self._root
        for element in _elements(template):
            if element.startswith("{"):
                node = node.parameters.setdefault(element[1:-1], _Node())
            else:
                node = node.words.setdefault(element, _Node())
        assert method not in node.handlers, f"{method} {template} has two handlers"
        node.template = template
        node.handlers[method] = handler

    def find(self, path: str) -> Match[H] | None:
        """Raises UrlInvalid for a path that is no path."""
        check_path(path)
        elements = _elements(path)
        return next(_matches(self._root, elements, 0, ()), None)


def _elements(path: str) -> list[str]:
    """Empty ones do not count, and what follows a semicolon is not part of an element."""
    return [element.partition(";")[0] for element in path.split("/") if element]


def _matches(
    node: _Node[H], elements: Sequence[str], at: int, found: tuple[tuple[str, str], ...]
) -> Iterator[Match[H]]:
    if at == len(elements):
        if node.handlers:
            yield Match(node.template, node.handlers, dict(found))
        return
    element = decoded(elements[at])
    if element in node.words:
        yield from _matches(node.words[element], elements, at + 1, found)
    for name, child in node.parameters.items():
        yield from _matches(child, elements, at + 1, (*found, (name, element)))
    # Not before all that fits one element was tried: `a/diff/b@` is a diff, and no reference.
    for name in node.parameters.keys() & REFERENCE:
        for end in range(at + 1, len(elements)):
            if "@" in decoded(elements[end]):
                spanned = "/".join(decoded(part) for part in elements[at : end + 1])
                child = node.parameters[name]
                yield from _matches(child, elements, end + 1, (*found, (name, spanned)))
                break
