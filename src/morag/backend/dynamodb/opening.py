"""Connects to DynamoDB, and creates or checks its tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, WaiterError
from msgspec import Struct

from morag.backend.dynamodb.calls import CUT
from morag.backend.dynamodb.errors import ERRORS, THROTTLED, code_of
from morag.errors import StoreUrlInvalid

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from morag.backend.urls import StoreUrl

_KEYS: Final = {"refs": {"k": "S"}, "objs": {"k": "S"}, "ref_log": {"r": "S", "k": "B"}}
"""The keys of each table, with their types: the partition key and the sort key."""

_SECONDS: Final = {"connect_timeout_seconds": 5.0, "timeout_seconds": 10.0}
_OPTIONS: Final = frozenset({*_SECONDS, "endpoint", "profile", "table_prefix", "connections"})
_CONNECTIONS: Final = 64
_MOST: Final = 3600  # Of seconds, and of connections.
_REGION: Final = re.compile(r"(?://)?([a-z0-9-]*)/?")
_NO_TABLE: Final = "ResourceNotFoundException"
_BEING_MADE: Final = "ResourceInUseException"


class Tables(Struct, frozen=True):
    """The names of the tables. Nessie has no log, so a reader may find none."""

    refs: str
    rows: str
    log: str | None


def connect(url: StoreUrl) -> DynamoDBClient:
    url.check_options(_OPTIONS)
    region = _REGION.fullmatch(url.rest)
    if region is None:
        raise StoreUrlInvalid(f"'{url}' names no region; write for example dynamodb://eu-west-1")
    connect_seconds, answer_seconds = (url.number(name, _SECONDS[name], _MOST) for name in _SECONDS)
    config = Config(
        connect_timeout=connect_seconds,
        read_timeout=answer_seconds,
        # `calls.py` retries. The driver would also repeat a write whose reply was lost.
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=max(1, int(url.number("connections", _CONNECTIONS, _MOST))),
        tcp_keepalive=True,
    )
    try:
        session = boto3.Session(profile_name=url.options.get("profile"))
        client: DynamoDBClient = session.client(
            "dynamodb",
            region_name=region[1] or None,
            endpoint_url=url.options.get("endpoint"),
            config=config,
        )
    except (BotoCoreError, ValueError) as error:
        raise StoreUrlInvalid(f"'{url}' cannot be used: {error}") from error
    return client


def open_tables(client: DynamoDBClient, url: StoreUrl) -> Tables:
    """Create and check the tables as Nessie does, and one more for the ref-log."""
    before = url.options.get("table_prefix")
    names = {table: f"{before}_{table}" if before else table for table in _KEYS}
    try:
        there = {table: _is_there(client, names[table], table, url) for table in _KEYS}
    except ERRORS.raised as error:
        raise _unusable(url, error) from error
    return Tables(names["refs"], names["objs"], names["ref_log"] if there["ref_log"] else None)


def _is_there(client: DynamoDBClient, name: str, table: str, url: StoreUrl) -> bool:
    keys = _KEYS[table]
    try:
        found = _described(client, name)
    except ClientError as error:
        if code_of(error) != _NO_TABLE:
            raise
        if url.read_only:
            if table == "ref_log":
                return False
            raise StoreUrlInvalid(
                f"There is no table '{name}' in '{url}'; name the region and prefix of a store"
            ) from error
        _make(client, name, keys)
        _await(client, name)
        found = _described(client, name)
    types = {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]}
    roles = [(each["AttributeName"], each["KeyType"]) for each in found["KeySchema"]]
    if roles != _roles(keys) or any(types[key] != type for key, type in keys.items()):
        raise StoreUrlInvalid(
            f"The table '{name}' in '{url}' is not a catalog's: its key is not {keys}; "
            "choose another table_prefix"
        )
    return True


def _described(client: DynamoDBClient, name: str) -> Any:
    found = client.describe_table(TableName=name)["Table"]
    if found["TableStatus"] == "CREATING":
        _await(client, name)
    return found


def _await(client: DynamoDBClient, name: str) -> None:
    """Wait until the table can be used. A table that is being created may seem to be missing."""
    attempts: Any = {"Delay": 1, "MaxAttempts": 60}
    client.get_waiter("table_exists").wait(TableName=name, WaiterConfig=attempts)


def _make(client: DynamoDBClient, name: str, keys: dict[str, str]) -> None:
    request: Any = {
        "TableName": name,
        "AttributeDefinitions": [
            {"AttributeName": key, "AttributeType": type} for key, type in keys.items()
        ],
        "KeySchema": [{"AttributeName": key, "KeyType": role} for key, role in _roles(keys)],
        "BillingMode": "PAY_PER_REQUEST",
    }
    try:
        client.create_table(**request)
    except ClientError as error:
        # Another server creates it at the same time.
        if code_of(error) != _BEING_MADE:
            raise


def _roles(keys: dict[str, str]) -> list[tuple[str, str]]:
    return list(zip(keys, ("HASH", "RANGE"), strict=False))


def _unusable(url: StoreUrl, error: Exception) -> Exception:
    is_temporary = isinstance(error, (*CUT, WaiterError))
    if isinstance(error, ClientError):
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        is_temporary = status >= 500 or code_of(error) in THROTTLED
    if is_temporary:
        return ERRORS.translate(error, f"DynamoDB at '{url}'")
    return StoreUrlInvalid(
        f"DynamoDB denies access to '{url}' ({error}); check the credentials, and that they may"
        " describe, create, read and write the tables"
    )
