"""`make bench-stores`: commits per second on each store, by one client and by 16 on one branch.

The databases sync what they acknowledge, except for imitations and emulators, which keep everything
in memory: their figures show the cost of Morag, not that of the real database.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.nessie.servers import Side, running
from bench.nessie.stores import Store
from morag.load.data_set import DataSet
from morag.load.driver import drive
from morag.load.target import Target
from morag.load.workloads import WORKLOADS
from tests.stores.registry import DATABASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.stores.databases import Database

WARM_SECONDS: Final = 3
SECONDS: Final = 8


@contextmanager
def _memory(_: Path) -> Iterator[str]:
    yield "memory:"


@contextmanager
def _rocksdb(folder: Path) -> Iterator[str]:
    yield f"rocksdb:{folder / 'store'}"


@contextmanager
def _sqlite(folder: Path) -> Iterator[str]:
    yield f"sqlite:{folder / 'store.db'}"


def _in(database: Database) -> Callable[[Path], AbstractContextManager[str]]:
    @contextmanager
    def store(_: Path) -> Iterator[str]:
        with database.start(True) as server:
            empty = database.new_store(server)
            os.environ.update(empty.environment)
            yield empty.url

    return store


STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[str]]]] = {
    "memory": _memory,
    "RocksDB": _rocksdb,
    "SQLite": _sqlite,
    **{database.title: _in(database) for database in DATABASES.values()},
}


def measured(name: str) -> str:
    """A line of the table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = Store(stack.enter_context(STORES[name](folder)), {})
        server = stack.enter_context(running(Side.morag(), store, folder))
        data = DataSet(Target(server.uri), "bench-")
        cells = [f"{name:10}"]
        for clients in (1, 16):
            load = WORKLOADS["commit"].prepare(data, clients)
            drive(server.address, load.clients, WARM_SECONDS)
            outcome = drive(server.address, load.clients, SECONDS)
            if outcome.failures:
                raise RuntimeError(f"{name}: {outcome.shown_failures[0]}")
            p99 = outcome.percentile_seconds(99) * 1e3
            cells.append(f"{outcome.rate:,.0f}/s, p99 {p99:.0f} ms")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("| store | 1 client | 16 clients on one branch |\n|---|---|---|")
    for wanted in sys.argv[1:] or STORES:
        print(measured(wanted), flush=True)
