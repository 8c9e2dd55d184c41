"""The meanings of the errors of MongoDB and of its driver."""

from __future__ import annotations

from typing import Final

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
)

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

DUPLICATE: Final = 11000

_GAVE_UP: Final = "The MongoDB database {address} gave up ({error}); try again"
_TOO_LARGE: Final = "The MongoDB database {address} rejects a row of this size ({error})"


def code_of(error: Exception) -> int | None:
    if isinstance(error, BulkWriteError):
        failed = error.details.get("writeErrors", ())
        return next((each["code"] for each in failed if each["code"] != DUPLICATE), None)
    return error.code if isinstance(error, OperationFailure) else None


ERRORS: Final = ErrorTable(
    raised=(PyMongoError, BSONError),
    code=code_of,
    meanings=(
        Meaning(
            StoreThrottled,
            "The MongoDB database {address} rejects requests at the moment ({error})",
            codes=frozenset({16500, 462}),  # From Cosmos DB, and from MongoDB's own rate limits.
        ),
        Meaning(StoreBusy, _GAVE_UP, types=(NotPrimaryError,)),
        Meaning(
            StoreUnreachable,
            "The MongoDB database {address} does not answer ({error})",
            types=(ConnectionFailure,),
        ),
        Meaning(
            StoreCannotWrite,
            "The MongoDB database {address} refuses ({error}). Check its disk and the permissions"
            " of the server",
            codes=frozenset({13, 14031, 96, 8000}),  # Not allowed; no disk space; failed for good.
        ),
        # The driver checks only whether a document fits into a message; the server checks the rest.
        Meaning(RequestTooLarge, _TOO_LARGE, types=(DocumentTooLarge,)),
        # For a document as it is sent, and as it would be after an update.
        Meaning(RequestTooLarge, _TOO_LARGE, codes=frozenset({10334, 17419, 17420})),
        Meaning(RequestTooLarge, _TOO_LARGE, codes=frozenset({2}), words=("too large",)),
        Meaning(
            RepositoryCorrupt,
            "The MongoDB database {address} holds a document that cannot be read ({error})",
            types=(BSONError,),
        ),
        Meaning(StoreBusy, _GAVE_UP),
    ),
)
