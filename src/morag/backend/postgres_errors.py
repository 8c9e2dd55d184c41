"""What it means to us when PostgreSQL or CockroachDB refuses, or does not answer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import errors

from morag.backend.sql_remote import Broken, Restart
from morag.errors import (
    RepositoryCorrupt,
    ServiceUnavailable,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

RESTARTED: Final = frozenset({"40001", "40P01"})
"""Serialization failure, which CockroachDB calls a restart, and deadlock: nothing was done."""

_CANNOT_WRITE: Final = frozenset({"25006", "42501", "53100", "53200", "58030"})
_THROTTLED: Final = frozenset({"53300", "53400"})
_DAMAGED: Final = frozenset({"42703", "42P01", "XX001", "XX002"})
_GONE: Final = ("08", "57P")  # The connection; shutting down, crashed or starting up.
_AMBIGUOUS: Final = "40003"
_NO_NUMBER: Final = "22P02"
_LATE: Final = frozenset({"55P03", "57014"})


class Taken(Exception):
    """A row that must be new was there already, so nothing was done."""


@contextmanager
def told() -> Iterator[None]:
    """Errors of the driver leave as ours."""
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate in RESTARTED:
            raise Restart(_text(error)) from error
        if error.sqlstate == _NO_NUMBER:
            raise Taken from error
        raise _meaning(error) from error


def _meaning(error: psycopg.Error) -> Exception:
    state, text = error.sqlstate or "", _text(error)
    if isinstance(error, errors._WaitTimeout) or state in _LATE:
        return StoreBusy(f"The database took too long to answer ({text}); try again")
    if state == _AMBIGUOUS:
        return StoreBusy(f"The database cannot tell what became of it ({text}); try again")
    if state.startswith(_GONE) or (not state and isinstance(error, psycopg.OperationalError)):
        return Broken(f"The connection to the database broke ({text}); try again")
    if state in _THROTTLED:
        return StoreThrottled(f"The database has too much to do ({text}); try again later")
    if state in _CANNOT_WRITE:
        return StoreCannotWrite(f"The database refuses to write ({text}); see to it there")
    if state in _DAMAGED:
        return RepositoryCorrupt(
            f"The database's tables are damaged or gone ({text}); restore them from a backup"
        )
    return ServiceUnavailable(f"The database refused ({text})")


def _text(error: psycopg.Error) -> str:
    """The first line: what follows shows the statement, which is of use to nobody else."""
    return str(error).partition("\n")[0].strip() or type(error).__name__
