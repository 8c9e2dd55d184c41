"""Data that clients send faster than it is answered: handled in parts, fairly between clients."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

_SECONDS_AT_ONCE: Final = 0.005

logger = logging.getLogger(__name__)


class Sender(Protocol):
    """A connection that received more than it may handle at once."""

    def take_share(self) -> bool:
        """Handle a part of the data. Returns whether more can be handled now."""
        ...

    def hang_up(self) -> None: ...


class Backlog:
    """Clients take turns, and so do the connections of each client.

    The event loop serves all other connections in between, even if the backlog is long.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float]) -> None:
        self.senders: dict[str, deque[Sender]] = {}
        self._loop = loop
        self._monotonic = monotonic  # The loop's time does not advance in a callback.
        self._is_scheduled = False

    def add(self, network: str, sender: Sender) -> None:
        self.senders.setdefault(network, deque()).append(sender)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        end = self._monotonic() + _SECONDS_AT_ONCE
        while self.senders:
            network = next(iter(self.senders))
            senders = self.senders[network] = self.senders.pop(network)  # Moved to the end.
            sender = senders.popleft()
            if _has_more(sender):
                senders.append(sender)
            if not senders:
                del self.senders[network]
            if self._monotonic() >= end:
                break
        if self.senders:
            self._schedule()


def _has_more(sender: Sender) -> bool:
    try:
        return sender.take_share()
    except Exception:  # A bug in one connection must not end the turns of the others.
        logger.exception("Handling a connection failed")
        sender.hang_up()
        return False
