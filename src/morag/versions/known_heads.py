"""Where this process last left its branches, so that the next batch need not ask the store.

It may be wrong as soon as another server moves a branch. The swap finds out, and then the store is
asked after all: knowing saves a question, and never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from morag.backend.base import Ref

_MOST: Final = 1000
_DOUBTS: Final = 32


class KnownHeads:
    """Of two servers on one branch, each would be wrong at every turn. So who was wrong once asks
    the store for a while before it trusts itself again."""

    def __init__(self) -> None:
        self._refs: dict[str, Ref] = {}
        self._doubts: dict[str, int] = {}

    def take(self, name: str) -> Ref | None:
        """The reference as we left it, once: whoever moves it again says so with `left`."""
        return self._refs.pop(name, None)

    def left(self, ref: Ref) -> None:
        doubts = self._doubts.pop(ref.name, 0)
        if doubts:
            self._doubts[ref.name] = doubts - 1
            return
        if len(self._refs) >= _MOST:
            self._refs.clear()
        self._refs[ref.name] = ref

    def was_wrong(self, name: str) -> None:
        if len(self._doubts) >= _MOST:
            self._doubts.clear()
        self._doubts[name] = _DOUBTS
