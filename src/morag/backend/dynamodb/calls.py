"""Requests to DynamoDB, retried where that is safe."""

from __future__ import annotations

from itertools import islice
from random import uniform
from threading import Event
from typing import TYPE_CHECKING, Any, Final, TypeVar

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from morag.backend.dynamodb.errors import ERRORS, THROTTLED, code_of
from morag.errors import StoreThrottled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

    from morag.backend.dynamodb.records import Item

T = TypeVar("T")

READ_AT_ONCE: Final = 100
_WRITE_AT_ONCE: Final = 25
_ATTEMPTS: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
CUT: Final = (NoConnection, HTTPClientError)
"""There was no connection, or it broke at an unknown point."""
_HELD: Final = frozenset({"TransactionConflictException", "TransactionInProgressException"})
_CONDITION: Final = "ConditionalCheckFailedException"


class Requests:
    """The requests that the backend makes, each with its bounded retries."""

    def __init__(self, client: DynamoDBClient, address: str) -> None:
        self.client = client
        self._address = address

    def get(self, table: str, key: Item) -> Item | None:
        request = {"TableName": table, "Key": key, "ConsistentRead": True}
        return self.call(self.client.get_item, request).get("Item")

    def get_all(self, table: str, keys: Sequence[Item]) -> list[Item]:
        """Up to a hundred items; those that are not there are left out."""
        found: list[Item] = []
        left: Any = {table: {"Keys": keys, "ConsistentRead": True}} if keys else {}
        for last in _attempts():
            while left:
                answer = self.call(self.client.batch_get_item, {"RequestItems": left})
                some, left = answer["Responses"].get(table, []), answer.get("UnprocessedKeys")
                found += some
                if not some:  # Items that did not fit are read at once; only throttled ones wait.
                    break
            if not left:
                return found
            if last:
                break
        raise StoreThrottled(f"{self._address} rejects reads at the moment")

    def write_if(self, call: Callable[..., Any], request: Item) -> bool:
        """False if the condition of the request does not hold."""
        try:
            self._call(call, request, repeatable=False)
        except ClientError as error:
            if code_of(error) == _CONDITION:
                return False
            raise ERRORS.translate(error, self._address) from error
        return True

    def write_all(self, table: str, changes: Iterable[Item]) -> None:
        """Unconditional puts and deletes, which may be repeated."""
        changes = iter(changes)
        while some := list(islice(changes, _WRITE_AT_ONCE)):
            self._write_some({table: some})

    def pages(self, call: Callable[..., Any], request: Item) -> Iterator[list[Item]]:
        """The pages that a scan or a query finds."""
        start: Item = {}
        while True:
            answer = self.call(call, {**request, **start})
            yield answer["Items"]
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def call(self, call: Callable[..., T], request: Item) -> T:
        """The answer to a request that may be repeated."""
        try:
            return self._call(call, request, repeatable=True)
        except ClientError as error:
            raise ERRORS.translate(error, self._address) from error

    def _write_some(self, left: Any) -> None:
        for last in _attempts():
            answer = self.call(self.client.batch_write_item, {"RequestItems": left})
            left = answer.get("UnprocessedItems")
            if not left:
                return
            if last:
                break
        raise StoreThrottled(f"{self._address} rejects writes at the moment")

    def _call(self, call: Callable[..., T], request: Item, repeatable: bool) -> T:
        broken = False
        for last in _attempts():
            try:
                return call(**request)
            except ClientError as error:
                again = code_of(error) in THROTTLED | _HELD or (
                    repeatable and _is_server_error(error)
                )
                if last or not again:
                    raise
            except CUT as error:
                # Once: a connection that was idle may have been closed meanwhile.
                if broken or not repeatable:
                    raise ERRORS.translate(error, self._address) from error
                broken = True
            except BotoCoreError as error:
                raise ERRORS.translate(error, self._address) from error
        raise AssertionError("the last attempt raises")


def _attempts() -> Iterator[bool]:
    """Yields whether this is the last attempt, and pauses for a random time between attempts.

    Servers that were refused at the same time must not retry at the same time.
    """
    waiting, pause = Event(), _FIRST_PAUSE_SECONDS
    for left in reversed(range(_ATTEMPTS)):
        yield not left
        waiting.wait(uniform(0, pause))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _is_server_error(error: ClientError) -> bool:
    return error.response["ResponseMetadata"]["HTTPStatusCode"] >= 500
