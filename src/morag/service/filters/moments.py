"""Times that can be compared as texts."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_USUAL: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z", re.ASCII)


def moment_of(text: str) -> str | None:
    """A text that sorts by time, for a time in the usual form. None for any other text: only the
    library can tell whether it is a time."""
    found = _USUAL.fullmatch(text)
    if found is None:
        return None
    seconds, fraction = found.groups("")
    try:
        datetime.fromisoformat(seconds)
    except ValueError:  # There is no such day or hour.
        return None
    return seconds + fraction.ljust(9, "0")
