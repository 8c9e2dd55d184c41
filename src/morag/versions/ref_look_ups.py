"""Looks up the refs of many requests with one read of a store on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from morag.errors import ServiceUnavailable
from morag.format.records import Ref
from morag.persist.near import NotNear as NotNear
from morag.persist.persist import Persist

if TYPE_CHECKING:
    from morag.versions.tickets import Spawn

T = TypeVar("T")

_AT_ONCE: Final = 16


class LookedUp(Struct, frozen=True):
    """Refs that were read after the request for them had arrived."""

    persist: Persist
    refs: Mapping[str, Ref | None]

    def run_near(self, work: Callable[[], T]) -> T:
        """Run the work with these refs and cached objects. Raises NotNear if that is not enough."""
        with self.persist.near.limited(self.refs, asks_store=False):
            return work()

    def run(self, work: Callable[[], T]) -> T:
        """Run the work with these refs; everything else may come from the store."""
        with self.persist.near.limited(self.refs, asks_store=True):
            return work()


class _Waiting(Struct, frozen=True):
    names: Sequence[str]
    found: Callable[[LookedUp | Exception], None]


class RefLookUps:
    """One look-up at a time. A request that arrives meanwhile waits for the next one.

    The look-up under way may have read a ref before a change of it was acknowledged, and a request
    that arrived after the acknowledgement must not get the older ref.
    """

    def __init__(self, persist: Persist) -> None:
        self._persist = persist
        self._waiting: list[_Waiting] = []
        self._is_under_way = False
        self._lock = Lock()

    def start(
        self, names: Sequence[str], spawn: Spawn, found: Callable[[LookedUp | Exception], None]
    ) -> None:
        """Look up these names; `found` is called as near work (see `Spawn`), and must not raise."""
        with self._lock:
            self._waiting.append(_Waiting(names, found))
            is_first, self._is_under_way = not self._is_under_way, True
        if is_first:
            # Near work comes after all requests that have arrived, so they join this look-up.
            spawn(partial(self._begin, spawn), near=True)

    def _begin(self, spawn: Spawn) -> None:
        spawn(partial(self._look_up, spawn))

    def _look_up(self, spawn: Spawn) -> None:
        with self._lock:
            batch, self._waiting = self._waiting, []
        spawn(partial(_hand_out, batch, self._outcome(batch), spawn), near=True)
        with self._lock:
            continues = self._is_under_way = bool(self._waiting)
        if continues:
            self._begin(spawn)  # Not in a loop here: others wait for a thread, too.

    def _outcome(self, batch: Sequence[_Waiting]) -> LookedUp | Exception:
        names = list(dict.fromkeys(name for each in batch for name in each.names))
        try:
            found = self._persist.refs(names) if names else {}
        except Exception as failure:  # noqa: BLE001 - Each request reports it.
            return failure
        return LookedUp(self._persist, {name: found.get(name) for name in names})


def _hand_out(batch: Sequence[_Waiting], outcome: LookedUp | Exception, spawn: Spawn) -> None:
    """Continue a few requests, and the others when the event loop has done other work."""
    for each in batch[:_AT_ONCE]:
        each.found(outcome)
    rest = batch[_AT_ONCE:]
    if rest:
        spawn(partial(_hand_out, rest, outcome, spawn), near=True)


def concerns_all(failure: Exception) -> bool:
    """Whether a failed look-up would fail for each of its names alone, too."""
    return isinstance(failure, ServiceUnavailable)
