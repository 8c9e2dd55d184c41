"""Measures start, memory and disk space, which are no rates."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import sleep
from typing import TYPE_CHECKING, Final

from bench.nessie.records import Figure
from bench.nessie.servers import running
from morag.load.data_set import DataSet
from morag.load.driver import Client, drive
from morag.load.request_bytes import FIRST_SNAPSHOT, commit_table
from morag.load.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.nessie.servers import Side
    from bench.nessie.stores import NewStore
    from morag.load.driver import Steps
    from morag.load.request_bytes import Branch

_STARTS: Final = 3
_SETTLE_SECONDS: Final = 1.0
_COMMITS: Final = 3_000


def start(store: str, new_store: NewStore, sides: Sequence[Side]) -> Iterator[Figure]:
    """Start on empty stores; memory is read a while after the first response."""
    seconds: dict[str, list[float]] = {side.name: [] for side in sides}
    resident: dict[str, list[float]] = {side.name: [] for side in sides}
    for _ in range(_STARTS):
        for side in sides:
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                server = stack.enter_context(running(side, new_store(folder), folder))
                sleep(_SETTLE_SECONDS)
                seconds[side.name].append(server.start_seconds)
                resident[side.name].append(server.resident_bytes())
    yield Figure(store, "start", "s", {name: median(each) for name, each in seconds.items()})
    yield Figure(store, "memory idle", "B", {name: median(each) for name, each in resident.items()})


def bytes_per_commit(store: str, new_store: NewStore, sides: Sequence[Side]) -> Iterator[Figure]:
    """How much the directory of a stopped server grows by commits to a branch of 30,000 keys."""
    grown = {}
    for side in sides:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            on_disk = new_store(folder)
            with running(side, on_disk, folder) as server:
                data = DataSet(Target(server.uri), "bench-")
                branch, namespaces = data.large, data.namespaces
            before = _size(folder)
            with running(side, on_disk, folder) as server:
                steps = _new_tables(Target(server.uri), branch, namespaces)
                outcome = drive(server.address, [Client(steps)])
                assert outcome.units == _COMMITS, outcome.shown_failures
            grown[side.name] = (_size(folder) - before) / _COMMITS
    yield Figure(store, "bytes per commit", "B", grown)


def _new_tables(target: Target, branch: Branch, namespaces: Sequence[str]) -> Steps:
    """Commit one new table at a time, each to another namespace."""
    for number in range(_COMMITS):
        namespace = namespaces[number % len(namespaces)]
        key, head = (namespace, f"new-{number}"), branch.hash
        yield commit_table(target, branch.name, head, *key, FIRST_SNAPSHOT + number, "null"), 1


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "store").rglob("*") if path.is_file())
