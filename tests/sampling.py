"""The seeds and races that run today; seven consecutive days run all of them.

`SAMPLE_DATE=2026-11-17` repeats the choice of that day, `SAMPLE_DATE=all` runs everything. The name
has no prefix `MORAG_`, because Morag refuses variables with that prefix that it does not know.
"""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

VARIABLE: Final = "SAMPLE_DATE"
DAYS: Final = 7


class Sample(NamedTuple):
    """Choices of one kind: the first `always` run every day, the others on one day of seven."""

    choices: Sequence[int] | Sequence[str]
    always: int

    def on(self, day: date | None) -> list[int | str]:
        """The choices for a day, or all of them."""
        rest = range(self.always, len(self.choices))
        numbers = [n for n in rest if day is None or (n - day.toordinal()) % DAYS == 0]
        return [self.choices[n] for n in (*range(self.always), *numbers)]


SAMPLES: Final = {
    "fault seeds": Sample(range(100, 200), always=4),
    "kill seeds": Sample(range(100, 105), always=1),
    "process rounds": Sample(range(5), always=1),
    "store life seeds": Sample(range(100, 103), always=1),
    "gc race seeds": Sample(range(5), always=1),
    "bits of log headers": Sample(range(56), always=0),
    "differential seeds": Sample(range(1, 16), always=2),
}


def seeds(kind: str) -> list[int]:
    return [seed for seed in SAMPLES[kind].on(chosen_day()) if isinstance(seed, int)]


def is_chosen(sample: Sample, choice: str) -> bool:
    return choice in sample.on(chosen_day())


def chosen_day() -> date | None:
    """Today in UTC, unless the variable names another day; None means everything."""
    chosen = os.environ[VARIABLE]
    return None if chosen == "all" else date.fromisoformat(chosen)


def hypothesis_seed() -> int:
    return int((chosen_day() or datetime.now(UTC).date()).strftime("%Y%m%d"))


def report() -> list[str]:
    """Lines for the head of a test report."""
    day = chosen_day()
    repeat = f"{VARIABLE}={day or 'all'} repeats it"
    chosen = "; ".join(
        f"{kind} {' '.join(map(str, sample.on(day)))}" for kind, sample in SAMPLES.items()
    )
    return [f"sample: {repeat}; Hypothesis seed {hypothesis_seed()}", f"sampled: {chosen}"]


# Set once for all processes of a run, which may last beyond midnight.
os.environ.setdefault(VARIABLE, datetime.now(UTC).date().isoformat())
