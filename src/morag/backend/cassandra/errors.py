"""The meanings of the errors of Cassandra's driver."""

from __future__ import annotations

from typing import Final

from cassandra import (
    AuthenticationFailed,
    DriverException,
    InvalidRequest,
    Unauthorized,
    Unavailable,
)
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, UnauthorizedErrorMessage

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)


def causes(error: Exception) -> list[Exception]:
    """The error, and the error of each node if all of them were tried."""
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        return [error, *error.errors.values()]
    return [error]


ERRORS: Final = ErrorTable(
    raised=(
        DriverException,
        NoHostAvailable,
        ConnectionException,
        ConnectionBusy,
        NoConnectionsAvailable,
        ErrorMessage,
        OSError,
    ),
    causes=causes,
    meanings=(
        Meaning(
            StoreThrottled,
            "Cassandra at {address} is overloaded; try again later ({error})",
            types=(OverloadedErrorMessage,),
        ),
        Meaning(
            StoreCannotWrite,
            "Cassandra at {address} denies the request to this user; grant SELECT and MODIFY"
            " ({error})",
            types=(Unauthorized, UnauthorizedErrorMessage, AuthenticationFailed),
        ),
        Meaning(
            StoreUnreachable,
            "Cassandra at {address} does not answer ({error})",
            types=(
                NoHostAvailable,
                Unavailable,
                ConnectionException,
                ConnectionBusy,
                NoConnectionsAvailable,
                OSError,
            ),
        ),
        Meaning(
            RequestTooLarge,
            "Cassandra at {address} rejects a row of this size ({error})",
            types=(InvalidRequest,),
            words=("is too big", "is too large", "oversized mutation"),
        ),
        Meaning(
            RepositoryCorrupt,
            "Cassandra at {address} refuses a statement; a table was changed or dropped, restore it"
            " from a backup ({error})",
            types=(InvalidRequest,),
        ),
        Meaning(StoreBusy, "Cassandra at {address} did not answer in time ({error})"),
    ),
)
