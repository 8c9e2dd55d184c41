"""The heads at which this process left its branches, and whether other servers move them, too.

A known head is stale as soon as another server moves the branch. The swap detects that, and then
the head is read from the store: a known head saves a read and never decides anything.

A server that knows the head is faster than one that must read it. Of several servers on one branch
the fastest would win every race, and never notice the others. So from time to time it makes a pause
(a probe) that is long enough for a server that keeps retrying to win once. If a probe shows that
there are other servers, they take turns for a while: the winner of a race lets the others go first.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from morag.format.records import Ref
from morag.logic.retry import LONGEST_RACE_PAUSE_MS

_MOST_BRANCHES: Final = 1000
_TURNS: Final = 32
_COURTESY: Final = 1.5
_MOST_COURTESY_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = (LONGEST_RACE_PAUSE_MS + 10) / 1000
_FIRST_PROBE_INTERVAL_SECONDS: Final = 1.0
_LONGEST_PROBE_INTERVAL_SECONDS: Final = 4.0


class _Branch(Struct):
    ref: Ref | None = None
    turns: int = 0
    """For how many more of our batches the branch counts as shared."""
    others_first_until: float = 0.0
    """Our next batch waits until this time."""
    next_probe: float = 0.0
    """When to pause next, to find out whether there are other servers; 0 if that is not set."""
    probe_interval: float = _FIRST_PROBE_INTERVAL_SECONDS


class KnownHeads:
    """Without `is_shared`, only this process can move a branch."""

    def __init__(self, *, is_shared: bool) -> None:
        self._is_shared = is_shared
        self._branches: dict[str, _Branch] = {}

    def take(self, name: str) -> Ref | None:
        """Return the reference as we left it, and forget it until `moved_by_us` is called again."""
        branch = self._branches.get(name)
        if branch is None:
            return None
        ref, branch.ref = branch.ref, None
        return ref

    def moved_by_us(self, ref: Ref, now: float, took_seconds: float) -> None:
        """A batch moved the branch, after an attempt of this duration."""
        branch = self._branch(ref.name)
        if branch.turns:
            branch.turns -= 1
            branch.others_first_until = now + min(took_seconds * _COURTESY, _MOST_COURTESY_SECONDS)
            return
        branch.ref = ref
        if not branch.next_probe:
            branch.next_probe = now + branch.probe_interval
        elif now >= branch.next_probe:
            branch.others_first_until = now + _PROBE_SECONDS
            branch.probe_interval = min(2 * branch.probe_interval, _LONGEST_PROBE_INTERVAL_SECONDS)
            branch.next_probe = now + branch.probe_interval

    def forget(self, name: str) -> None:
        """This process moved the branch by other means than a batch."""
        self._branches.pop(name, None)

    def moved_by_others(self, name: str) -> None:
        """Another server moved the branch."""
        branch = self._branch(name)
        branch.turns, branch.next_probe = _TURNS, 0.0
        branch.probe_interval = _FIRST_PROBE_INTERVAL_SECONDS

    def courtesy_seconds(self, name: str, now: float) -> float:
        """How long to wait, so that other servers go first."""
        branch = self._branches.get(name)
        if branch is None or not self._is_shared:
            return 0.0
        return max(0.0, branch.others_first_until - now)

    def _branch(self, name: str) -> _Branch:
        branch = self._branches.get(name)
        if branch is None:
            if len(self._branches) >= _MOST_BRANCHES:
                self._branches.clear()
            branch = self._branches[name] = _Branch()
        return branch
