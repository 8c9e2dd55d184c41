"""Requests to DynamoDB: tried again where that is safe, told in our words where they fail."""

from __future__ import annotations

from itertools import islice
from random import uniform
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from morag.errors import (
    MoragError,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from morag.backend.dynamodb_items import Item

T = TypeVar("T")

READ_AT_ONCE: Final = 100
_WRITE_AT_ONCE: Final = 25
_TRIES: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
THROTTLED: Final = frozenset({
    "ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException",
    "Throttling", "TooManyRequestsException", "LimitExceededException",
})  # fmt: skip
"""Answers that say that nothing was done, so that anything may be tried again."""
CUT: Final = (NoConnection, HTTPClientError)
"""There was no connection, or it broke; if it broke, nobody knows when."""
_HELD: Final = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_REFUSED: Final = frozenset({"AccessDeniedException", "KMSAccessDeniedException"})
_CONDITION: Final = "ConditionalCheckFailedException"


class Requests:
    """The requests that the backend makes, each with its bounded retries."""

    def __init__(self, client: DynamoDBClient, place: str) -> None:
        self.client = client
        self._place = place

    def get(self, table: str, key: Item) -> Item | None:
        request = {"TableName": table, "Key": key, "ConsistentRead": True}
        return self.ask(self.client.get_item, request).get("Item")

    def get_all(self, table: str, keys: Sequence[Item]) -> list[Item]:
        """Up to a hundred items; those that are not there are left out."""
        found: list[Item] = []
        left: Any = {table: {"Keys": keys, "ConsistentRead": True}} if keys else {}
        for last in _tries():
            while left:
                answer = self.ask(self.client.batch_get_item, {"RequestItems": left})
                some, left = answer["Responses"].get(table, []), answer.get("UnprocessedKeys")
                found += some
                if not some:  # What did not fit is given at once; only the throttled has to wait.
                    break
            if not left:
                return found
            if last:
                break
        raise StoreThrottled(f"{self._place} takes no more reads for now")

    def write_if(self, call: Callable[..., Any], request: Item) -> bool:
        """False if the condition of the request does not hold."""
        try:
            self._ask(call, request, harmless=False)
        except ClientError as error:
            if _code(error) == _CONDITION:
                return False
            raise self.told(error) from error
        return True

    def write_all(self, table: str, changes: Iterable[Item]) -> None:
        """Unconditional puts and deletes, which do no harm when they are done twice."""
        changes = iter(changes)
        while some := list(islice(changes, _WRITE_AT_ONCE)):
            self._write_some({table: some})

    def pages(self, call: Callable[..., Any], request: Item) -> Iterator[list[Item]]:
        """What a scan or a query finds."""
        start: Item = {}
        while True:
            answer = self.ask(call, {**request, **start})
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def ask(self, call: Callable[..., T], request: Item) -> T:
        """The answer to a request that does no harm when it is made twice."""
        try:
            return self._ask(call, request, harmless=True)
        except ClientError as error:
            raise self.told(error) from error

    def told(self, error: Exception) -> MoragError:
        """What the driver says, in our words. Of a write that failed so, the outcome is unknown."""
        code, text = _code(error), f"{error}"
        if code in THROTTLED:
            return StoreThrottled(f"{self._place} takes no more requests for now ({text})")
        if isinstance(error, NoConnection):
            return StoreUnreachable(f"{self._place} does not answer ({text})")
        if code in _REFUSED:
            return StoreCannotWrite(f"{self._place} refuses ({text}). Check our permissions")
        if code == "ValidationException" and "item size" in text.lower():
            return RequestTooLarge(f"{self._place} does not take so large an item ({text})")
        return StoreBusy(f"{self._place} gave up ({text}); try again")

    def _write_some(self, left: Any) -> None:
        for last in _tries():
            answer = self.ask(self.client.batch_write_item, {"RequestItems": left})
            left = answer.get("UnprocessedItems")
            if not left:
                return
            if last:
                break
        raise StoreThrottled(f"{self._place} takes no more writes for now")

    def _ask(self, call: Callable[..., T], request: Item, harmless: bool) -> T:
        broken = False
        for last in _tries():
            try:
                return call(**request)
            except ClientError as error:
                again = _code(error) in THROTTLED | _HELD or (harmless and _is_its_fault(error))
                if last or not again:
                    raise
            except CUT as error:
                # Once: a connection that was idle may have been closed meanwhile.
                if broken or not harmless:
                    raise self.told(error) from error
                broken = True
            except BotoCoreError as error:
                raise self.told(error) from error
        raise AssertionError("the tries end by an error")


def _tries() -> Iterator[bool]:
    """Whether this try is the last; before each but the first comes a pause, of random length.

    Servers that were refused together must not come back together.
    """
    waiting, pause = Event(), _FIRST_PAUSE_SECONDS
    for left in reversed(range(_TRIES)):
        yield not left
        waiting.wait(uniform(0, pause))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _code(error: Exception) -> str:
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else ""


def _is_its_fault(error: ClientError) -> bool:
    return error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500
