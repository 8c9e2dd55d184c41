"""The stored counts, for each version of Python: one counts other instructions than the next."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.counted.counting import Counts

TOLERANCE: Final = 0.2
SLACK: Final = {"peak bytes": 12_000}
"""Where a thread happens to run at the peak, buffers of its own come and go."""
RENEW: Final = "python -m tests.counted"

_FILE: Final = Path(__file__).with_name("figures.json")
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"


def stored() -> dict[str, Counts] | None:
    """The counts of this version of Python, or None if nobody recorded them."""
    figures: dict[str, dict[str, Counts]] = json.loads(_FILE.read_text())
    return figures.get(_VERSION)


def renew(counts: dict[str, Counts]) -> None:
    figures = json.loads(_FILE.read_text()) if _FILE.exists() else {}
    figures[_VERSION] = counts
    _FILE.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


def differences(name: str, stored: Counts, found: Counts) -> list[str]:
    """A sentence for each count of a workload that is out of tolerance."""
    sentences = []
    for what, before in stored.items():
        now = found[what]
        if abs(now - before) > before * TOLERANCE + SLACK.get(what, 0):
            word = "more" if now > before else "fewer"
            sentences.append(f"{name}: {now} {what}, which is {word} than {before}")
    return sentences
