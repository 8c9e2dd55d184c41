"""Google's errors, told in our own words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.api_core.exceptions import (
    FailedPrecondition,
    Forbidden,
    GoogleAPICallError,
    GoogleAPIError,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
    from_grpc_status,
)
from google.auth.exceptions import GoogleAuthError

from morag.errors import (
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from morag.errors import MoragError

ERRORS: Final = (GoogleAPIError, GoogleAuthError)


def of_status(code: int, message: str) -> GoogleAPICallError:
    """The error of one row among many, which comes as a code."""
    error: GoogleAPICallError = from_grpc_status(code, message)  # type: ignore[no-untyped-call]
    return error


def told(error: Exception, place: str) -> MoragError:
    """The same, as what it means to a caller."""
    if isinstance(error, TooManyRequests):
        return StoreThrottled(f"Bigtable at {place} is overloaded; try again later ({error})")
    if isinstance(error, Forbidden | Unauthorized):
        return StoreCannotWrite(
            f"Bigtable at {place} does not let this account do it; grant it the role"
            f" bigtable.user ({error})"
        )
    if isinstance(error, FailedPrecondition):
        return StoreCannotWrite(
            f"Bigtable at {place} refuses; name an application profile that routes to one cluster"
            f" and allows single-row transactions ({error})"
        )
    if isinstance(error, NotFound):
        return RepositoryCorrupt(
            f"A table of Bigtable at {place} is gone; restore it from a backup ({error})"
        )
    if isinstance(error, ServiceUnavailable) or not isinstance(error, GoogleAPICallError):
        return StoreUnreachable(f"Bigtable at {place} does not answer ({error})")
    return StoreBusy(f"Bigtable at {place} did not do it in time ({error})")
