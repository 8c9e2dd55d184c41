"""Times calls in short alternating slices, so that other load affects all equally."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Samples:
    """Durations of single calls, in microseconds."""

    def __init__(self) -> None:
        self.micros: list[float] = []

    @property
    def mean(self) -> float:
        return sum(self.micros) / len(self.micros)

    def percentile(self, percent: float) -> float:
        ordered = sorted(self.micros)
        return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

    def __str__(self) -> str:
        return f"{self.mean:,.0f} µs (p99 {self.percentile(99):,.0f})"


def alternate(
    calls: Mapping[str, Callable[[], int]], rounds: int, per_round: int
) -> dict[str, Samples]:
    """Each call returns its number of commits or lookups; its time is divided among them."""
    found = {name: Samples() for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(per_round):
                started = perf_counter()
                units = call()
                took = (perf_counter() - started) * 1e6
                found[name].micros += [took / units] * units
    return found
