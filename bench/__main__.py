"""`make bench`: all figures of the kernel, or the parts named as arguments."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING

from bench import commits, reads, resident
from bench.report import show
from bench.repositories import Workload

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
        works = {size: Workload("memory:", size) for size in commits.SIZES}
        if "size" in parts:
            yield from commits.by_size(works)
        if "reads" in parts:
            large = works[commits.SIZES[-1]]
            yield from chain(reads.lookup(large), reads.listing(large), reads.difference(large))
        works.clear()
    if "rss" in parts:
        yield from resident.resident()


if __name__ == "__main__":
    asked = set(sys.argv[1:]) or set(PARTS)
    unknown = asked - set(PARTS)
    if unknown:
        sys.exit(f"unknown part '{unknown.pop()}'; known: {', '.join(PARTS)}")
    show(rows(asked))
