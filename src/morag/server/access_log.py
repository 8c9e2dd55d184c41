"""One line per request on standard error, without headers, bodies and queries: no secrets."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.api.http import Request

    Log = Callable[[Request, int, int, float, str], None]


def access_log(
    form: Literal["off", "text", "json"],
    write: Callable[[str], object],
    clock_nanos: Callable[[], int],
) -> Log | None:
    """The function that logs a request: its status, response bytes, milliseconds and client."""
    if form == "off":
        return None

    def log(request: Request, status: int, size: int, millis: float, client: str) -> None:
        line = _Line(
            time=_time_text(clock_nanos()),
            client=client,
            method=request.method,
            path=request.path,
            status=status,
            bytes=size,
            millis=round(millis, 3),
        )
        # Standard error may be closed, or be a pipe without a reader: requests are served anyway.
        # A pipe whose reader does not read blocks the server.
        with suppress(OSError, ValueError):
            write(_json(line) if form == "json" else _text(line))

    return log


class _Line(msgspec.Struct, frozen=True):
    time: str
    client: str
    method: str
    path: str
    status: int
    bytes: int
    millis: float


def _time_text(nanos: int) -> str:
    return datetime.fromtimestamp(nanos / 1e9, UTC).isoformat(timespec="milliseconds")


def _json(line: _Line) -> str:
    return msgspec.json.encode(line).decode() + "\n"


def _text(line: _Line) -> str:
    return (
        f"{line.time} {line.client} {line.method} {line.path}"
        f" {line.status} {line.bytes} B {line.millis:.3f} ms\n"
    )
