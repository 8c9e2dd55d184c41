"""The stores of a comparison. Each server gets an empty one of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct

from tests.nessie.server import rocksdb


class Store(Struct, frozen=True):
    """A store for one server, configured for Morag (`url`) and for Nessie (`properties`)."""

    url: str
    properties: Mapping[str, object]
    heap: str = "-Xmx2g"
    """The Java option for the heap size of Nessie."""


NewStore: TypeAlias = Callable[[Path], Store]
"""Make an empty store; the directory is there for its files."""


@contextmanager
def _memory() -> Iterator[NewStore]:
    # The data is on the heap. With 2 GB Nessie would spend its time on garbage collection.
    yield lambda _: Store("memory:", {}, heap="-Xmx6g")


@contextmanager
def _rocksdb() -> Iterator[NewStore]:
    """Morag syncs no commit to disk, as Nessie does."""
    yield lambda folder: _on_disk(folder, "?sync=off")


@contextmanager
def _rocksdb_durable() -> Iterator[NewStore]:
    """Morag syncs every commit to disk. Nessie cannot."""
    yield lambda folder: _on_disk(folder, "")


@contextmanager
def _postgres() -> Iterator[NewStore]:
    """Each server has its own database on one PostgreSQL, which syncs every commit to disk."""
    # Imported late: it needs a driver that users of `bench` may not have.
    from tests.stores.servers.postgres import new_store, postgres

    with postgres(sync=True) as server:

        def database(_: Path) -> Store:
            store = new_store(server)
            return Store(store.url, store.nessie)

        yield database


def _on_disk(folder: Path, options: str) -> Store:
    path = folder / "store"
    return Store(f"rocksdb:{path}{options}", rocksdb(path))


STORES: Final[Mapping[str, Callable[[], AbstractContextManager[NewStore]]]] = {
    "memory": _memory,
    "rocksdb": _rocksdb,
    "rocksdb-durable": _rocksdb_durable,
    "postgres": _postgres,
}
