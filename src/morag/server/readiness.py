"""Health checks: whether the process runs, and whether its store responds and accepts writes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from morag.api.http import Response
from morag.api.operator_log import Damage
from morag.errors import MoragError

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.versions.tickets import Spawn

LIVE: Final = "/health/live"
READY: Final = "/health/ready"

_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
)
UP: Final = Response(200, b'{"status":"UP"}', _HEADERS)


class Readiness:
    """A `Later` that checks the store, in one thread for all clients that wait.

    `check` raises if the store does not respond or accepts no writes. It returns the `Damage` that
    was found so far. With damage the server is still ready: it serves everything else, and all
    other servers on the same store would have to stop as well.
    """

    def __init__(self, check: Callable[[], object]) -> None:
        self._check = check
        self._lock = Lock()
        self._waiting: list[Callable[[Response], None]] = []

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        with self._lock:
            self._waiting.append(done)
            is_first = len(self._waiting) == 1
        if is_first:
            spawn(self._answer_all)

    @property
    def is_checking(self) -> bool:
        """Whether a check is running: a store that hangs is not checked again."""
        return bool(self._waiting)

    def _answer_all(self) -> None:
        answer = self.answer()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(answer)

    def answer(self) -> Response:
        try:
            damage = self._check()
        except MoragError as error:
            return down(str(error))
        except Exception as error:  # noqa: BLE001 - Drivers raise exceptions of their own.
            # Only the name: a driver's message may contain the address with the password.
            return down(f"The store failed with {type(error).__name__}")
        return _up_but(damage) if isinstance(damage, Damage) else UP


def _up_but(damage: Damage) -> Response:
    return Response(200, msgspec.json.encode({"status": "UP", "damage": damage}), _HEADERS)


def down(reason: str) -> Response:
    return Response(503, msgspec.json.encode({"status": "DOWN", "reason": reason}), _HEADERS)
