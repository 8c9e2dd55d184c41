"""One table of figures, each beside its bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[str, str, str, bool]
"""What was measured, the figure, the bar, and whether it was reached."""


def show(rows: Iterable[Row]) -> None:
    """Print rows as they come, and in the end how many bars were reached."""
    reached = bars = 0
    print(f"| {'figure':60} | {'measured':62} | {'bar':28} |    |")
    print(f"|{'-' * 62}|{'-' * 64}|{'-' * 30}|----|")
    for what, figure, bar, passed in rows:
        bars += bool(bar)
        reached += bool(bar) and passed
        print(f"| {what:60} | {figure:62} | {bar:28} | {'ok' if passed else 'NO'} |", flush=True)
    print(f"{reached} of {bars} bars reached")
