"""The meanings of the errors of PostgreSQL, of CockroachDB and of the driver."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.backend.sql import errors as sql_errors
from morag.errors import StoreBusy

RESTARTED: Final = frozenset({"40001", "40P01"})
"""Serialization failure, which CockroachDB calls a restart, and deadlock: nothing was done."""

_CONNECTION: Final = "08"
_SHUTDOWN: Final = "57P"
"""Classes of states: the connection; shutting down, crashed or starting up."""


class Taken(Exception):
    """A row that must be new was stored already, so nothing was done."""


def _code(error: Exception) -> str:
    """The state, or its class if that has one meaning; empty if the server did not answer."""
    state: str = getattr(error, "sqlstate", None) or ""
    return next((each for each in (_CONNECTION, _SHUTDOWN) if state.startswith(each)), state)


def _text(error: Exception) -> str:
    """The first line: the others quote the statement."""
    return str(error).partition("\n")[0].strip() or type(error).__name__


ERRORS: Final = ErrorTable(
    raised=(psycopg.Error,),
    code=_code,
    text=_text,
    meanings=(
        sql_errors.restart(*RESTARTED),
        Meaning(Taken, "{error}", codes=frozenset({"22P02"})),  # The text is not a number.
        sql_errors.late(types=(errors._WaitTimeout,)),
        sql_errors.late("55P03", "57014"),
        Meaning(
            StoreBusy,
            "The database does not know the outcome of the statement ({error}); try again",
            codes=frozenset({"40003"}),
        ),
        sql_errors.broken(_CONNECTION, _SHUTDOWN),
        sql_errors.broken("", types=(psycopg.OperationalError,)),
        sql_errors.throttled("53300", "53400"),
        sql_errors.cannot_write("25006", "42501", "53100", "53200", "58030"),
        sql_errors.damaged("42703", "42P01", "XX001", "XX002"),
        sql_errors.refused(),
    ),
)
