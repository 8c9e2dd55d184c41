"""Opens the store of a job, on the driver and on executors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from morag.backend.urls import StoreUrl
from morag.config import Settings
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.spark.errors import CannotRun
from morag.spark.opening import opened_backend
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.backend.base import Backend
    from morag.spark.opening import Origin


def store_url(origin: Origin) -> StoreUrl:
    """The URL of the store. Raises an error if the origin names a server."""
    if origin.store is None:
        raise CannotRun(
            "This job works on the rows of a store, which no server exposes: name the server's "
            "store by 'store'"
        )
    return StoreUrl.parse(origin.store)


def settings_of(origin: Origin) -> Settings:
    return store_url(origin).settings(Settings(repository_id=origin.repository_id))


def persist_on(backend: Backend, settings: Settings) -> Persist:
    """The objects of the repository, which is not created.

    Ids of commits are not checked when they are read: jobs check each commit once.
    """
    settings = fitted_settings(settings, backend)
    return Persist(backend, ObjectCache(settings.cache_bytes), settings, World().clock_nanos)


@contextmanager
def opened_persist(origin: Origin) -> Iterator[Persist]:
    """The objects of the repository, to be read."""
    with opened_backend(origin) as backend:
        yield persist_on(backend, settings_of(origin))
