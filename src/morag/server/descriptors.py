"""Reports that the process has run out of file descriptors; every connection takes one."""

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
    """Logs a shortage of file descriptors once.

    The event loop silently closes connections without a descriptor, and recovers by itself when
    there are free ones again. Shortages within a minute are logged as one.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._limit = _limit()
        self._seen: float | None = None  # When a shortage was last seen.

    def check(self) -> None:
        """Called by a timer, because files take descriptors as well as connections."""
        try:
            Path("/dev/null").open("rb", buffering=0).close()
        except OSError as error:
            if error.errno in _NONE_LEFT:
                self._note()

    def opened(self, descriptor: int) -> None:
        """The system assigns the lowest free number, so the largest one is the last."""
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
