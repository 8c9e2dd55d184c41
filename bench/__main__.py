"""`make bench`: measures the kernel, all parts or those named as arguments."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

from bench import commits, peak_memory, reads
from bench.report import show
from bench.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row

PARTS = ("size", "durable", "growth", "reads", "rss")


def rows(parts: set[str]) -> Iterator[Row]:
    if "durable" in parts:
        yield from commits.durable()
    if "growth" in parts:
        yield from commits.growth()
    if parts & {"size", "reads"}:
        workloads = {size: Workload("memory:", size) for size in commits.SIZES}
        if "size" in parts:
            yield from commits.by_size(workloads)
        if "reads" in parts:
            large = workloads[commits.SIZES[-1]]
            yield from chain(reads.lookup(large), reads.listing(large), reads.difference(large))
        workloads.clear()
    if "rss" in parts:
        yield from peak_memory.peak_memory()


if __name__ == "__main__":
    requested = set(sys.argv[1:]) or set(PARTS)
    unknown = requested - set(PARTS)
    if unknown:
        sys.exit(f"unknown part '{unknown.pop()}'; known: {', '.join(PARTS)}")
    show(rows(requested))
