"""The meanings of the errors of Google's client libraries."""

from __future__ import annotations

from typing import Final

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

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RepositoryCorrupt,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

_NO_ANSWER: Final = "Bigtable at {address} does not answer ({error})"

ERRORS: Final = ErrorTable(
    raised=(GoogleAPIError, GoogleAuthError),
    meanings=(
        Meaning(
            StoreThrottled,
            "Bigtable at {address} is overloaded; try again later ({error})",
            types=(TooManyRequests,),
        ),
        Meaning(
            StoreCannotWrite,
            "Bigtable at {address} denies the request to this account; grant it the role"
            " bigtable.user ({error})",
            types=(Forbidden, Unauthorized),
        ),
        Meaning(
            StoreCannotWrite,
            "Bigtable at {address} refuses; name an application profile that routes to one cluster"
            " and allows single-row transactions ({error})",
            types=(FailedPrecondition,),
        ),
        Meaning(
            RepositoryCorrupt,
            "A table of Bigtable at {address} is gone; restore it from a backup ({error})",
            types=(NotFound,),
        ),
        Meaning(StoreUnreachable, _NO_ANSWER, types=(ServiceUnavailable,)),
        Meaning(
            StoreBusy,
            "Bigtable at {address} did not complete the request in time ({error})",
            types=(GoogleAPICallError,),
        ),
        Meaning(StoreUnreachable, _NO_ANSWER),
    ),
)


def error_of_status(code: int, message: str) -> GoogleAPICallError:
    """The error of one row among many, which the server reports as a code."""
    error: GoogleAPICallError = from_grpc_status(code, message)  # type: ignore[no-untyped-call]
    return error
