"""Limits for the memory that clients can occupy with large requests and unread responses."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from morag.server.connection import Connection

_VALUE_BYTES: Final = 64  # About the memory of a decoded field or item, even if it is short.


class LargeBodies:
    """Counts the memory of large request bodies, from their arrival until they are answered.

    There is one limit for all clients, and half of it for each. Threads may exceed it by the one
    body that each of them decompresses.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self.most_of_one_client = most_bytes // 2
        self._of_network: Counter[str] = Counter()
        self._lock = Lock()

    def hold(self, network: str, more_bytes: int) -> bool:
        """Count the bytes until `release`, in any case. Returns False if they exceed a limit."""
        with self._lock:
            self.held_bytes += more_bytes
            self._of_network[network] += more_bytes
            if self._of_network[network] > self.most_of_one_client:
                return False
            return self.held_bytes <= self._most_bytes

    def release(self, network: str, held_bytes: int) -> None:
        with self._lock:
            self.held_bytes -= held_bytes
            self._of_network[network] -= held_bytes
            if not self._of_network[network]:
                del self._of_network[network]


def decoded_bytes(body: bytes) -> int:
    """About how much memory a JSON body takes when decoded, in addition to its bytes."""
    return _VALUE_BYTES * body.count(b",")


class UnreadResponses:
    """Counts the bytes of responses that wait in memory because their clients do not read them.

    If there are too many, the client with most of them loses connections, beginning with those that
    have not read for longest.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._paused: dict[
            Connection, tuple[str, int]
        ] = {}  # Ordered: the first has waited for longest.

    def paused(self, connection: Connection, unread_bytes: int) -> None:
        self._paused[connection] = connection.network, unread_bytes
        self._bytes += unread_bytes
        while self._bytes > self._most_bytes:
            longest = self._longest_of_greediest()
            self.resumed(longest)
            longest.hang_up()

    def resumed(self, connection: Connection) -> None:
        """Stop counting a response that was read or dropped."""
        _, unread_bytes = self._paused.pop(connection, ("", 0))
        self._bytes -= unread_bytes

    def _longest_of_greediest(self) -> Connection:
        by_network: Counter[str] = Counter()
        for network, unread_bytes in self._paused.values():
            by_network[network] += unread_bytes
        greediest, _ = by_network.most_common(1)[0]
        return next(one for one, (network, _) in self._paused.items() if network == greediest)
