"""The plots of a comparison: ratios with their goals, latencies, and rates by clients."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING, Final

from bench.nessie.goals import RATIOS
from bench.nessie.svg import Drawing
from morag.load.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.nessie.records import Measured, Result

_WIDTH: Final = 760
_LABELS: Final = 250
_LINE: Final = 24
_TOP: Final = 56
_BOTTOM: Final = 12


def ratios(results: Sequence[Result], title: str) -> Drawing:
    """A bar for each workload from 1 to its ratio, on a logarithmic axis; a tick is the goal."""
    drawing = Drawing(_WIDTH, _TOP + _LINE * len(results) + _BOTTOM, title)
    goals = [RATIOS[result.store].get(result.part, 1.0) for result in results]
    found = [result.ratio or 1.0 for result in results]
    place = _log_axis(drawing, title, [*found, *goals, 0.5, 20.0], len(results), "×")
    for number, (result, goal, ratio) in enumerate(zip(results, goals, found, strict=True)):
        y = _TOP + _LINE * number
        _label(drawing, y, WORKLOADS[result.workload].title, result.clients)
        style = "last" if ratio >= goal else "short"
        drawing.bar(place(1.0), y + 5, place(ratio), _LINE - 10, style)
        drawing.line(place(goal), y + 2, place(goal), y + _LINE - 2, "goal")
        drawing.text(max(place(ratio), place(goal), place(1.0)) + 6, y + 16, f"{ratio:.1f} ×")
    return drawing


def latencies(results: Sequence[Result], title: str) -> Drawing:
    """For each workload and side a line from p50 to p99.9, with a dot at p99."""
    drawing = Drawing(_WIDTH, _TOP + _LINE * len(results) + _BOTTOM, title)
    millis = [value for result in results for side in result.sides for value in _millis(side)]
    place = _log_axis(drawing, title, millis, len(results), " ms")
    for number, result in enumerate(results):
        y = _TOP + _LINE * number
        _label(drawing, y, WORKLOADS[result.workload].title, result.clients)
        for side, style, height in zip(result.sides, ("first", "last"), (8, 16), strict=True):
            p50, p99, p999 = map(place, _millis(side))
            drawing.line(p50, y + height, p999, y + height, style)
            drawing.dot(p50, y + height, style, radius=2)
            drawing.dot(p99, y + height, style)
            drawing.line(p999, y + height - 3, p999, y + height + 3, style)
    _legend(drawing, results[0])
    return drawing


def by_clients(series: Sequence[Sequence[Result]], title: str) -> Drawing:
    """For each series a panel with the rates of both sides by the number of clients."""
    drawing = Drawing(_WIDTH, 300, title)
    drawing.text(10, 20, title, "title")
    width = _WIDTH / len(series)
    for number, results in enumerate(series):
        left, right, top, bottom = width * number + 70, width * (number + 1) - 30, 70.0, 260.0
        most = _round_up(max(side.rate for result in results for side in result.sides))
        drawing.text(left, top - 12, WORKLOADS[results[0].workload].title)
        for quarter in range(5):
            y = bottom - (bottom - top) * quarter / 4
            drawing.line(left, y, right, y, "grid")
            drawing.text(left - 6, y + 4, f"{most * quarter / 4:,.0f}", "small", "end")
        xs = [left + (right - left) * n / max(1, len(results) - 1) for n in range(len(results))]
        for x, result in zip(xs, results, strict=True):
            drawing.text(x, bottom + 18, str(result.clients), "small", "middle")
        for index, style in enumerate(("first", "last")):
            points = [
                (x, bottom - (bottom - top) * result.sides[index].rate / most)
                for x, result in zip(xs, results, strict=True)
            ]
            drawing.path(points, style)
            for x, y in points:
                drawing.dot(x, y, style)
        drawing.text((left + right) / 2, bottom + 34, "clients", "small", "middle")
    _legend(drawing, series[0][0])
    return drawing


def _millis(side: Measured) -> list[float]:
    return [1e3 * each for each in (side.p50_seconds, side.p99_seconds, side.p999_seconds)]


def _label(drawing: Drawing, y: float, title: str, clients: int) -> None:
    drawing.text(_LABELS - 8, y + 16, f"{title} ({clients})", anchor="end")


def _legend(drawing: Drawing, result: Result) -> None:
    first, last = (side.side.title() for side in result.sides)
    drawing.text(_WIDTH - 130, 20, f"● {first}", "first")
    drawing.text(_WIDTH - 65, 20, f"● {last}", "last")


def _log_axis(
    drawing: Drawing, title: str, values: Sequence[float], lines: int, unit: str
) -> Callable[[float], float]:
    """Draw the axis for these values, and return the function that places a value on it."""
    drawing.text(10, 20, title, "title")
    low, high = log10(min(values)), log10(max(values))
    right = _WIDTH - 70

    def place(value: float) -> float:
        return _LABELS + (right - _LABELS) * (log10(value) - low) / max(high - low, 1e-9)

    for power in range(floor(low), ceil(high) + 1):
        for step in (1, 2, 5) if high - low < 3 else (1,):
            value = step * 10.0**power
            if low - 1e-9 <= log10(value) <= high + 1e-9:
                style = "axis" if value == 1 and unit == "×" else "grid"
                drawing.line(place(value), _TOP - 6, place(value), _TOP + lines * _LINE, style)
                drawing.text(place(value), _TOP - 12, f"{value:g}{unit}", "small", "middle")
    return place


def _round_up(value: float) -> float:
    """The next number that four lines divide nicely."""
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 4, 6, 8, 10) if step * power >= value)
