"""The room for large request bodies, from their arrival until they are answered."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

_VALUE_BYTES: Final = 64  # Measured: what a field or an item takes in memory, short as it may be.


class LargeBodies:
    """Counts what they take, for all clients and for each: one client gets half of the room.

    Threads may go beyond that by the one body that each of them unpacks.
    """

    def __init__(self, most_bytes: int) -> None:
        self.held_bytes = 0
        self._most_bytes = most_bytes
        self.most_of_one_client = most_bytes // 2
        self._of_network: Counter[str] = Counter()
        self._lock = Lock()

    def hold(self, network: str, more_bytes: int) -> bool:
        """Count them until `release`, in any case; False if there is no room for them."""
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
    """About how much a JSON body takes once it is decoded, beyond its own bytes."""
    return _VALUE_BYTES * body.count(b",")
