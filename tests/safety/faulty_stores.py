"""Memory stores that fail as planned, as two servers see them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, TypeVar

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.errors import ServiceUnavailable, StoreBusy
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.backend.faulty import (
    Fault,
    FaultyBackend,
    InjectedFault,
    QuickTogetherBackend,
    Script,
    TogetherBackend,
)
from tests.safety.history_checks import put

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tests.backend.faulty import Plan

T = TypeVar("T")

QUICK = Settings(
    retry_sleep_lower_ms=0,
    retry_sleep_upper_ms=1,
    retry_sleep_max_ms=2,
    max_incremental_index_bytes=400,  # Small, so that indexes spill and commits need many rows.
    min_index_segment_bytes=200,
    max_inlined_stripes=2,
)
NO_FAULTS = Script({})


class BusyBackend(FaultyBackend):
    """Fails with an error that asks for a retry; the outcome of the call is unknown."""

    error: type[ServiceUnavailable] = StoreBusy

    def _do(self, fault: Fault | None, work: Callable[[], T]) -> T:
        try:
            return super()._do(fault, work)
        except InjectedFault as failure:
            raise self.error(str(failure)) from failure


class BusyTogetherBackend(TogetherBackend, BusyBackend):
    """Creates and drops references in one step, and fails with an error that asks for a retry."""


class BusyQuickTogetherBackend(QuickTogetherBackend, BusyBackend):
    """Does the same without waiting, too."""


class Upcoming:
    """The faults of the next calls by method. A call with None succeeds."""

    def __init__(self, faults: Mapping[str, Sequence[Fault | None]]) -> None:
        self._faults = {method: list(upcoming) for method, upcoming in faults.items()}

    def fault(self, method: str, call: int) -> Fault | None:
        upcoming = self._faults.get(method)
        return upcoming.pop(0) if upcoming else None

    @property
    def is_over(self) -> bool:
        return not any(self._faults.values())


class Time:
    """A clock that only sleeps advance."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps_ms: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.sleeps_ms.append(seconds * 1000)
        self.now += seconds

    def world(self) -> World:
        return World(monotonic=lambda: self.now, sleep=self.sleep, random=Random(1))


class Store:
    """A memory store that one server reaches through faults, and others directly."""

    def __init__(
        self,
        faulty: type[FaultyBackend],
        weak: bool,
        settings: Settings,
        world: World,
        memory: MemoryBackend | None = None,
    ) -> None:
        self.memory = memory or MemoryBackend()
        self.backend = faulty(self.memory, NO_FAULTS, weak=weak)
        self.repo = Repository(self.backend, settings, world)
        self.weak = weak
        self._before = 0

    @property
    def swap(self) -> str:
        """The method that makes a commit visible."""
        return "swap_ref" if self.weak else "apply"

    def other(self) -> Repository:
        """Another server on the same store, without faults."""
        return Repository(self.memory, QUICK, World())

    def lose_a_race(self) -> None:
        """Make the next commit start from a head that another server has replaced."""
        self.repo.commit("main", [put("first")], "first")
        self.other().commit("main", [put("theirs")], "theirs")
        self.backend.plan = Upcoming({"read_refs": [Fault.STALE]})
        self._before = self.backend._calls[self.swap]

    def swaps(self) -> int:
        """The number of swaps since `lose_a_race`."""
        return self.backend._calls[self.swap] - self._before

    def rows(self, kind: str) -> int:
        return sum(1 for _ in self.memory.scan_rows("", frozenset({kind})))


class OthersOnTop:
    """Loses the reply of a swap, and runs `others` before the next call."""

    def __init__(self, swap: str, others: Callable[[], None]) -> None:
        self._swap = swap
        self._others = others
        self._lost = self._over = False

    def fault(self, method: str, call: int) -> Fault | None:
        if method == self._swap and not self._lost:
            self._lost = True
            return Fault.AFTER
        if self._lost and not self._over:
            self._over = True
            self._others()
        return None


class BeforeSwap:
    """Runs an action of another server just before the n-th swap.

    That swap has the `fault`, and the calls after it those of `then`; by default all succeed.
    """

    def __init__(
        self,
        store: Store,
        action: Callable[[], object],
        swap: int = 1,
        fault: Fault | None = None,
        then: Plan = NO_FAULTS,
    ) -> None:
        self._store, self._action, self._left = store, action, swap
        self._fault, self._then = fault, then

    def fault(self, method: str, call: int) -> Fault | None:
        self._left -= method == self._store.swap
        if self._left > 0:
            return None
        self._store.backend.plan = self._then
        self._action()
        return self._fault
