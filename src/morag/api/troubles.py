"""What operators must hear of, although each client that meets it is told: not once for each."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt, StoreBusy, StoreCannotWrite

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS: Final = 10.0
_KINDS: Final = (StoreBusy, StoreCannotWrite, RepositoryCorrupt)


class Troubles:
    """Tells of the first of each kind, and then of one in ten seconds."""

    def __init__(self, tell: Callable[[str], object], monotonic: Callable[[], float]) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._told: dict[type[Exception], tuple[float, int]] = {}

    def note(self, error: Exception, request: str) -> None:
        if not isinstance(error, _KINDS):
            return
        now, kind = self._monotonic(), type(error)
        last, untold = self._told.get(kind, (-inf, 0))
        if now - last < _SECONDS:
            self._told[kind] = last, untold + 1
            return
        self._told[kind] = now, 0
        more = f" (and {untold} more like this)" if untold else ""
        self._tell(f"{request} failed: {error}{more}")
