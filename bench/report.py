"""Prints a table of figures with their targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[str, str, str, bool]
"""The name of the figure, its value, its target, and whether it was reached."""


def show(rows: Iterable[Row]) -> None:
    """Print each row when it is ready, then how many targets were reached."""
    reached = targets = 0
    print(f"| {'figure':60} | {'measured':62} | {'target':28} |    |")
    print(f"|{'-' * 62}|{'-' * 64}|{'-' * 30}|----|")
    for name, figure, target, passed in rows:
        targets += bool(target)
        reached += bool(target) and passed
        print(f"| {name:60} | {figure:62} | {target:28} | {'ok' if passed else 'NO'} |", flush=True)
    print(f"{reached} of {targets} targets reached")
