"""Measures each figure of both servers, in short alternating slices."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench.nessie.dataset import TABLES, commits_on, committers, make_tables, table_to_read
from bench.nessie.load_clients import Reader
from bench.nessie.load_generator import Outcome, drive
from bench.nessie.servers import NAMES, Store, running, store_in_memory, store_on_disk
from tests.stores.servers.postgres import new_store, postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.nessie.load_generator import Client
    from bench.nessie.servers import Server

WARM_READS: Final = 20_000
ROUNDS: Final = 6
SLICE_SECONDS: Final = 2.5
STARTS: Final = 3
_SETTLE_SECONDS: Final = 1.0
_MEGABYTE: Final = 1 << 20


class Figure(Struct, frozen=True):
    """One line of the table: the value of each server, and whether Morag reaches the target."""

    name: str
    nessie: str
    morag: str
    ratio: float
    target: str
    reached: bool
    failures: tuple[str, ...] = ()


def start() -> Iterator[Figure]:
    """Start on empty RocksDB directories; memory is read a while after the first response."""
    seconds: dict[str, list[float]] = {name: [] for name in NAMES}
    resident: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(STARTS):
        for name in NAMES:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                server = stack.enter_context(running(name, store_on_disk(folder), folder))
                sleep(_SETTLE_SECONDS)
                seconds[name].append(server.start_seconds)
                resident[name].append(server.resident_bytes() / _MEGABYTE)
    took = {name: median(seconds[name]) for name in NAMES}
    yield Figure(
        "start to first response, RocksDB, empty",
        f"{took['nessie']:.2f} s",
        f"{took['morag']:.2f} s",
        took["morag"] / took["nessie"],
        "≤ 1.0 s",
        took["morag"] <= 1.0,
    )
    found = {name: median(resident[name]) for name in NAMES}
    yield Figure(
        "RSS idle, after one response",
        f"{found['nessie']:.0f} MB",
        f"{found['morag']:.0f} MB",
        found["morag"] / found["nessie"],
        "≤ 80 MB",
        found["morag"] <= 80,
    )


def in_memory() -> Iterator[Figure]:
    with ExitStack() as stack:
        servers = _started(stack, lambda _: store_in_memory())
        # Objects of failed attempts by sixteen clients stay in the heap of Nessie, which is full
        # after 15,000 of their commits. So one client does most of the warm-up.
        _warm(servers, alone=16_000, together=4_000)
        tables = [table_to_read(n) for n in range(TABLES)]
        for figure, paths in (
            ("GET reference, 8 clients", ["trees/main"]),
            ("GET content, 8 clients", [f"trees/main/contents/{key}" for key in tables]),
        ):
            readers = {s.name: [Reader(s.address, paths) for _ in range(8)] for s in servers}
            yield _rates(figure, _alternate(servers, readers), 2.0)
        yield _rates("commits, 1 client", _commits(servers, "alone", 1), 2.0)
        together = _commits(servers, "together", 16)
        yield _rates("commits, 16 clients on one branch", together, 4.0)
        yield _latency(together)


def on_disk() -> Iterator[Figure]:
    with ExitStack() as stack:
        servers = _started(stack, store_on_disk)
        _warm(servers, alone=2_000, together=18_000)
        together = _commits(servers, "together", 16)
        yield _rates("commits, 16 clients, RocksDB, only Morag durable", together, 1.5)


def on_a_database() -> Iterator[Figure]:
    """Each server has its own database on one PostgreSQL, which syncs every commit to disk."""
    with ExitStack() as stack:
        server = stack.enter_context(postgres(sync=True))
        servers = _started(stack, lambda _: Store.on(new_store(server)))
        _warm(servers, alone=5_000, together=2_000)
        yield _rates("commits, 1 client, PostgreSQL", _commits(servers, "alone", 1), 2.0)
        together = _commits(servers, "together", 16)
        yield _rates("commits, 16 clients on one branch, PostgreSQL", together, 8.0)
        yield _latency(together)


PARTS: Final[Mapping[str, Callable[[], Iterator[Figure]]]] = {
    "start": start,
    "memory": in_memory,
    "rocksdb": on_disk,
    "postgres": on_a_database,
}


def _started(stack: ExitStack, store: Callable[[Path], Store]) -> list[Server]:
    servers = []
    for name in NAMES:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers.append(stack.enter_context(running(name, store(folder), folder)))
    for server in servers:
        make_tables(server)
    return servers


def _warm(servers: Sequence[Server], alone: int, together: int) -> None:
    """Make `alone` commits by one client and `together` by 16, on a branch that is not measured.

    A JVM is slow for the first 20,000 commits or so, which takes long on a database. Commits may
    fail here: a cold Nessie often times out after five seconds.
    """
    for server in servers:
        warming = committers(server, "warm", 16)
        paths = ["trees/main", *(f"trees/main/contents/{table_to_read(n)}" for n in range(TABLES))]
        readers = [Reader(server.address, paths) for _ in range(8)]
        drive(server.address, warming[:1], requests=alone)
        drive(server.address, warming, requests=together)
        drive(server.address, readers, requests=WARM_READS)


def _commits(servers: Sequence[Server], branch: str, clients: int) -> dict[str, Outcome]:
    """Commit to a new branch, each client to its own tables, and check that none is lost."""
    clients_by_server = {server.name: committers(server, branch, clients) for server in servers}
    before = {server.name: commits_on(server, branch) for server in servers}
    found = _alternate(servers, clients_by_server)
    for server in servers:
        made = sum(committer.commits for committer in clients_by_server[server.name])
        stored = commits_on(server, branch) - before[server.name]
        if stored != made:
            found[server.name].failures.append(f"{made} commits made, {stored} found".encode())
    return found


def _alternate(
    servers: Sequence[Server], clients: Mapping[str, Sequence[Client]]
) -> dict[str, Outcome]:
    found = {server.name: Outcome() for server in servers}
    for _ in range(ROUNDS):
        for server in servers:
            before = server.cpu_seconds()
            outcome = drive(server.address, clients[server.name], seconds=SLICE_SECONDS)
            outcome.server_cpu_seconds = server.cpu_seconds() - before
            found[server.name] += outcome
    return found


def _rates(name: str, found: Mapping[str, Outcome], times: float) -> Figure:
    ratio = found["morag"].rate / found["nessie"].rate
    failures = [
        f"{name}: {server}: {len(outcome.failures)} failures, the first: {outcome.failures[0]!r}"
        for server, outcome in found.items()
        if outcome.failures
    ]
    return Figure(
        name,
        _rate(found["nessie"]),
        _rate(found["morag"]),
        ratio,
        f"≥ {times} ×",
        ratio >= times,
        tuple(failures),
    )


def _latency(found: Mapping[str, Outcome]) -> Figure:
    p99 = {name: outcome.percentile(99) / 1000 for name, outcome in found.items()}
    ratio = p99["morag"] / p99["nessie"]
    return Figure(
        "  p99 of these",
        f"{p99['nessie']:.1f} ms",
        f"{p99['morag']:.1f} ms",
        ratio,
        "≤ 0.33 ×",
        ratio <= 1 / 3,
    )


def _rate(outcome: Outcome) -> str:
    """The rate with the CPU time per request, which varies less on a busy machine."""
    server = outcome.each_micros(outcome.server_cpu_seconds)
    generator = outcome.each_micros(outcome.cpu_seconds)
    return f"{outcome.rate:,.0f}/s (CPU: server {server:.0f} µs, client {generator:.0f} µs)"
