"""Where a job finds the catalog: a server, or a store that its processes open themselves."""

from __future__ import annotations

import platform
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

import morag
from morag.backend.urls import StoreUrl, open_backend
from morag.client import Client, ServerUnreachable
from morag.config import Settings
from morag.errors import StoreLocked, StoreUrlInvalid
from morag.masking import masked
from morag.spark.errors import CannotRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from morag.backend.base import Backend
    from morag.versions.repository import Repository

_ONE_PLACE: Final = (
    "Name the catalog by one option: 'uri' for a server, like http://127.0.0.1:19120, "
    "or 'store' for a store that all executors can open, like rocksdb:/data/catalog"
)


class Origin(Struct, frozen=True, kw_only=True):
    """A catalog by its `uri` or its `store`, as drivers and executors hand it to each other."""

    uri: str | None = None
    store: str | None = None
    repository_id: str = ""
    token: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        if (self.uri is None) == (self.store is None):
            raise CannotRun(_ONE_PLACE)
        if self.store is not None and StoreUrl.parse(self.store).scheme == "memory":
            raise CannotRun(
                "A store in memory belongs to one process, and Spark's executors are others; serve "
                "it (morag serve --store memory:) and name that server by 'uri', or keep the "
                "catalog in rocksdb:PATH or sqlite:PATH"
            )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Origin:
        """What the OPTIONS say. Others are left to whoever knows them.

        A secret can be given by a file. Only whoever has the options reads it, which is Spark's
        driver; the executors get an origin.
        """
        seconds = options.get("timeout_seconds", "60")
        try:
            timeout_seconds = float(seconds)
        except ValueError:
            raise CannotRun(f"Option 'timeout_seconds' must be a number, not {seconds!r}") from None
        return cls(
            uri=options.get("uri"),
            store=_given(options, "store"),
            repository_id=options.get("repository_id", ""),
            token=_given(options, "token"),
            ca_file=options.get("ca_file"),
            timeout_seconds=timeout_seconds,
        )

    def open(self, *, write: bool = False) -> Repository | Client:
        """The catalog, to read, or also to write. Stores that one process writes to can be read
        by others meanwhile."""
        if self.store is not None:
            return self._open_store(self.store, write)
        assert self.uri is not None, "there is one of both"
        client = Client(
            self.uri,
            token=self.token,
            ca_file=self.ca_file,
            timeout_seconds=self.timeout_seconds,
            connections=4,
        )
        try:
            client.config()
        except ServerUnreachable as error:
            client.close()
            raise CannotRun(
                f"{error}. Asked from the machine '{platform.node()}': a server must have an "
                "address that the driver and all executors reach"
            ) from error
        except BaseException:
            client.close()
            raise
        return client

    def _open_store(self, store: str, write: bool) -> Repository:
        settings = Settings(repository_id=self.repository_id)
        with _explained():
            return morag.open(store, settings, read_only=not write)

    def __str__(self) -> str:
        return masked(self.uri or self.store or "")

    def __repr__(self) -> str:
        return f"Origin({str(self)!r})"  # Without the token: this ends up in plans and logs.


OPTIONS: Final = frozenset({*Origin.__struct_fields__, "store_file", "token_file"})
"""Those by which a catalog is named. What is in a file does not show in Spark's plans and logs."""


@contextmanager
def opened(
    options: Mapping[str, str] | Origin, *, write: bool = False
) -> Iterator[Repository | Client]:
    """The catalog that options or an origin name, open as long as the `with` block."""
    origin = options if isinstance(options, Origin) else Origin.of(options)
    with origin.open(write=write) as catalog:
        yield catalog


@contextmanager
def opened_backend(origin: Origin) -> Iterator[Backend]:
    """The store itself, to read, below everything that gives its rows a meaning."""
    assert origin.store is not None, "a server shows no rows"
    with _explained():
        backend = open_backend(origin.store, read_only=True)
    with closing(backend):
        yield backend


def _given(options: Mapping[str, str], name: str) -> str | None:
    path = options.get(f"{name}_file")
    if path is None:
        return options.get(name)
    if name in options:
        raise CannotRun(f"Options '{name}' and '{name}_file' exclude each other")
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeError) as error:
        raise CannotRun(f"Option '{name}_file' cannot be read on the driver: {error}") from None


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except StoreLocked as error:
        raise CannotRun(
            f"{error}. To write while a server has the store, name the server by 'uri'"
        ) from error
    except StoreUrlInvalid as error:
        raise CannotRun(
            f"{error}. Asked from the machine '{platform.node()}': a store must be there for "
            "the driver and all executors, so on a cluster name a server by 'uri'"
        ) from error
