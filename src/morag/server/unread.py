"""Answers that wait in memory for clients that do not read them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from morag.server.connection import Connection


class UnreadAnswers:
    """Counts their bytes. If there are too many, the client that has most loses connections.

    It loses those first that have not read for longest, and so keeps the ones that do read.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._paused: dict[Connection, tuple[str, int]] = {}  # The first one waits for longest.

    def paused(self, connection: Connection, unread_bytes: int) -> None:
        self._paused[connection] = connection.network, unread_bytes
        self._bytes += unread_bytes
        while self._bytes > self._most_bytes:
            longest = self._longest_of_greediest()
            self.resumed(longest)
            longest.hang_up()

    def resumed(self, connection: Connection) -> None:
        """Nothing waits for it any more, because it was read or will never be."""
        _, unread_bytes = self._paused.pop(connection, ("", 0))
        self._bytes -= unread_bytes

    def _longest_of_greediest(self) -> Connection:
        by_network: Counter[str] = Counter()
        for network, unread_bytes in self._paused.values():
            by_network[network] += unread_bytes
        greediest, _ = by_network.most_common(1)[0]
        return next(one for one, (network, _) in self._paused.items() if network == greediest)
