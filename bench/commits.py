"""Measures commits: one at a time, in lane batches, by repository size, and on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.timing import alternate
from bench.workload import Workload
from morag.versions.tickets import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.report import Row

SIZES = (1_000, 30_000, 1_000_000)
NESSIE_GROWTH_BYTES = 31_460  # Growth of its RocksDB directory per commit, in this workload.


def single_commit(work: Workload) -> Callable[[], int]:
    def call() -> int:
        work.repo.commit("main", [work.update()], "update")
        return 1

    return call


def batch_commit(work: Workload, count: int) -> Callable[[], int]:
    """`count` requests that wait in the lane and are committed as one batch."""

    def call() -> int:
        tickets = [
            Waiter(work.repo.commit_request("main", [put], "update")) for put in work.updates(count)
        ]
        lane = work.repo._writers().lanes.lane("main")
        assert lane.join(tickets), "the lane was idle"
        lane.drive(tickets[-1])
        for ticket in tickets:
            ticket.result()
        return count

    return call


def by_size(workloads: dict[int, Workload]) -> Iterator[Row]:
    single = {f"{size}": single_commit(work) for size, work in workloads.items()}
    batch = {f"{size}": batch_commit(work, 16) for size, work in workloads.items()}
    for work in workloads.values():  # Load all stripes into the cache.
        assert sum(1 for _ in work.repo.contents.keys("main")) > work.size
    alternate(single, 5, 300)  # Warm up past the first spills.
    one = alternate(single, 20, 200)
    many = alternate(batch, 20, 12)
    small = str(SIZES[0])
    yield (
        "one-put commit, memory, 1,000 keys, alone",
        str(one[small]),
        "≤ 300 µs",
        one[small].mean <= 300,
    )
    yield "  in a lane batch of 16, each", str(many[small]), "≤ 200 µs", many[small].mean <= 200
    for size, bar in zip(SIZES[1:], (1.3, 1.5), strict=True):
        for what, found in (("alone", one), ("in a lane batch of 16", many)):
            ratio = found[str(size)].mean / found[small].mean
            figure = f"{found[str(size)]} = {ratio:.2f} ×"
            yield (
                f"  {size:,} keys, {what}",
                figure,
                f"≤ {bar} × the 1,000-key figure",
                ratio <= bar,
            )


def durable() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        workloads = {
            "memory": Workload("memory:", 1_000),
            "rocksdb": Workload(f"rocksdb:{folder}/store", 1_000),
        }
        calls = {name: batch_commit(work, 64) for name, work in workloads.items()}
        alternate(calls, 3, 5)
        found = alternate(calls, 25, 4)
        for work in workloads.values():
            work.repo.close()
    rates = {name: 1e6 / samples.mean for name, samples in found.items()}
    share = rates["rocksdb"] / rates["memory"]
    figure = (
        f"{rates['rocksdb']:,.0f}/s = {share:.0%} of memory's {rates['memory']:,.0f}/s "
        f"(p99 of a batch {64 * found['rocksdb'].percentile(99) / 1000:.0f} ms)"
    )
    yield "commits/s, 64 waiting, one branch, RocksDB durable", figure, "≥ 70 %", share >= 0.7


def growth() -> Iterator[Row]:
    commits = 5_000
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        work = Workload(f"rocksdb:{store}", 30_000)
        work.repo.close()
        before = _size_bytes(store)
        work.reopen(f"rocksdb:{store}")
        commit = single_commit(work)
        for _ in range(commits):
            commit()
        running = _size_bytes(store)
        work.repo.close()
        closed = _size_bytes(store)
    per_commit = (max(running, closed) - before) / commits
    share = per_commit / NESSIE_GROWTH_BYTES
    figure = (
        f"{per_commit:,.0f} B = {share:.2f} of Nessie's "
        f"(after closing {(closed - before) / commits:,.0f} B)"
    )
    yield "growth of the RocksDB directory per commit, 30,000 keys", figure, "≤ 0.25", share <= 0.25


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
