"""`make bench-nessie`: the whole comparison, or the parts named as arguments."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench.nessie.comparisons import PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.nessie.comparisons import Figure


def show(figures: Iterable[Figure]) -> bool:
    """Print figures when they are ready. False if a request failed, which makes them invalid."""
    reached = targets = 0
    failures: list[str] = []
    line = "| {:50} | {:52} | {:52} | {:>8} | {:8} | {:2} |"
    print(line.format("figure", "Nessie", "Morag", "ratio", "target", ""))
    print(line.format("-" * 50, "-" * 52, "-" * 52, "-" * 8, "-" * 8, "--"))
    for figure in figures:
        targets += 1
        reached += figure.reached
        failures += figure.failures
        ratio, word = f"{figure.ratio:.2f} ×", "ok" if figure.reached else "NO"
        cells = (figure.name, figure.nessie, figure.morag, ratio, figure.target, word)
        print(line.format(*cells), flush=True)
    print(f"{reached} of {targets} targets reached")
    for failure in failures:
        print(failure)
    return not failures


if __name__ == "__main__":
    requested = sys.argv[1:] or list(PARTS)
    unknown = set(requested) - set(PARTS)
    if unknown:
        sys.exit(f"unknown part '{unknown.pop()}'; known: {', '.join(PARTS)}")
    sys.exit(not show(figure for part in requested for figure in PARTS[part]()))
