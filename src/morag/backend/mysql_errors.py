"""What it means to us when MariaDB or MySQL refuses, or does not answer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pymysql

from morag.backend.sql_remote import Broken, Restart
from morag.errors import (
    RepositoryCorrupt,
    RequestTooLarge,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DUPLICATE: Final = 1062
_DEADLOCK: Final = frozenset({1213, 3101})  # The second: undone while committing, by a cluster.
_LOCK_WAIT: Final = 1205
# Shutting down, killed, not in its cluster, cut on either side; 0 is how the driver says "closed".
_GONE: Final = frozenset({0, 1047, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2003, 2006, 2013})
THROTTLED: Final = frozenset({1040, 1203, 1226})
_CANNOT_WRITE: Final = frozenset({1021, 1044, 1114, 1142, 1143, 1290, 1792, 1836})
_DAMAGED: Final = frozenset({1034, 1054, 1146, 1194, 1712, 1877})
_TOO_LARGE: Final = frozenset({1153, 1406})


@contextmanager
def told() -> Iterator[None]:
    """Errors of the driver leave as ours."""
    try:
        yield
    except pymysql.MySQLError as error:
        if code(error) in _DEADLOCK:
            raise Restart(_text(error)) from error
        raise _meaning(error) from error


def code(error: BaseException) -> int:
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def _meaning(error: pymysql.MySQLError) -> Exception:
    number, text = code(error), _text(error)
    # A time-out of the driver is told like any other loss; what caused it tells the difference.
    if number == _LOCK_WAIT or isinstance(error.__context__, TimeoutError):
        return StoreBusy(f"The database took too long to answer ({text}); try again")
    if number in THROTTLED:
        return StoreThrottled(f"The database has too much to do ({text}); try again later")
    if number in _CANNOT_WRITE:
        return StoreCannotWrite(f"The database refuses to write ({text}); see to it there")
    if number in _DAMAGED:
        return RepositoryCorrupt(
            f"The database's tables are damaged or gone ({text}); restore them from a backup"
        )
    if number in _TOO_LARGE:
        return RequestTooLarge(f"The database takes nothing that long ({text})")
    if number in _GONE:
        return Broken(f"The connection to the database broke ({text}); try again")
    return ServiceUnavailable(f"The database refused ({text})")


def _text(error: pymysql.MySQLError) -> str:
    return " ".join(map(str, error.args)) or type(error).__name__
