"""Points in time: integer nanoseconds since 1970 in Morag, texts as Nessie writes them outside."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Final

from morag.errors import BadRequest

SECOND_NANOS: Final = 1_000_000_000
MIN_NANOS: Final = -62_135_596_800 * SECOND_NANOS
"""The first moment of year 1."""
MAX_NANOS: Final = 253_402_300_800 * SECOND_NANOS - 1
"""The last moment of year 9999."""

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  Every datetime in this module is UTC.
_EPOCH_DAY: Final = _EPOCH.toordinal()
_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)

_ISO_MINUTE: Final = (
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<hour>\d\d):(?P<minute>\d\d)"
)
_ISO_SECOND: Final = r":(?P<second>\d\d)(?:\.(?P<fraction>\d{0,9}))?"
_CLOCK: Final = (
    r"(?P<hour>\d\d?):(?P<minute>\d\d?)(?::(?P<second>\d\d?)(?:\.(?P<fraction>\d{0,9}))?)?"
)
_ZONE: Final = r"(?: (?:GMT|(?P<offset>[+-]\d\d(?:\d\d){0,2})))?"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.ASCII | re.IGNORECASE)


_INSTANT: Final = _pattern(rf"{_ISO_MINUTE}{_ISO_SECOND}(?:Z|(?P<offset>[+-]\d\d:\d\d(?::\d\d)?))")
_HEADER_STYLES: Final = (
    # 2005-04-07T22:13:13+02:00, also with the name of a zone, which is ignored
    _pattern(
        rf"{_ISO_MINUTE}(?:{_ISO_SECOND})?(?:Z|(?P<offset>[+-]\d\d(?::\d\d){{0,2}}))"
        r"(?:\[[\w/+-]+\])?"
    ),
    # Thu Apr 7 22:13:13 2005 +0200
    _pattern(
        r"(?:(?P<weekday>[a-z]{3}) )?(?P<month>[a-z]{3}) (?P<day>\d\d?) "
        rf"{_CLOCK} (?P<year>\d{{4}}){_ZONE}"
    ),
    # Thu, 7 Apr 2005 22:13:13 +0200
    _pattern(
        r"(?:(?P<weekday>[a-z]{3}), )?(?P<day>\d\d?) (?P<month>[a-z]{3}) "
        rf"(?P<year>\d{{4}}) {_CLOCK}{_ZONE}"
    ),
)


def instant_text(nanos: int) -> str:
    """The time as Java's `Instant` writes it: UTC, with 0, 3, 6 or 9 digits of fraction.

    The text is hashed for the id of a commit, so it must be the same digit by digit.
    """
    seconds, fraction = divmod(nanos, SECOND_NANOS)
    text = _second_text(seconds)
    if fraction == 0:
        return f"{text}Z"
    if fraction % 1_000_000 == 0:
        return f"{text}.{fraction // 1_000_000:03}Z"
    if fraction % 1_000 == 0:
        return f"{text}.{fraction // 1_000:06}Z"
    return f"{text}.{fraction:09}Z"


def parse_instant(text: str) -> int:
    """Read an ISO time with `Z` or an offset, as clients send it."""
    nanos = _read(_INSTANT, text)
    if nanos is None:
        raise BadRequest(
            f"'{text}' is not a time: write it like 2023-05-27T11:10:47.230Z, "
            "with Z or an offset such as +02:00, in the years 0001 to 9999"
        )
    return nanos


def parse_header_time(text: str) -> int | None:
    """Read a time from a stored commit header, or return None.

    Importers of Git repositories and mail tools write other formats. A time that cannot be parsed
    must not make its commit unreadable.
    """
    for style in _HEADER_STYLES:
        nanos = _read(style, text)
        if nanos is not None:
            return nanos
    return None


@lru_cache(maxsize=16)  # Many commits have the same second.
def _second_text(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()


def _read(style: re.Pattern[str], text: str) -> int | None:
    found = style.fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    try:
        day = date(int(part["year"]), _month(part["month"]), int(part["day"]))
        seconds = _clock(part["hour"], part["minute"], part["second"]) - _offset(part["offset"])
    except ValueError:
        return None
    weekday = part.get("weekday")
    if weekday is not None and weekday.lower() != _DAYS[day.weekday()]:
        return None
    seconds += (day.toordinal() - _EPOCH_DAY) * 86_400
    nanos = seconds * SECOND_NANOS + int((part["fraction"] or "0").ljust(9, "0"))
    return nanos if MIN_NANOS <= nanos <= MAX_NANOS else None


def _month(text: str) -> int:
    return int(text) if text.isdigit() else _MONTHS.index(text.lower()) + 1


def _clock(hour: str, minute: str, second: str | None) -> int:
    h, m, s = int(hour), int(minute), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        raise ValueError("not a time of day")
    return h * 3600 + m * 60 + s


def _offset(text: str | None) -> int:
    """Seconds east of Greenwich, from `+02`, `+0200`, `+02:00` or the same with seconds."""
    if text is None:
        return 0
    digits = text[1:].replace(":", "").ljust(6, "0")
    seconds = _clock(digits[:2], digits[2:4], digits[4:])
    if seconds > 18 * 3600:
        raise ValueError("an offset is at most 18 hours")
    return -seconds if text[0] == "-" else seconds
