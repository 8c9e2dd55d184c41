"""The router: finds the handlers of a path.

A path is matched element by element: words first, then `{parameters}`, then `{ref}`, which may
span elements up to one with an `@`, as in `trees/a/b@/history`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from morag.api.url_parsing import check_path, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

H = TypeVar("H")

REFERENCE: Final = frozenset({"ref", "from", "to", "branch"})
"""Parameters that may span several elements."""
_EXACT: Final = REFERENCE | {"references"}
"""Paths with these parameters must not end in a slash. Other paths may have additional slashes."""
_CACHED_PATHS: Final = 1024
_LONGEST_CACHED: Final = 512
_HASH: Final = re.compile("(?:@|%40)([0-9a-fA-F]{64})")
_ANY_HASH: Final = "!hash!"


class Match(Struct, Generic[H], frozen=True):
    """The handlers of a path, by method, and its parameters, decoded."""

    handlers: Mapping[str, H]
    parameters: Mapping[str, str]


class _Node(Generic[H]):
    def __init__(self) -> None:
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
        node.exact = any(f"{{{name}}}" in template for name in _EXACT)
        node.handlers[method] = handler

    def find(self, path: str) -> Match[H] | None:
        """Find the handlers of a path. Raises UrlInvalid for one that is not valid in a URL."""
        check_path(path)
        path = without_matrix(path)
        found = _match(self._root, elements_of(path), 0)
        if found is None:
            return None
        node, parameters = found
        if node.exact and path.endswith(("/", "/.", "/..")):
            return None
        return Match(node.handlers, parameters)


class CachedRouter(Generic[H]):
    """A router with a cache of the last paths, because clients repeat a few of them.

    Paths that differ only in a hash share one entry: most hashes occur once, and would evict the
    paths that are repeated.
    """

    def __init__(self, router: Router[H]) -> None:
        self._find = router.find
        self._find_cached = lru_cache(_CACHED_PATHS)(router.find)

    def find(self, path: str) -> Match[H] | None:
        if len(path) > _LONGEST_CACHED or _ANY_HASH in path:
            return self._find(path)
        found = _HASH.search(path)
        if found is None:
            return self._find_cached(path)
        start, end = found.span(1)
        match = self._find_cached(path[:start] + _ANY_HASH + path[end:])
        if match is None:
            return None
        hash = path[start:end]
        parameters = {
            name: value.replace(_ANY_HASH, hash) for name, value in match.parameters.items()
        }
        return Match(match.handlers, parameters)


def without_matrix(path: str) -> str:
    """The path without matrix parameters, the part of an element after a semicolon.

    As in Nessie, a path with matrix parameters is decoded once more: an escaped slash divides it.
    """
    if ";" not in path:
        return path
    return decoded("/".join(part.partition(";")[0] for part in path.split("/")))


def elements_of(path: str) -> list[str]:
    """The decoded elements of a path, without empty ones; `.` and `..` are resolved."""
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
    # Only after all matches of one element have failed: `a/diff/b@` is a diff, not a reference.
    for name in node.parameters.keys() & REFERENCE:
        for end in range(at + 1, len(elements)):
            if "@" in elements[end]:
                found = _match(node.parameters[name], elements, end + 1)
                if found is not None and elements[end].count("@") == 1:
                    found[1][name] = "/".join(elements[at : end + 1])
                    return found
                break
    return None
