"""The meanings that errors of remote SQL databases share, and their messages."""

from __future__ import annotations

from morag.backend.driver_errors import Meaning
from morag.errors import (
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)


class Restart(Exception):
    """The database rolled back a transaction in favour of another one; repeat it."""


class Broken(StoreUnreachable):
    """The connection broke while it was used: another one may work."""


def restart(*codes: object) -> Meaning:
    return Meaning(Restart, "{error}", codes=frozenset(codes))


def late(*codes: object, types: tuple[type[BaseException], ...] = ()) -> Meaning:
    message = "The database took too long to answer ({error}); try again"
    return Meaning(StoreBusy, message, types, frozenset(codes))


def throttled(*codes: object) -> Meaning:
    message = "The database is overloaded ({error}); try again later"
    return Meaning(StoreThrottled, message, codes=frozenset(codes))


def cannot_write(*codes: object) -> Meaning:
    message = "The database refuses to write ({error}); check the database"
    return Meaning(StoreCannotWrite, message, codes=frozenset(codes))


def damaged(*codes: object) -> Meaning:
    message = "The database's tables are damaged or gone ({error}); restore them from a backup"
    return Meaning(RepositoryCorrupt, message, codes=frozenset(codes))


def broken(*codes: object, types: tuple[type[BaseException], ...] = ()) -> Meaning:
    message = "The connection to the database broke ({error}); try again"
    return Meaning(Broken, message, types, frozenset(codes))


def refused() -> Meaning:
    return Meaning(ServiceUnavailable, "The database refused ({error})")
