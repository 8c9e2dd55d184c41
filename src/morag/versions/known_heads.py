"""What this process knows of its branches: where it left them, and whether others move them, too.

Where it left a branch may be wrong as soon as another server moves it. The swap finds out, and then
the store is asked after all: knowing saves a question, and never decides anything.

Who knows is faster than who has to ask, and of several servers on one branch the fastest would win
every race, and never hear of the others. So from time to time it waits, for long enough that those
who try again and again get through once. Where that shows that there are others, they take turns
for a while: who won a race lets the others go first.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from morag.backend.base import Ref
from morag.logic.retry import LONGEST_RACE_PAUSE_MS

_MOST_BRANCHES: Final = 1000
_TURNS: Final = 32
_COURTESY: Final = 1.5
_MOST_COURTESY_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = (LONGEST_RACE_PAUSE_MS + 10) / 1000
_FIRST_LOOK_SECONDS: Final = 1.0
_MOST_BETWEEN_LOOKS_SECONDS: Final = 4.0


class _Branch(Struct):
    ref: Ref | None = None
    turns: int = 0
    """How many of our commits more it counts as shared with others."""
    others_until: float = 0.0
    looks_at: float = 0.0
    between_looks: float = _FIRST_LOOK_SECONDS


class KnownHeads:
    """Without `is_shared`, nobody but this process can move a branch."""

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._branches: dict[str, _Branch] = {}

    def take(self, name: str) -> Ref | None:
        """The reference as we left it, once: whoever moves it again says so with `left`."""
        branch = self._branches.get(name)
        if branch is None:
            return None
        ref, branch.ref = branch.ref, None
        return ref

    def left(self, ref: Ref, now: float, took_seconds: float) -> None:
        """A batch moved it, after a try that took so long."""
        branch = self._branch(ref.name)
        if branch.turns:
            branch.turns -= 1
            branch.others_until = now + min(took_seconds * _COURTESY, _MOST_COURTESY_SECONDS)
            return
        branch.ref = ref
        if not branch.looks_at:
            branch.looks_at = now + branch.between_looks
        elif now >= branch.looks_at:
            branch.others_until = now + _LOOK_SECONDS
            branch.between_looks = min(2 * branch.between_looks, _MOST_BETWEEN_LOOKS_SECONDS)
            branch.looks_at = now + branch.between_looks

    def forget(self, name: str) -> None:
        """We moved it ourselves, by other means than a batch."""
        self._branches.pop(name, None)

    def lost(self, name: str) -> None:
        """Another server moved it."""
        branch = self._branch(name)
        branch.turns, branch.looks_at = _TURNS, 0.0
        branch.between_looks = _FIRST_LOOK_SECONDS

    def courtesy_seconds(self, name: str, now: float) -> float:
        """How long to let others go first."""
        branch = self._branches.get(name)
        if branch is None or not self._is_shared:
            return 0.0
        return max(0.0, branch.others_until - now)

    def _branch(self, name: str) -> _Branch:
        branch = self._branches.get(name)
        if branch is None:
            if len(self._branches) >= _MOST_BRANCHES:
                self._branches.clear()
            branch = self._branches[name] = _Branch()
        return branch
