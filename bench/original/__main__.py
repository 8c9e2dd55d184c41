"""`make bench-original`: the whole race, or the parts of it that are named as arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.original.races import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.original.races import Figure


def show(figures: Iterable[Figure]) -> bool:
    """Print figures as they come. False if a request failed: then no figure is worth anything."""
    reached = bars = 0
    failures: list[str] = []
    line = "| {:50} | {:52} | {:52} | {:>8} | {:8} | {:2} |"
    print(line.format("figure", "original", "Morag", "ratio", "bar", ""))
    print(line.format("-" * 50, "-" * 52, "-" * 52, "-" * 8, "-" * 8, "--"))
    for figure in figures:
        bars += 1
        reached += figure.reached
        failures += figure.failures
        ratio, word = f"{figure.ratio:.2f} ×", "ok" if figure.reached else "NO"
        cells = (figure.what, figure.original, figure.morag, ratio, figure.bar, word)
        print(line.format(*cells), flush=True)
    print(f"{reached} of {bars} bars reached")
    for failure in failures:
        print(failure)
    return not failures


if __name__ == "__main__":
    asked = sys.argv[1:] or list(PARTS)
    unknown = set(asked) - set(PARTS)
    if unknown:
        sys.exit(f"unknown part '{unknown.pop()}'; known: {', '.join(PARTS)}")
    sys.exit(not show(figure for part in asked for figure in PARTS[part]()))
