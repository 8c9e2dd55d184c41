"""A Git-like catalog for data lakes: branches, tags, commits and merges over tables and views.

    with morag.open("rocksdb:./data") as repo:
        repo.commit("main", [Put(key, content)], "create a table")

ARCHITECTURE.md is the map of the code; start reading at `versions/repository.py`.
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

__all__ = [  # Without `open`: a star import would replace the built-in.
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
    """Open the repository in a store. An empty store gets a new repository.

    The URL names the store, as `rocksdb:PATH` or `postgresql://HOST/DATABASE`, and the repository
    in it, as `?repository=ID`. Embedded stores sync every commit to disk before the call returns;
    `?sync=off` turns that off for speed.

    With `read_only` nothing is created, repaired or written, and the store may be open in other
    processes. If a server has a RocksDB store open, its state at the time of this call is read.
    """
    settings = StoreUrl.parse(url).settings(settings or Settings())
    backend = open_backend(url, read_only=read_only)
    try:
        return Repository(backend, settings, World())
    except BaseException:
        backend.close()
        raise
