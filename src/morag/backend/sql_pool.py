"""Connections to a database that is another process: opened when needed, kept, never shared."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from select import POLLIN, poll
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from morag.errors import ServiceUnavailable, StoreBusy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import HasFileno


C = TypeVar("C")

POOL_OPTIONS: Final = frozenset({"pool_size", "timeout_seconds", "connect_timeout_seconds"})
"""What all engines with a pool understand."""

POOL_SIZE: Final = 16
ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
MOST: Final = 999_999.0
"""Of seconds, and of connections."""


class Connector(Protocol[C]):
    """What a pool asks of a driver."""

    def connect(self) -> C: ...

    def is_sound(self, db: C) -> bool:
        """Whether the connection can be used: nothing is under way on it, and nobody cut it."""
        ...

    def close(self, db: C) -> None:
        """Never fails: what is closed may be broken."""
        ...


def is_silent(socket: HasFileno | int) -> bool:
    """A server that says something to somebody who did not ask says goodbye."""
    said = poll()
    said.register(socket, POLLIN)
    return not said.poll(0)


class Pool(Generic[C]):
    """At most `size` connections are in use at a time; who needs one more waits for a while.

    The connection that was used last is used next, so that few stay open for a low load.
    """

    def __init__(self, connector: Connector[C], size: int, wait_seconds: float) -> None:
        self._connector = connector
        self._size, self._wait_seconds = size, wait_seconds
        self._free = BoundedSemaphore(size)
        self._idle: deque[C] = deque()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[C]:
        """A connection that nobody else has. It is kept for the next one if it is still sound."""
        if not self._free.acquire(timeout=self._wait_seconds):
            raise StoreBusy(
                f"All {self._size} connections to the database have been in use for"
                f" {self._wait_seconds:g} s; try again, or raise the store's option 'pool_size'"
            )
        try:
            db = self._take()
            try:
                yield db
            except Exception:
                self._keep(db)
                raise
            except BaseException:  # Interrupted anywhere: nobody knows what it was doing.
                self._connector.close(db)
                raise
            self._keep(db)
        finally:
            self._free.release()

    def drop_idle(self) -> None:
        """Close what is idle: where one connection broke, the others often did, too."""
        while self._idle:
            try:
                self._connector.close(self._idle.pop())
            except IndexError:  # Somebody else took it just now.
                return

    def close(self) -> None:
        """What is in use is closed when it comes back."""
        self._closed = True
        self.drop_idle()

    def _take(self) -> C:
        if self._closed:
            raise ServiceUnavailable("The store is closed")
        while True:
            try:
                db = self._idle.pop()
            except IndexError:
                return self._connector.connect()
            if self._connector.is_sound(db):
                return db
            self._connector.close(db)

    def _keep(self, db: C) -> None:
        if not self._connector.is_sound(db):
            self._connector.close(db)
            return
        self._idle.append(db)
        if self._closed:
            self.drop_idle()
