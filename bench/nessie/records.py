"""What a run writes down: one JSON object per line."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct, json

from morag.load.driver import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LEAST: Final = 1e-9
"""Instead of a zero in a denominator."""


class Run(Struct, frozen=True, tag="run"):
    """The start of a run. The records up to the next one belong to it."""

    date: str
    machine: str
    command: str


class Slice(Struct, frozen=True):
    units: int
    seconds: float
    server_cpu_seconds: float
    driver_cpu_seconds: float
    requests: int

    @property
    def rate(self) -> float:
        return self.units / self.seconds


class Measured(Struct, frozen=True):
    """One workload on one server."""

    side: str
    slices: list[Slice]
    p50_seconds: float
    p99_seconds: float
    p999_seconds: float
    failures: int
    shown_failures: list[str]

    @property
    def rate(self) -> float:
        return sum(s.units for s in self.slices) / sum(s.seconds for s in self.slices)

    @property
    def server_micros(self) -> float:
        """CPU time of the server per unit: the median over slices."""
        return median(s.server_cpu_seconds * 1e6 / max(1, s.units) for s in self.slices)

    @property
    def driver_micros(self) -> float:
        """CPU time of the driver per unit: the median over slices."""
        return median(s.driver_cpu_seconds * 1e6 / max(1, s.units) for s in self.slices)


class Result(Struct, frozen=True, tag="workload"):
    """One workload on one store. The last side is compared with the first, if there are two."""

    store: str
    workload: str
    part: str
    """The workload, or the series of client numbers that this result belongs to."""
    clients: int
    unit: str
    sides: list[Measured]

    @property
    def ratio(self) -> float | None:
        """The median over the ratios of slices that followed each other."""
        if len(self.sides) < 2:
            return None
        first, last = self.sides
        pairs = zip(first.slices, last.slices, strict=True)
        return median(ours.rate / max(theirs.rate, _LEAST) for theirs, ours in pairs)

    @property
    def cpu_ratio(self) -> float | None:
        """How many times more CPU time the first side needs per unit."""
        if len(self.sides) < 2:
            return None
        first, last = self.sides
        return first.server_micros / max(last.server_micros, _LEAST)


class Figure(Struct, frozen=True, tag="figure"):
    """A single figure of each side."""

    store: str
    name: str
    unit: str
    values: dict[str, float]


Record: TypeAlias = Run | Result | Figure


def summed_up(side: str, outcomes: Sequence[Outcome]) -> Measured:
    total = Outcome()
    slices = []
    for each in outcomes:
        total += each
        requests, cpu = len(each.latencies_seconds), each.server_cpu_seconds
        slices.append(Slice(each.units, each.seconds, cpu, each.cpu_seconds, requests))
    return Measured(
        side,
        slices,
        total.percentile_seconds(50),
        total.percentile_seconds(99),
        total.percentile_seconds(99.9),
        total.failures,
        total.shown_failures,
    )


def read(path: Path) -> list[Record]:
    lines = path.read_bytes().splitlines()
    return [json.decode(line, type=Record) for line in lines]
