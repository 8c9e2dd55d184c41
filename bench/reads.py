"""Measures lookups, listings and diffs on a repository of a million keys."""

from __future__ import annotations

from itertools import cycle
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING

from bench.timing import Samples, alternate
from morag.index.keys import store_key
from morag.index.layered import index_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.report import Row
    from bench.workload import Workload


def lookup(work: Workload) -> Iterator[Row]:
    index = index_of(work.repo._persist, work.repo._resolver.resolve("main").commit)
    # The first round loads their stripes into the cache.
    keys = [store_key(key) for key in Random(1).sample(work.keys, 2_000)]
    for key in keys:
        assert index.get(key) is not None
    requested = cycle(keys)

    def call() -> int:
        index.get(next(requested))
        return 1

    found = alternate({"lookup": call}, 1, 20_000)["lookup"]
    figure = f"{found.mean:.1f} µs (p99 {found.percentile(99):.1f})"
    yield "key lookup, 1,000,000 keys, stripe cached", figure, "≤ 20 µs", found.mean <= 20


def listing(work: Workload) -> Iterator[Row]:
    for what, bar in (("keys", 300_000), ("entries", None)):
        started = perf_counter()
        count = sum(1 for _ in getattr(work.repo.contents, what)("main"))
        rate = count / (perf_counter() - started)
        passed = bar is None or rate >= bar
        yield (
            f"listing {what}, 1,000,000 keys",
            f"{rate:,.0f}/s",
            f"≥ {bar:,}/s" if bar else "",
            passed,
        )


def difference(work: Workload) -> Iterator[Row]:
    """Diff two heads that differ in 20 keys, then again with many stripes rewritten on one side."""
    repo = work.repo
    repo.references.create_branch("other", "main")
    repo.commit("other", work.updates(20), "twenty")
    found = _timed_diff(work, "main", "other")
    yield (
        "diff of two heads, 1,000,000 keys, 20 differ, warm",
        f"{found.mean / 1000:.1f} ms (p99 {found.percentile(99) / 1000:.1f})",
        "≤ 20 ms",
        found.mean <= 20_000,
    )
    repo.commit("other", work.updates(200), "more than an incremental index holds")
    repo.references.create_branch("spilled", "other")
    repo.commit("spilled", work.updates(20), "twenty more")
    found = _timed_diff(work, "other", "spilled")
    figure = f"{found.mean / 1000:.1f} ms (p99 {found.percentile(99) / 1000:.1f})"
    yield "  the same, with 200 stripes rewritten between them", figure, "", True


def _timed_diff(work: Workload, one: str, other: str) -> Samples:
    def call() -> int:
        assert sum(1 for _ in work.repo.contents.diff(one, other)) == 20
        return 1

    call()
    return alternate({"diff": call}, 30, 1)["diff"]
