"""The declaration of a database by a module in `servers`, and empty stores in databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import count
from typing import Any, Final

from msgspec import Struct

from tests.server_process import Address

_NUMBERS: Final = count()


class EmptyStore(Struct, frozen=True):
    """A new store, with its URL for Morag and its properties for Nessie.

    The URL is `before` + address + `after`, so that a proxy's address can replace the database's.
    """

    address: Address
    before: str
    after: str
    nessie: Mapping[str, object]
    """Empty where Nessie does not run on the database."""
    environment: Mapping[str, str]

    @classmethod
    def at(
        cls,
        port: int,
        url: str,
        nessie: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> EmptyStore:
        before, after = url.split(f"127.0.0.1:{port}")
        return cls(("127.0.0.1", port), before, after, nessie or {}, environment or {})

    @property
    def url(self) -> str:
        return self.url_at(self.address)

    def url_at(self, address: Address, *options: str) -> str:
        host, port = address
        url = f"{self.before}{host}:{port}{self.after}"
        if not options:
            return url
        return f"{url}{'&' if '?' in url else '?'}{'&'.join(options)}"


class Database(Struct, frozen=True):
    """The value of `DATABASE` in a module of `servers`."""

    title: str
    start: Callable[[bool], AbstractContextManager[Any]]
    """Run a server; with True it syncs acknowledged writes, if it can."""
    new_store: Callable[[Any], EmptyStore]
    """Make an empty store in the server."""
    histories: int
    """The number of random histories of the kernel's tests that take about 20 s."""
    runs_nessie: bool = False


def new_name() -> str:
    """A name for a database, keyspace, project or prefix that no test has used."""
    return f"catalog{next(_NUMBERS)}"
