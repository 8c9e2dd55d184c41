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

from bench.nessie.dataset import committers, make_tables
from bench.nessie.load_generator import drive
from bench.nessie.servers import Store, running, store_in_memory, store_on_disk
from tests.stores.registry import DATABASES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.stores.databases import Database

WARM_SECONDS: Final = 3
SECONDS: Final = 8


@contextmanager
def _memory(_: Path) -> Iterator[Store]:
    yield store_in_memory()


@contextmanager
def _rocksdb(folder: Path) -> Iterator[Store]:
    yield store_on_disk(folder)


@contextmanager
def _sqlite(folder: Path) -> Iterator[Store]:
    yield Store(f"sqlite:{folder / 'store.db'}", {})


def _in(database: Database) -> Callable[[Path], AbstractContextManager[Store]]:
    @contextmanager
    def store(_: Path) -> Iterator[Store]:
        with database.start(True) as server:
            empty = database.new_store(server)
            os.environ.update(empty.environment)
            yield Store.on(empty)

    return store


STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Store]]]] = {
    "memory": _memory,
    "RocksDB": _rocksdb,
    "SQLite": _sqlite,
    **{database.title: _in(database) for database in DATABASES.values()},
}


def measured(name: str) -> str:
    """A line of the table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(STORES[name](folder))
        server = stack.enter_context(running("morag", store, folder))
        make_tables(server)
        cells = [f"{name:10}"]
        for clients in (1, 16):
            made = committers(server, f"by-{clients}", clients)
            drive(server.address, made, seconds=WARM_SECONDS)
            outcome = drive(server.address, made, seconds=SECONDS)
            if outcome.failures:
                raise RuntimeError(f"{name}: {outcome.failures[0]!r}")
            p99 = outcome.percentile(99) / 1000
            cells.append(f"{outcome.rate:,.0f}/s, p99 {p99:.0f} ms")
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("| store | 1 client | 16 clients on one branch |\n|---|---|---|")
    for wanted in sys.argv[1:] or STORES:
        print(measured(wanted), flush=True)
