"""Changes of a whole repository that servers do not expect: erase it, cut its history."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

from morag.backend.sqlite.shared_memory import is_in_use
from morag.backend.urls import StoreUrl, open_backend
from morag.errors import BadRequest, RepositoryMissing, StoreLocked
from morag.logic.history_cut import cut_history, plan_cut
from morag.logic.internal_refs import REFS, REPOSITORY
from morag.logic.refutation import refutes
from morag.logic.retry import Retries
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.maintenance.checking import CACHE_BYTES, check_not_empty
from morag.versions.repository import Repository
from morag.versions.resolve import object_id

if TYPE_CHECKING:
    from morag.backend.base import Backend
    from morag.config import Settings
    from morag.logic.history_cut import HistoryCut
    from morag.versions.world import World


def open_unused(url: str, settings: Settings) -> Backend:
    """Open a store with the repository, to change it. Refuses an embedded one that is in use.

    After an interrupted erase, the repository has objects, but no references any more.
    """
    check_unused(url)
    with closing(open_backend(url, read_only=True)) as existing:  # Nothing is created.
        check_not_empty(existing, settings)
    return open_backend(url)


def check_unused(url: str) -> None:
    """Refuse an SQLite store that is in use, although its files can be shared.

    RocksDB refuses that itself. A database server does not tell who else uses the repository.
    """
    parsed = StoreUrl.parse(url)
    if parsed.scheme == "sqlite" and sys.platform == "linux":
        path = parsed.path("for example sqlite:./morag.db")
        if path.exists() and is_in_use(path):
            raise StoreLocked(f"Another process has '{parsed}' open; stop it first")


def check_has_repository(backend: Backend, settings: Settings) -> None:
    if not backend.read_refs(settings.repository_id, [REFS, REPOSITORY]):
        raise RepositoryMissing(
            "The store holds no such repository; check its URL and the repository's id"
        )


def recreate(backend: Backend, settings: Settings, world: World) -> str:
    """Create an empty repository; return the name of its default branch."""
    return Repository(backend, settings, world).default_branch


def cut(
    backend: Backend, settings: Settings, world: World, hash: str, *, dry_run: bool
) -> HistoryCut:
    """Remove the ancestors of the commit from its history. See `logic/history_cut.py`."""
    persist = Persist(backend, ObjectCache(CACHE_BYTES), settings, world.clock_nanos, refutes)
    check_has_repository(backend, settings)
    if len(hash) != 64:
        raise BadRequest("The commit must be named by its whole hash, of 64 digits")
    if dry_run:
        return plan_cut(persist, backend, object_id(hash))
    retries = Retries(settings, world.monotonic, world.sleep, world.random)
    return cut_history(persist, backend, retries, object_id(hash))
