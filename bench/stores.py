"""`make bench-stores`: what each store that runs here takes, by one client and by 16 on one branch.

The databases are asked to sync what they acknowledge. DynamoDB Local, Bigtable's emulator and the
imitation of MongoDB keep all in memory: their figures tell what Morag costs, not what they would.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.original.generator import drive
from bench.original.scene import committers, make_tables
from bench.original.servers import Store, running, store_in_memory, store_on_disk
from tests.stores import engines
from tests.stores.servers.bigtable import Bigtable
from tests.stores.servers.cassandra import Cassandra
from tests.stores.servers.dynamodb import dynamodb_local
from tests.stores.servers.mariadb import mariadb
from tests.stores.servers.mongodb import mongo_imitation
from tests.stores.servers.postgres import postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

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


@contextmanager
def _postgres(_: Path) -> Iterator[Store]:
    with postgres(sync=True) as server:
        yield Store.on(engines.on_postgres(server))


@contextmanager
def _mariadb(_: Path) -> Iterator[Store]:
    with mariadb(sync=True) as server:
        yield Store.on(engines.on_mariadb(server))


@contextmanager
def _cassandra(folder: Path) -> Iterator[Store]:
    with Cassandra(folder / "cassandra", durable=True) as server:
        yield Store.on(engines.on_cassandra(server))


@contextmanager
def _dynamodb(_: Path) -> Iterator[Store]:
    with dynamodb_local() as server:
        engine = engines.on_dynamodb(server)
        os.environ.update(engine.environment)
        yield Store.on(engine)


@contextmanager
def _mongodb(_: Path) -> Iterator[Store]:
    with mongo_imitation() as server:
        yield Store.on(engines.on_mongodb(server))


@contextmanager
def _bigtable(_: Path) -> Iterator[Store]:
    with Bigtable() as server:
        yield Store.on(engines.on_bigtable(server))


STORES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Store]]]] = {
    "memory": _memory,
    "RocksDB": _rocksdb,
    "SQLite": _sqlite,
    "PostgreSQL": _postgres,
    "MariaDB": _mariadb,
    "Cassandra": _cassandra,
    "DynamoDB": _dynamodb,
    "MongoDB": _mongodb,
    "Bigtable": _bigtable,
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
