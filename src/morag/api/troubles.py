"""Errors that an operator must know of, although they are also reported to the client."""

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
    """How many things were found damaged since the start, and the first of them in words."""

    found: int
    first: str


class Troubles:
    """Logs the first of each kind, and then one in ten seconds; damage once for each thing."""

    def __init__(self, log: Callable[[str], object], monotonic: Callable[[], float]) -> None:
        self._log = log
        self._monotonic = monotonic
        self._logged: dict[type[Exception], tuple[float, int]] = {}
        self._damages: dict[str, None] = {}
        self._noting = Lock()

    @property
    def damage(self) -> Damage | None:
        """None as long as nothing was found damaged. It stays until the process ends: a store that
        was damaged once is not trusted because nobody asks for the damaged part any more."""
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
        """The sentence names the damaged thing. Past a limit nothing more is remembered or logged:
        a store in that state is reported enough."""
        with self._noting:
            if damage in self._damages or len(self._damages) >= _MOST_DAMAGES:
                return False
            self._damages[damage] = None
            return True
