"""Running out of file descriptors, of which every connection takes one."""

from __future__ import annotations

import errno
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_EPISODE_SECONDS: Final = 60.0
_NONE_LEFT: Final = (errno.EMFILE, errno.ENFILE)

logger = logging.getLogger(__name__)


class Descriptors:
    """Logs once that none is left.

    The event loop closes the connections that it has no descriptor for, without a word. It goes on
    by itself as soon as there are some again; shortages within a minute are one episode.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._limit = _limit()
        self._seen: float | None = None  # When none was left the last time.

    def check(self) -> None:
        """To be called now and then: connections are not all that takes descriptors."""
        try:
            Path("/dev/null").open("rb", buffering=0).close()
        except OSError as error:
            if error.errno in _NONE_LEFT:
                self._note()

    def opened(self, descriptor: int) -> None:
        """The system gives out the lowest number that is free, so the largest one is the last."""
        if descriptor + 1 >= self._limit:
            self._note()

    def _note(self) -> None:
        now = self._monotonic()
        if self._seen is None or now - self._seen > _EPISODE_SECONDS:
            logger.error(
                "No file descriptor is left (the limit is %d): new connections are closed until"
                " others end. Raise the limit (ulimit -n, LimitNOFILE), or lower max_connections.",
                self._limit,
            )
        self._seen = now


def _limit() -> int:
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
