"""The driver's errors, told in our own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

from morag.errors import (
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from morag.errors import MoragError

DRIVER_ERRORS: Final = (
    DriverException,
    NoHostAvailable,
    ConnectionException,
    ConnectionBusy,
    NoConnectionsAvailable,
    ErrorMessage,
    OSError,
)
_DENIED: Final = (Unauthorized, UnauthorizedErrorMessage, AuthenticationFailed)
_TOO_LARGE: Final = ("is too big", "is too large", "oversized mutation")
"""How it speaks of a request, or of what it would write, that is above a limit: only by words."""

_UNREACHABLE: Final = (
    NoHostAvailable,
    Unavailable,
    ConnectionException,
    ConnectionBusy,
    NoConnectionsAvailable,
    OSError,
)


def told(error: Exception, place: str) -> MoragError:
    """The same, as what it means to a caller."""
    said = causes(error)
    if any(isinstance(cause, OverloadedErrorMessage) for cause in said):
        return StoreThrottled(f"Cassandra at {place} is overloaded; try again later ({error})")
    if any(isinstance(cause, _DENIED) for cause in said):
        return StoreCannotWrite(
            f"Cassandra at {place} does not let this user do it; grant SELECT and MODIFY ({error})"
        )
    if isinstance(error, InvalidRequest) and any(text in str(error) for text in _TOO_LARGE):
        return RequestTooLarge(f"Cassandra at {place} does not take so large a row ({error})")
    if isinstance(error, InvalidRequest):
        return RepositoryCorrupt(
            f"Cassandra at {place} refuses a statement; a table was changed or dropped, restore it"
            f" from a backup ({error})"
        )
    if isinstance(error, _UNREACHABLE):
        return StoreUnreachable(f"Cassandra at {place} does not answer ({error})")
    return StoreBusy(f"Cassandra at {place} did not answer in time ({error})")


def causes(error: Exception) -> list[Exception]:
    """The error, or what each node said if all of them were tried."""
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        return [error, *error.errors.values()]
    return [error]
