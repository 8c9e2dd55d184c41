"""A pool of connections to a database server."""

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
"""The options of all engines with a pool."""

POOL_SIZE: Final = 16
ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
MOST: Final = 999_999.0
"""The largest number of seconds, and of connections."""


class Connector(Protocol[C]):
    """The operations of a driver that a pool needs."""

    def connect(self) -> C: ...

    def is_sound(self, db: C) -> bool:
        """Whether the connection can be used: it is idle and still open."""
        ...

    def close(self, db: C) -> None:
        """Never fails: the connection may be broken."""
        ...


def is_silent(socket: HasFileno | int) -> bool:
    """Whether nothing has arrived. A server sends to an idle connection only to close it."""
    arrived = poll()
    arrived.register(socket, POLLIN)
    return not arrived.poll(0)


class Pool(Generic[C]):
    """At most `size` connections are in use at a time; a caller that needs one more waits.

    The connection that was used last is used next, so that a low load keeps few open.
    """

    def __init__(self, connector: Connector[C], size: int, wait_seconds: float) -> None:
        self._connector = connector
        self._size, self._wait_seconds = size, wait_seconds
        self._free = BoundedSemaphore(size)
        self._idle: deque[C] = deque()
        self._closed = False

    @contextmanager
    def use(self) -> Iterator[C]:
        """A connection for this caller alone. It goes back to the pool if it is still sound."""
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
                self._keep_if_sound(db)
                raise
            except BaseException:  # Interrupted at an unknown point: its state is unknown.
                self._connector.close(db)
                raise
            self._keep(db)
        finally:
            self._free.release()

    def drop_idle(self) -> None:
        """Close all idle connections: if one broke, the others often did, too."""
        while self._idle:
            try:
                self._connector.close(self._idle.pop())
            except IndexError:  # Another thread took it just now.
                return

    def close(self) -> None:
        """Close the pool. Connections in use are closed when they are returned."""
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

    def _keep_if_sound(self, db: C) -> None:
        """After an error: the connection may be broken, or still execute the statement."""
        if self._connector.is_sound(db):
            self._keep(db)
        else:
            self._connector.close(db)

    def _keep(self, db: C) -> None:
        self._idle.append(db)
        if self._closed:
            self.drop_idle()
