"""The meanings of the errors of MariaDB, of MySQL and of the driver."""

from __future__ import annotations

from typing import Final

import pymysql

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.backend.sql import errors as sql_errors
from morag.errors import RequestTooLarge

DUPLICATE: Final = 1062
THROTTLED: Final = frozenset({1040, 1203, 1226})


def code_of(error: BaseException) -> int:
    number = error.args[0] if error.args else 0
    return number if isinstance(number, int) else 0


def _text(error: Exception) -> str:
    return " ".join(map(str, error.args)) or type(error).__name__


ERRORS: Final = ErrorTable(
    raised=(pymysql.MySQLError,),
    code=code_of,
    text=_text,
    # The driver reports its own time-out as a lost connection; only the context differs.
    causes=lambda error: (error.__context__,),
    meanings=(
        sql_errors.restart(1213, 3101),  # A deadlock; a commit that a cluster rolled back.
        sql_errors.late(1205),
        sql_errors.late(types=(TimeoutError,)),
        sql_errors.throttled(*THROTTLED),
        sql_errors.cannot_write(1021, 1044, 1114, 1142, 1143, 1290, 1792, 1836),
        sql_errors.damaged(1034, 1054, 1146, 1194, 1712, 1877),
        Meaning(
            RequestTooLarge,
            "The database rejects a value or statement of this length ({error})",
            codes=frozenset({1153, 1406}),
        ),
        # Shutting down, killed, not in its cluster, cut on either side. For a closed connection the
        # driver gives 0.
        sql_errors.broken(0, 1047, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2003, 2006, 2013),
        sql_errors.refused(),
    ),
)
