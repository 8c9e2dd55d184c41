"""Turns at the threads: a few works at once, shared fairly between clients.

Many long tasks must not occupy the threads that drive lanes, and those of one client must not keep
all others waiting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock

from msgspec import Struct

from morag.api.http import Client
from morag.errors import ServiceUnavailable
from morag.versions.tickets import Spawn


class TooBusy(ServiceUnavailable):
    """More requests wait for a thread than the server is willing to keep."""


class Turn(Struct, frozen=True):
    """Work that waits. It is dropped when its client is gone, if it says what is to be done then:
    a change of the catalog does not, because it was accepted."""

    client: Client
    spawn: Spawn
    work: Callable[[], None]
    abandon: Callable[[], None] | None = None


class Turns:
    """Clients take turns, however many requests each has queued; within one client, in order.

    No client fills more than half of the queue, and `reserved` places stay free of any single
    client, as long as there are more than that. `busy` is called when the first of several works
    begins and when the last one ends.
    """

    def __init__(
        self,
        at_once: int,
        most_waiting: int,
        reserved: int = 0,
        busy: Callable[[bool], object] = lambda is_busy: None,
    ) -> None:
        self._busy = busy
        self._lock = Lock()
        self._free = at_once
        self._most_of_one_client = max(1, at_once - reserved)
        self._most_waiting = most_waiting
        self._waiting: dict[str, deque[Turn]] = {}
        self._count = 0
        self._running: dict[str, int] = {}

    @property
    def somebody_waits(self) -> bool:
        return self._count > 0

    def take(self, turn: Turn) -> None:
        """Start the work, now or later. Raises TooBusy if too many wait already."""
        network, abandoned, refusal = turn.client.network, [], None
        with self._lock:
            starts = self._begins(network)
            if not starts:
                if self._is_full(network):
                    abandoned = self._drop_abandoned()
                if self._is_full(network):
                    refusal = self._refusal(network)
                else:
                    self._queue(turn)
        _abandon(abandoned)
        if refusal is not None:
            raise refusal
        if starts:
            self._spawn(turn)

    def take_another(self, turn: Turn) -> None:
        """Go on with a work that has had a turn already: it is never refused."""
        with self._lock:
            starts = self._begins(turn.client.network)
            if not starts:
                self._queue(turn)
        if starts:
            self._spawn(turn)

    def _run(self, turn: Turn) -> None:
        try:
            turn.work()
        finally:
            network = turn.client.network
            with self._lock:
                self._end(network)
                started, abandoned = self._start_waiting() if self._count else ((), ())
            for waiting in started:
                self._spawn(waiting)
            _abandon(abandoned)

    def _spawn(self, turn: Turn) -> None:
        turn.spawn(lambda: self._run(turn))

    def _start_waiting(self) -> tuple[list[Turn], list[Turn]]:
        """The turns that begin now, and those whose clients are gone."""
        started: list[Turn] = []
        abandoned: list[Turn] = []
        for network in list(self._waiting):
            if not self._free:
                break
            queue = self._waiting.pop(network)
            while queue and _is_abandoned(queue[0]):
                abandoned.append(queue.popleft())
                self._count -= 1
            if queue and self._begins(network):
                started.append(queue.popleft())
                self._count -= 1
            if queue:
                self._waiting[network] = queue  # At the end: the other clients come first.
        return started, abandoned

    def _is_full(self, network: str) -> bool:
        of_client = len(self._waiting.get(network, ()))
        return self._count >= self._most_waiting or 2 * of_client >= self._most_waiting

    def _drop_abandoned(self) -> list[Turn]:
        """The turns whose clients are gone, wherever they wait."""
        abandoned: list[Turn] = []
        for network, queue in list(self._waiting.items()):
            left: deque[Turn] = deque()
            for turn in queue:
                (abandoned if _is_abandoned(turn) else left).append(turn)
            if left:
                self._waiting[network] = left
            else:
                del self._waiting[network]
        self._count -= len(abandoned)
        return abandoned

    def _refusal(self, network: str) -> TooBusy:
        of_client = len(self._waiting.get(network, ()))
        return TooBusy(
            f"{self._count} requests wait for a thread, {of_client} of them from your address, and"
            " no more are accepted; try again later, with fewer at once"
        )

    def _queue(self, turn: Turn) -> None:
        self._waiting.setdefault(turn.client.network, deque()).append(turn)
        self._count += 1

    def _begins(self, network: str) -> bool:
        """Take a place for the client, if there is one for it."""
        running = self._running.get(network, 0)
        if not self._free or running >= self._most_of_one_client:
            return False
        if not self._running:
            self._busy(True)
        self._free -= 1
        self._running[network] = running + 1
        return True

    def _end(self, network: str) -> None:
        self._free += 1
        self._running[network] -= 1
        if not self._running[network]:
            del self._running[network]
            if not self._running:
                self._busy(False)


def _is_abandoned(turn: Turn) -> bool:
    return turn.abandon is not None and turn.client.gone


def _abandon(turns: Iterable[Turn]) -> None:
    for turn in turns:
        assert turn.abandon is not None, "only such turns are dropped"
        turn.abandon()
