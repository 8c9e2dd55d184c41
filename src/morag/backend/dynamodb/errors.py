"""The meanings of the errors of DynamoDB and of the AWS client."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import BotoCoreError, ClientError
from botocore.exceptions import ConnectionError as NoConnection

from morag.backend.driver_errors import ErrorTable, Meaning
from morag.errors import (
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

THROTTLED: Final = frozenset({
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException",
    "Throttling", "TooManyRequestsException", "LimitExceededException",
})  # fmt: skip
"""With these codes nothing was done, so any request may be retried."""


def code_of(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else ""


ERRORS: Final = ErrorTable(
    raised=(BotoCoreError, ClientError),
    code=code_of,
    meanings=(
        Meaning(
            StoreThrottled, "{address} rejects requests at the moment ({error})", codes=THROTTLED
        ),
        Meaning(StoreUnreachable, "{address} does not answer ({error})", types=(NoConnection,)),
        Meaning(
            StoreCannotWrite,
            "{address} refuses ({error}). Check the permissions of the server",
            codes=frozenset({"AccessDeniedException", "KMSAccessDeniedException"}),
        ),
        Meaning(
            RequestTooLarge,
            "{address} rejects an item of this size ({error})",
            codes=frozenset({"ValidationException"}),
            words=("item size", "Item size"),
        ),
        Meaning(StoreBusy, "{address} gave up ({error}); try again"),
    ),
)
