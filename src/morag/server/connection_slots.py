"""The slots for connections, and which connection loses its slot when all are taken."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_FREED_AT_ONCE: Final = (
    0.01  # The share of all slots. Several at once, so that a flood does not search each time.
)
_FAILED_SEARCH_SECONDS: Final = 0.1


class Holder(Protocol):
    """A connection that holds a slot."""

    @property
    def network(self) -> str:
        """The client that the connection belongs to."""
        ...

    @property
    def idle_since(self) -> float | None:
        """None while a request is read or answered."""
        ...

    @property
    def stalled_since(self) -> float | None:
        """When its client began to send a request or to read a response; None otherwise."""
        ...

    def close_idle(self) -> None: ...

    def hang_up(self) -> None: ...


class ConnectionSlots:
    """Gives each connection a slot while there are free ones.

    When all are taken, the client with most connections loses those that have been idle for
    longest: HTTP allows to close them at any time. If it has no idle connections, but more than
    half of all slots, it loses the connection that has stalled for longest, unless the new
    connection is its own. Otherwise other clients lose idle connections, if they have at least as
    many connections as the new one's client. A connection that waits for the server is never cut.
    """

    def __init__(self, count: int, monotonic: Callable[[], float]) -> None:
        self._count = count
        self._monotonic = monotonic
        self._holders: set[Holder] = set()
        # The last search that found nothing: its client, and until when it is not repeated.
        self._failed_search: tuple[str, float] | None = None

    def __len__(self) -> int:
        return len(self._holders)

    def take(self, newcomer: Holder) -> bool:
        """Take a slot. Returns False if there is none."""
        if len(self._holders) >= self._count and not self._free_slots(newcomer.network):
            return False
        self._holders.add(newcomer)
        return True

    def leave(self, holder: Holder) -> None:
        self._holders.discard(holder)

    def _free_slots(self, newcomer: str) -> bool:
        if self._failed_search is not None:
            network, until = self._failed_search
            if network == newcomer and self._monotonic() < until:
                return False
        by_network: defaultdict[str, list[Holder]] = defaultdict(list)
        for holder in self._holders:
            by_network[holder.network].append(holder)
        own = len(by_network[newcomer])
        largest_first = sorted(by_network.items(), key=lambda item: -len(item[1]))
        for network, holders in largest_first:
            if len(holders) < own:
                break
            if self._close_idle(holders):
                return True
            is_greedy = 2 * len(holders) > self._count
            if is_greedy and network != newcomer and self._cut_one(holders):
                return True
        self._failed_search = newcomer, self._monotonic() + _FAILED_SEARCH_SECONDS
        return False

    def _close_idle(self, holders: list[Holder]) -> bool:
        idle = [(since, one) for one in holders if (since := one.idle_since) is not None]
        idle.sort(key=lambda timed: timed[0])
        closed = idle[: 1 + int(_FREED_AT_ONCE * self._count)]
        for _, holder in closed:
            self.leave(holder)
            holder.close_idle()
        return bool(closed)

    def _cut_one(self, holders: list[Holder]) -> bool:
        stalled = [(since, one) for one in holders if (since := one.stalled_since) is not None]
        if not stalled:
            return False
        _, longest = min(stalled, key=lambda timed: timed[0])
        self.leave(longest)
        longest.hang_up()
        return True
