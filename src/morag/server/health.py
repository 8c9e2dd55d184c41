"""Whether the process lives, and whether its store answers and takes writes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Final

import msgspec

from morag.api.http import Response
from morag.api.troubles import Damage
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
    """An answer that asks the store first.

    `ask` raises if the store does not answer or takes no writes. It returns the `Damage` that was
    found so far: such a server is still ready, because it serves everything else, and because all
    others on the same store would have to go as well. However many clients wait, the store is asked
    by one thread at a time.
    """

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask
        self._lock = Lock()
        self._waiting: list[Callable[[Response], None]] = []

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        with self._lock:
            self._waiting.append(done)
            is_first = len(self._waiting) == 1
        if is_first:
            spawn(self._answer_all)

    @property
    def is_asking(self) -> bool:
        """Whether the store has not answered yet: one that hangs is not asked again."""
        return bool(self._waiting)

    def _answer_all(self) -> None:
        answer = self.answer()
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(answer)

    def answer(self) -> Response:
        try:
            damage = self._ask()
        except MoragError as error:
            return down(str(error))
        except Exception as error:  # noqa: BLE001 - Whatever it is, this server is not ready.
            # Only its name: a driver's message may quote the address with the password in it.
            return down(f"The store failed with {type(error).__name__}")
        return _up_but(damage) if isinstance(damage, Damage) else UP


def _up_but(damage: Damage) -> Response:
    return Response(200, msgspec.json.encode({"status": "UP", "damage": damage}), _HEADERS)


def down(reason: str) -> Response:
    return Response(503, msgspec.json.encode({"status": "DOWN", "reason": reason}), _HEADERS)
