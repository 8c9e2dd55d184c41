"""Iterates in a thread of its own, some items ahead of the consumer."""

from __future__ import annotations

from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

T = TypeVar("T")

_POLL_SECONDS: Final = 0.1


class ReadAhead(Generic[T]):
    """The items of an iterable, of which at most `most` wait for the consumer."""

    def __init__(self, items: Iterable[T], most: int) -> None:
        self._items = items
        self._most = most
        self._queue: Queue[T] = Queue(most)
        self._stopped, self._ended = Event(), Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)

    def take(self, least: int) -> list[T]:
        """All items that wait, once there are `least` or the end is reached; none after the end.

        Raises the error that ended the iteration.
        """
        while self._queue.qsize() < min(least, self._most) and not self._ended.is_set():
            self._ended.wait(_POLL_SECONDS)
        found: list[T] = []
        try:
            while len(found) < self._most:
                found.append(self._queue.get_nowait())
        except Empty:
            pass
        if not found and self._error is not None:
            raise self._error
        return found

    def __enter__(self) -> ReadAhead[T]:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for item in self._items:
                while not self._stopped.is_set():
                    try:
                        self._queue.put(item, timeout=_POLL_SECONDS)
                        break
                    except Full:
                        continue
                if self._stopped.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - The consumer raises it.
            self._error = error
        finally:
            self._ended.set()
