"""RocksDB: a directory in Nessie's layout, which one process at a time can open."""

from typing import Final

from morag.backend.engines import Engine, Traits

ENGINE: Final = Engine(
    "morag.backend.rocksdb.backend:open_rocksdb",
    Traits(embedded=True, private=True, has_files=True),
)
