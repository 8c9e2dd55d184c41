"""A router's memory: the same few paths are asked for again and again."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from morag.api.routing import Match

if TYPE_CHECKING:
    from morag.api.routing import Router

H = TypeVar("H")

_PATHS: Final = 1024
_LONG: Final = 512
_HASH: Final = re.compile("(?:@|%40)([0-9a-fA-F]{64})")
_ANY_HASH: Final = "!hash!"


class Remembering(Generic[H]):
    """Finds what the router finds.

    Paths that differ in nothing but a hash, which hardly comes again, are remembered as one: else
    they would drive out those that do come again.
    """

    def __init__(self, router: Router[H]) -> None:
        self._look_up = router.find
        self._remembered = lru_cache(_PATHS)(router.find)

    def find(self, path: str) -> Match[H] | None:
        if len(path) > _LONG or _ANY_HASH in path:
            return self._look_up(path)
        found = _HASH.search(path)
        if found is None:
            return self._remembered(path)
        start, end = found.span(1)
        match = self._remembered(path[:start] + _ANY_HASH + path[end:])
        if match is None:
            return None
        hash = path[start:end]
        parameters = {
            name: value.replace(_ANY_HASH, hash) for name, value in match.parameters.items()
        }
        return Match(match.template, match.handlers, parameters)
