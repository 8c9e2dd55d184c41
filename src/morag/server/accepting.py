"""Accepts connections in several processes, so that each gets an equal share of them."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket
    from ssl import SSLContext

OTHERS_SECONDS: Final = 0.005
"""How long a connection is left to workers with fewer connections. They may be busy, or dead."""

_SHORTAGE_SECONDS: Final = 0.1
_OPENING_SECONDS: Final = 0.1
_ABSENT: Final = sys.maxsize


class ConnectionCounts:
    """The number of connections of each worker, in memory that the workers share.

    Each worker writes its own number only, so no lock is needed.
    """

    def __init__(self, workers: int) -> None:
        self._counts = get_context("spawn").RawArray("q", [_ABSENT] * workers)

    def update(self, worker: int, connections: int) -> None:
        self._counts[worker] = connections

    def remove(self, worker: int) -> None:
        self._counts[worker] = _ABSENT

    def is_least(self, worker: int) -> bool:
        """Whether no worker has fewer connections."""
        return bool(self._counts[worker] <= min(self._counts))


class Acceptor:
    """Accepts connections from a socket that other workers accept from, too.

    The system wakes all workers for a connection, and the first one would take it: under load that
    is often the same one, and clients keep their connections. So a worker whose turn it is not
    leaves a connection to the others for a moment.
    """

    def __init__(
        self,
        listening: socket,
        new_protocol: Callable[[], asyncio.Protocol],
        tls: SSLContext | None,
        is_my_turn: Callable[[], bool],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening = listening
        self._new_protocol = new_protocol
        self._tls = tls
        self._is_my_turn = is_my_turn
        self._opening: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    async def close(self) -> None:
        """Accept no more. Connections that were accepted are open, except during TLS handshakes."""
        if self._pause is None:
            self._loop.remove_reader(self._listening)
        else:
            self._pause.cancel()
        if self._opening:
            await asyncio.wait(self._opening, timeout=_OPENING_SECONDS)

    def _listen(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._connection_arrived)

    def _connection_arrived(self) -> None:
        if self._is_my_turn():
            self._accept()
        else:
            self._pause_for(OTHERS_SECONDS, self._accept_what_is_left)

    def _accept_what_is_left(self) -> None:
        self._listen()
        self._accept()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError):
            return  # Another worker accepted it, or the client gave up.
        except OSError:  # No file descriptor is left. The loop would call again at once.
            self._pause_for(_SHORTAGE_SECONDS, self._listen)
            return
        accepted.setblocking(False)
        opening = self._loop.create_task(self._open(accepted))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket) -> None:
        with suppress(OSError):  # The TLS handshake failed, and the connection is closed.
            await self._loop.connect_accepted_socket(self._new_protocol, accepted, ssl=self._tls)

    def _pause_for(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(seconds, then)
