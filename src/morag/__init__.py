"""A Git-like catalog for data lakes: branches, tags, commits and merges over tables and views.

    with morag.open("rocksdb:./data") as repo:
        repo.commit("main", [Put(key, content)], "create a table")

ARCHITECTURE.md shows the house; `versions/repository.py` is its front door.
"""

from __future__ import annotations

from msgspec.structs import replace as replace

from morag.backend.urls import StoreUrl, open_backend
from morag.config import Settings
from morag.errors import (
    BadRequest,
    ContentNotFound,
    MoragError,
    ReferenceAlreadyExists,
    ReferenceConflict,
    ReferenceNotFound,
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreReadOnly,
)
from morag.model.conflicts import Conflict, ConflictType
from morag.model.content import UDF, DeltaLakeTable, IcebergTable, IcebergView, Namespace
from morag.model.keys import ContentKey
from morag.model.merging import MergeBehavior, MergeKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put, Unchanged
from morag.model.references import TagNote
from morag.versions.repository import Repository
from morag.versions.world import World

__all__ = [  # Not `open`, which a star import would put in place of Python's own.
    "UDF",
    "BadRequest",
    "CommitMeta",
    "Conflict",
    "ConflictType",
    "ContentKey",
    "ContentNotFound",
    "Delete",
    "DeltaLakeTable",
    "IcebergTable",
    "IcebergView",
    "MergeBehavior",
    "MergeKey",
    "MoragError",
    "Namespace",
    "Put",
    "ReferenceAlreadyExists",
    "ReferenceConflict",
    "ReferenceNotFound",
    "Repository",
    "RepositoryCorrupt",
    "ServiceUnavailable",
    "Settings",
    "StoreReadOnly",
    "TagNote",
    "Unchanged",
]


def open(url: str, settings: Settings | None = None, *, read_only: bool = False) -> Repository:
    """Open the repository in a store, making it one if it is empty.

    The URL names the store, as `rocksdb:PATH` or `postgresql://HOST/DATABASE`; `?repository=` says
    which repository in it. Embedded stores sync every commit to disk before it returns;
    `?sync=off` gives that up for speed.

    With `read_only` nothing is made, mended or written. Others may have the store open, also a
    server whose RocksDB it is: that one is shown as it was when it was opened.
    """
    settings = StoreUrl.parse(url).settings(settings or Settings())
    backend = open_backend(url, read_only=read_only)
    try:
        return Repository(backend, settings, World())
    except BaseException:
        backend.close()
        raise
