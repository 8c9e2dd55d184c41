"""Whether the process lives, and whether its store answers and takes writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from morag.api.http import Response
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
    """An answer that asks the store first."""

    def __init__(self, ask: Callable[[], object]) -> None:
        self._ask = ask

    def start(self, spawn: Spawn, done: Callable[[Response], None]) -> None:
        spawn(lambda: done(self.answer()))

    def answer(self) -> Response:
        try:
            self._ask()
        except MoragError as error:
            return down(str(error))
        except Exception as error:  # noqa: BLE001 - Whatever it is, this server is not ready.
            # Only its name: a driver's message may quote the address with the password in it.
            return down(f"The store failed with {type(error).__name__}")
        return UP


def down(reason: str) -> Response:
    return Response(503, msgspec.json.encode({"status": "DOWN", "reason": reason}), _HEADERS)
