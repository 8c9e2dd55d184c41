"""Prints the records of a run as a table, while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench.nessie.goals import LIMITS, RATIOS
from bench.nessie.records import Figure, Result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.nessie.records import Record
    from bench.nessie.servers import Side

_LINE: Final = "{:16} {:18} {:>3}  {:>24}  {:>24}  {:>8}  {:>6}  {:>9}  {}"


def show_head(sides: Sequence[Side]) -> None:
    names = [f"{side.name} (CPU/unit)" for side in sides]
    _print("store", "part", "cl.", *_two(names), "ratio", "goal", "CPU ratio", "p99, driver's CPU")


def show(record: Record) -> bool:
    """Print a record. True if a request failed, which makes its figures invalid."""
    match record:
        case Result():
            _show_result(record)
            return any(side.failures for side in record.sides)
        case Figure():
            found = _two([shown(value, record.unit) for value in record.values.values()])
            limit = LIMITS.get(record.name)
            goal = "" if limit is None else shown(limit, record.unit)
            _print(record.store, record.name, "", *found, "", goal, "", "")
    return False


def shown(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value:.2f} s"
    return f"{value / 1e6:,.0f} MB" if value >= 1e6 else f"{value / 1e3:,.1f} kB"


def _show_result(result: Result) -> None:
    cells = [f"{each.rate:,.0f}/s ({each.server_micros:,.0f} µs)" for each in result.sides]
    goal = RATIOS[result.store].get(result.part)
    latencies = "; ".join(
        f"{each.p99_seconds * 1e3:.1f} ms, {each.driver_micros:.0f} µs" for each in result.sides
    )
    _print(
        *(result.store, result.part, result.clients),
        *_two(cells),
        "" if result.ratio is None else f"{result.ratio:.2f} ×",
        "" if goal is None else f"{goal:g}",
        "" if result.cpu_ratio is None else f"{result.cpu_ratio:.2f} ×",
        latencies,
    )
    for side in result.sides:
        for failure in side.shown_failures:
            print(f"  {side.side}: {side.failures} failures, such as {failure!r}")


def _two(cells: Sequence[str]) -> Sequence[str]:
    """The cells of both sides; the first one is empty if Morag is alone."""
    return cells if len(cells) == 2 else ["", *cells]


def _print(*cells: object) -> None:
    print(_LINE.format(*cells), flush=True)
