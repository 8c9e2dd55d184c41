"""Durations: integer nanoseconds in Morag, texts as Nessie writes them outside."""

from __future__ import annotations

import re
from typing import Final

from morag.errors import BadRequest
from morag.model.times import SECOND_NANOS

_UNITS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_PATTERN: Final = re.compile(
    r"(?P<sign>[-+]?)P(?=[-+0-9T])(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)
_MOST_DIGITS: Final = 40  # More than any valid number needs, even with leading zeros.
_MOST_SECONDS: Final = 1 << 63


def parse_duration(text: str) -> int:
    """Read `P2DT3H4M5.6S` or a part of it; a day is 24 hours, and every number may be negative."""
    found = _PATTERN.fullmatch(text)
    if found is not None and not any(len(part or "") > _MOST_DIGITS for part in found.groups()):
        part = found.groupdict()
        whole = sum(int(part[unit] or 0) * seconds for unit, seconds in _UNITS.items())
        fraction = int((part["fraction"] or "").ljust(9, "0"))
        if (part["seconds"] or "").startswith("-"):  # The number itself may be -0.
            fraction = -fraction
        nanos = whole * SECOND_NANOS + fraction
        if part["sign"] == "-":
            nanos = -nanos
        if -_MOST_SECONDS <= nanos // SECOND_NANOS < _MOST_SECONDS:
            return nanos
    raise BadRequest(
        f"'{text}' is not a duration: write it like PT3H, P1DT12H or PT0.5S, "
        "without years, months and weeks"
    )


def duration_text(nanos: int) -> str:
    """The duration as Java's `Duration` writes it: in hours, minutes and seconds, each signed."""
    sign = "-" if nanos < 0 else ""
    whole, fraction = divmod(abs(nanos), SECOND_NANOS)
    minutes, seconds = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    text = "PT"
    if hours:
        text += f"{sign}{hours}H"
    if minutes:
        text += f"{sign}{minutes}M"
    if fraction:
        return text + f"{sign}{seconds}.{fraction:09}".rstrip("0") + "S"
    return text if text != "PT" and not seconds else f"{text}{sign}{seconds}S"
