"""`Origin`: the server or store where a job finds its catalog, and how it is opened."""

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
    from morag.catalog import Catalog
    from morag.versions.repository import Repository

_ONE_OPTION: Final = (
    "Name the catalog by one option: 'uri' for a server, like http://127.0.0.1:19120, "
    "or 'store' for a store that all executors can open, like rocksdb:/data/catalog"
)


class Origin(Struct, frozen=True, kw_only=True):
    """The `uri` or the `store` of a catalog, in a form that a driver sends to its executors."""

    uri: str | None = None
    store: str | None = None
    repository_id: str = ""
    token: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 60.0

    def __post_init__(self) -> None:
        if (self.uri is None) == (self.store is None):
            raise CannotRun(_ONE_OPTION)
        if self.store is not None and StoreUrl.parse(self.store).scheme == "memory":
            raise CannotRun(
                "A store in memory belongs to one process, but Spark has several; serve "
                "it (morag serve --store memory:) and name that server by 'uri', or keep the "
                "catalog in rocksdb:PATH or sqlite:PATH"
            )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Origin:
        """The origin that the OPTIONS name; other options are ignored.

        A secret can be in a file. Only Spark's driver has the options and reads the file; the
        executors get an origin.
        """
        seconds = options.get("timeout_seconds", "60")
        try:
            timeout_seconds = float(seconds)
        except ValueError:
            raise CannotRun(f"Option 'timeout_seconds' must be a number, not {seconds!r}") from None
        return cls(
            uri=options.get("uri"),
            store=_secret(options, "store"),
            repository_id=options.get("repository_id", ""),
            token=_secret(options, "token"),
            ca_file=options.get("ca_file"),
            timeout_seconds=timeout_seconds,
        )

    def open(self, *, write: bool = False) -> Catalog:
        """Open the catalog, to read or also to write. Other processes can read a store while one
        process writes to it."""
        if self.store is not None:
            return self._open_store(self.store, write)
        assert self.uri is not None, "an origin has a uri or a store"
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
                f"{error}. This was tried on machine '{platform.node()}': a server must have "
                "an address that the driver and all executors reach"
            ) from error
        except BaseException:
            client.close()
            raise
        return client

    def _open_store(self, store: str, write: bool) -> Repository:
        settings = Settings(repository_id=self.repository_id)
        with _with_advice():
            return morag.open(store, settings, read_only=not write)

    def __str__(self) -> str:
        return masked(self.uri or self.store or "")

    def __repr__(self) -> str:
        return f"Origin({str(self)!r})"  # Plans and logs show this, so it has no token.


OPTIONS: Final = frozenset({*Origin.__struct_fields__, "store_file", "token_file"})
"""The options that name a catalog. A secret in a file does not appear in Spark's plans and logs."""


@contextmanager
def opened(options: Mapping[str, str] | Origin, *, write: bool = False) -> Iterator[Catalog]:
    """The catalog of options or an origin, open for the duration of the `with` block."""
    origin = options if isinstance(options, Origin) else Origin.of(options)
    with origin.open(write=write) as catalog:
        yield catalog


@contextmanager
def opened_backend(origin: Origin, *, write: bool = False) -> Iterator[Backend]:
    """The backend of the store, to read its raw rows, or also to write them."""
    assert origin.store is not None, "a server does not expose rows"
    with _with_advice():
        backend = open_backend(origin.store, read_only=not write)
    with closing(backend):
        yield backend


def _secret(options: Mapping[str, str], name: str) -> str | None:
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
def _with_advice() -> Iterator[None]:
    try:
        yield
    except StoreLocked as error:
        raise CannotRun(
            f"{error}. To write while a server has the store, name the server by 'uri'"
        ) from error
    except StoreUrlInvalid as error:
        if isinstance(error.__cause__, ImportError):
            raise CannotRun(f"{error}. It is missing on machine '{platform.node()}'") from error
        raise CannotRun(
            f"{error}. This was tried on machine '{platform.node()}': the driver and all "
            "executors must reach a store, so on a cluster name a server by 'uri'"
        ) from error
