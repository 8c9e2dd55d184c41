"""Logs the errors that an operator must know about, in addition to reporting them to clients."""

from __future__ import annotations

from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt, StoreBusy, StoreCannotWrite

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS: Final = 10.0
_KINDS: Final = (StoreBusy, StoreCannotWrite)
_MOST_DAMAGES: Final = 1_000


class Damage(Struct, frozen=True):
    """How many objects were found damaged since the start, and the message of the first."""

    found: int
    first: str


class OperatorLog:
    """Logs the first error of each kind, then one in ten seconds; damage once per object."""

    def __init__(self, log: Callable[[str], object], monotonic: Callable[[], float]) -> None:
        self._log = log
        self._monotonic = monotonic
        self._logged: dict[type[Exception], tuple[float, int]] = {}
        self._damages: dict[str, None] = {}
        self._noting = Lock()

    @property
    def damage(self) -> Damage | None:
        """None if no damage was found. It stays until the process ends: even if no client reads the
        damaged part again, the store is still damaged."""
        with self._noting:
            first = next(iter(self._damages), None)
            return None if first is None else Damage(len(self._damages), first)

    def note(self, error: Exception, request: str) -> None:
        if isinstance(error, RepositoryCorrupt):
            if self._is_new(str(error)):
                self._log(f"{request} failed: {error}")
            return
        if not isinstance(error, _KINDS):
            return
        now, kind = self._monotonic(), type(error)
        last, unlogged = self._logged.get(kind, (-inf, 0))
        if now - last < _SECONDS:
            self._logged[kind] = last, unlogged + 1
            return
        self._logged[kind] = now, 0
        more = f" (and {unlogged} more like this)" if unlogged else ""
        self._log(f"{request} failed: {error}{more}")

    def _is_new(self, damage: str) -> bool:
        """The message names the damaged object. After `_MOST_DAMAGES` objects, further ones are
        neither stored nor logged."""
        with self._noting:
            if damage in self._damages or len(self._damages) >= _MOST_DAMAGES:
                return False
            self._damages[damage] = None
            return True
