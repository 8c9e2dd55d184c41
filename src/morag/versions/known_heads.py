"""What this process knows of its branches: where it left them, and whether others move them, too.

Where it left a branch may be wrong as soon as another server moves it. The swap finds out, and then
the store is asked after all: knowing saves a question, and never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from morag.backend.base import Ref

_MOST: Final = 1000
_DOUBTS: Final = 32
_COURTESY: Final = 1.5
_MOST_COURTESY_SECONDS: Final = 0.1


class _Shared(Struct):
    """A branch that somebody else moved not long ago."""

    doubts: int
    is_raced_for: bool
    others_until: float = 0.0


class KnownHeads:
    """Of two servers on one branch, each would be wrong at every turn: so who was wrong asks the
    store for a while. And who wins all races would leave the other none: so who lost one lets the
    other go first for a while, each time it won, for a little longer than a turn takes."""

    def __init__(self) -> None:
        self._refs: dict[str, Ref] = {}
        self._shared: dict[str, _Shared] = {}

    def take(self, name: str) -> Ref | None:
        """The reference as we left it, once: whoever moves it again says so with `left`."""
        return self._refs.pop(name, None)

    def left(self, ref: Ref, now: float, took_seconds: float) -> None:
        """We moved it, after a try that took so long."""
        shared = self._shared.get(ref.name)
        if shared is None:
            _forget_if_full(self._refs)
            self._refs[ref.name] = ref
            return
        shared.doubts -= 1
        if shared.is_raced_for:
            shared.others_until = now + min(took_seconds * _COURTESY, _MOST_COURTESY_SECONDS)
        if not shared.doubts:
            del self._shared[ref.name]

    def was_wrong(self, name: str) -> None:
        """Somebody else moved it since: another server, or whoever assigns references here."""
        if name not in self._shared:
            _forget_if_full(self._shared)
            self._shared[name] = _Shared(_DOUBTS, is_raced_for=False)

    def lost(self, name: str) -> None:
        """Another server moved it while we were about to."""
        _forget_if_full(self._shared)
        self._shared[name] = _Shared(_DOUBTS, is_raced_for=True)

    def courtesy_seconds(self, name: str, now: float) -> float:
        """How long to let others go first."""
        shared = self._shared.get(name)
        return 0.0 if shared is None else max(0.0, shared.others_until - now)


def _forget_if_full(known: dict[str, Ref] | dict[str, _Shared]) -> None:
    if len(known) >= _MOST:
        known.clear()
