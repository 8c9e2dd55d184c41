"""The places for connections, and how one is made when all are taken."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_MADE_AT_ONCE: Final = 0.01  # Of all places: several, so that a flood does not search each time.
_FRUITLESS_SECONDS: Final = 0.1


class Occupant(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def network(self) -> str:
        """The client that it counts for."""
        ...

    @property
    def idle_since(self) -> float | None:
        """None while a request is being read or answered."""
        ...

    @property
    def stalled_since(self) -> float | None:
        """Since when its client has been sending a request or taking an answer, if it is."""
        ...

    def close_idle(self) -> None: ...

    def hang_up(self) -> None: ...


class Places:
    """Gives each connection a place, as long as there are some.

    When all are taken, the client with most connections makes room, by those that have been idle
    for longest: HTTP allows to close them at any time. If it has none, but more than half of all
    places, it loses the connection that it has kept waiting for longest, unless the newcomer is
    its own. Else other clients make room by idle connections, if they have at least as many as the
    newcomer's client. A connection that waits for us is never cut.
    """

    def __init__(self, count: int, monotonic: Callable[[], float]) -> None:
        self._count = count
        self._monotonic = monotonic
        self._occupants: set[Occupant] = set()
        self._fruitless: tuple[str, float] | None = None  # The last search: for whom, until when.

    def __len__(self) -> int:
        return len(self._occupants)

    def take(self, newcomer: Occupant) -> bool:
        """Whether there was a place."""
        if len(self._occupants) >= self._count and not self._make_room(newcomer.network):
            return False
        self._occupants.add(newcomer)
        return True

    def leave(self, occupant: Occupant) -> None:
        self._occupants.discard(occupant)

    def _make_room(self, newcomer: str) -> bool:
        if self._fruitless is not None:
            network, until = self._fruitless
            if network == newcomer and self._monotonic() < until:
                return False
        by_network: defaultdict[str, list[Occupant]] = defaultdict(list)
        for occupant in self._occupants:
            by_network[occupant.network].append(occupant)
        own = len(by_network[newcomer])
        largest_first = sorted(by_network.items(), key=lambda item: -len(item[1]))
        for network, occupants in largest_first:
            if len(occupants) < own:
                break
            if self._close_idle(occupants):
                return True
            is_greedy = 2 * len(occupants) > self._count
            if is_greedy and network != newcomer and self._cut_one(occupants):
                return True
        self._fruitless = newcomer, self._monotonic() + _FRUITLESS_SECONDS
        return False

    def _close_idle(self, occupants: list[Occupant]) -> bool:
        idle = [(since, one) for one in occupants if (since := one.idle_since) is not None]
        idle.sort(key=lambda timed: timed[0])
        closed = idle[: 1 + int(_MADE_AT_ONCE * self._count)]
        for _, occupant in closed:
            self.leave(occupant)
            occupant.close_idle()
        return bool(closed)

    def _cut_one(self, occupants: list[Occupant]) -> bool:
        stalled = [(since, one) for one in occupants if (since := one.stalled_since) is not None]
        if not stalled:
            return False
        _, longest = min(stalled, key=lambda timed: timed[0])
        self.leave(longest)
        longest.hang_up()
        return True
