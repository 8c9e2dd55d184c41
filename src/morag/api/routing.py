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
    from collections.abc import Sequence

H = TypeVar("H")

REFERENCE: Final = frozenset({"ref", "from", "to", "branch"})
"""Parameters that may span several elements."""
_EXACT: Final = REFERENCE | {"references"}
"""Parameters whose paths must end as they are written: with a slash after them they lead nowhere,
while other paths may have slashes to spare."""


class Match(Struct, Generic[H], frozen=True):
    """The handlers of a path, by method, and its parameters, decoded."""

    template: str
    handlers: Mapping[str, H]
    parameters: Mapping[str, str]


class _Node(Generic[H]):
    def __init__(self) -> None:
        self.template = ""
        self.exact = False
        self.words: dict[str, _Node[H]] = {}
        self.parameters: dict[str, _Node[H]] = {}
        self.handlers: dict[str, H] = {}


class Router(Generic[H]):
    def __init__(self) -> None:
        self._root: _Node[H] = _Node()

    def add(self, method: str, template: str, handler: H) -> None:
        """Templates look like `/api/v2/trees/{ref}/entries`."""
        node = self._root
        for element in elements_of(template):
            if element.startswith("{"):
                node = node.parameters.setdefault(element[1:-1], _Node())
            else:
                node = node.words.setdefault(element, _Node())
        assert method not in node.handlers, f"{method} {template} has two handlers"
        node.template = template
        node.exact = any(f"{{{name}}}" in template for name in _EXACT)
        node.handlers[method] = handler

    def find(self, path: str) -> Match[H] | None:
        """Raises UrlInvalid for a path that is no path."""
        check_path(path)
        path = without_matrix(path)
        found = _match(self._root, elements_of(path), 0)
        if found is None:
            return None
        node, parameters = found
        if node.exact and path.endswith(("/", "/.", "/..")):
            return None
        return Match(node.template, node.handlers, parameters)


def without_matrix(path: str) -> str:
    """The path without matrix parameters, which are what follows a semicolon in an element.

    A path that has some is decoded once more than others, as ever: an escaped slash divides it.
    """
    if ";" not in path:
        return path
    return decoded("/".join(part.partition(";")[0] for part in path.split("/")))


def elements_of(path: str) -> list[str]:
    """Decoded. Empty ones do not count, and dots lead up."""
    elements: list[str] = []
    for part in path.split("/"):
        element = decoded(part)
        if element == "..":
            del elements[-1:]
        elif element and element != ".":
            elements.append(element)
    return elements


def _match(
    node: _Node[H], elements: Sequence[str], at: int
) -> tuple[_Node[H], dict[str, str]] | None:
    if at == len(elements):
        return (node, {}) if node.handlers else None
    element = elements[at]
    if element in node.words:
        found = _match(node.words[element], elements, at + 1)
        if found is not None:
            return found
    for name, child in node.parameters.items():
        found = _match(child, elements, at + 1)
        if found is not None:
            found[1][name] = element
            return found
    if "@" in element:
        return None
    # Not before all that fits one element was tried: `a/diff/b@` is a diff, and no reference.
    for name in node.parameters.keys() & REFERENCE:
        for end in range(at + 1, len(elements)):
            if "@" in elements[end]:
                found = _match(node.parameters[name], elements, end + 1)
                if found is not None and elements[end].count("@") == 1:
                    found[1][name] = "/".join(elements[at : end + 1])
                    return found
                break
    return None
