"""The thread pool for work that must not block the event loop."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)


class Threads:
    """A fixed number of threads and one queue; work starts in the order of its arrival.

    It is faster than `ThreadPoolExecutor`, whose futures are not needed here: commits pass through
    this pool, and its work holds the interpreter's lock.
    """

    def __init__(self, count: int) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.spawn: Callable[[Callable[[], None]], None] = self._queue.put
        self._running = count
        self._lock = Lock()
        self._all_ended = Event()
        # Daemons: a store that never responds must not keep the process alive.
        self._threads = [
            Thread(target=self._run, name=f"morag-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def close(self, timeout_seconds: float) -> bool:
        """Finish all queued work. Returns False if that took too long."""
        for _ in self._threads:
            self._queue.put(None)
        return self._all_ended.wait(timeout_seconds)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except Exception:  # The last resort: a bug must not end the thread.
                logger.exception("Work in a thread failed")
            del work  # Otherwise an idle thread keeps the last request in memory.
        with self._lock:
            self._running -= 1
            if not self._running:
                self._all_ended.set()
