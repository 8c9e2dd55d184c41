"""DynamoDB, on Amazon's DynamoDB Local; an interceptor gives the answers that it lacks."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from morag.backend.base import KeepsRefLog, ObjId, Ref
from morag.backend.dynamodb.backend import LIMITS
from morag.backend.urls import open_backend
from morag.errors import (
    MoragError,
    RepositoryCorrupt,
    RequestTooLarge,
    StoreBusy,
    StoreCannotWrite,
    StoreThrottled,
    StoreUnreachable,
    StoreUrlInvalid,
)
from morag.testing.backend_contract import (
    MAIN,
    MOVED,
    PREVIOUS,
    DurableBackendContract,
    RefLogContract,
    a_custom_row,
    a_row,
    an_id,
    at_once,
    create,
    line,
    move,
    read,
)
from tests.stores.conftest import Reopening
from tests.stores.databases import new_name
from tests.stores.servers.dynamodb import (
    CREDENTIALS,
    Interceptor,
    dynamodb_local,
    intercepting,
    refusal,
    url_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mypy_boto3_dynamodb import DynamoDBClient

    from morag.backend.base import Backend
    from morag.testing.backend_contract import FullBackend
    from tests.stores.servers.dynamodb import DynamoDBLocal

pytestmark = pytest.mark.stores

SERVER = "dynamodb"

BROKEN = refusal("InternalServerError", 500)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix() -> str:
    """A prefix of tables that no other test uses."""
    return new_name()


@pytest.fixture
def url(server: DynamoDBLocal, prefix: str) -> str:
    return server.url(prefix)


@pytest.fixture
def dynamodb(server: DynamoDBLocal) -> Iterator[DynamoDBClient]:
    """A client that bypasses the backend."""
    endpoint = f"http://127.0.0.1:{server.port}"
    client = boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=endpoint)
    with closing(client):
        yield client


@pytest.fixture
def interceptor(server: DynamoDBLocal) -> Iterator[Interceptor]:
    with intercepting(server) as interceptor:
        yield interceptor


@pytest.fixture
def intercepted(interceptor: Interceptor, prefix: str) -> Iterator[FullBackend]:
    """A backend that connects to the interceptor."""
    reopening = Reopening(url_of(interceptor.port, prefix))
    interceptor.seen.clear()
    yield reopening.backend
    reopening.backend.close()


class TestDynamoDB(DurableBackendContract, RefLogContract):
    """The contract of backends."""

    def test_a_large_row_is_stored(self, backend: Backend) -> None:
        """The limit is smaller than that of other databases."""
        big = a_row("big", "s", size_bytes=LIMITS.row_bytes - 8)
        assert len(big.data) == LIMITS.row_bytes
        assert backend.insert_rows("r" * 1000, [big]) == {big.id}
        assert backend.read_rows("r" * 1000, [big.id]) == {big.id: big}

    def test_a_row_that_is_too_big_is_reported(self, backend: Backend) -> None:
        with pytest.raises(RequestTooLarge, match="an item of this size"):
            backend.insert_rows("r", [a_row("big", "s", size_bytes=410 << 10)])

    def test_large_rows_that_exceed_one_answer_are_read(self, backend: Backend) -> None:
        rows = {row.id: row for row in (a_row(n, "s", size_bytes=390 << 10) for n in range(45))}
        assert backend.insert_rows("r", list(rows.values())) == rows.keys()
        assert backend.read_rows("r", list(rows)) == rows

    def test_a_repeated_id_is_read_once(self, backend: Backend) -> None:
        backend.insert_rows("r", [a_row(1)])
        assert backend.read_rows("r", [an_id(1), an_id(1), an_id(2)]) == {an_id(1): a_row(1)}
        backend.delete_rows("r", [an_id(1), an_id(1)])
        assert backend.read_rows("r", [an_id(1)]) == {}


class TestItems:
    def test_refs_are_written_as_nessie_writes_them(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        create(backend, Ref("plain", an_id(1)))
        create(backend, Ref("full", an_id(1), True, 5, an_id("info"), PREVIOUS[:1]))
        stored = {item["k"]["S"]: item for item in _all(dynamodb, f"{prefix}_refs")}
        assert stored["r:plain"] == {
            "k": {"S": "r:plain"},
            "p": {"B": an_id(1)},
            "d": {"BOOL": False},
        }
        full = stored["r:full"]
        assert full.keys() == {"k", "p", "d", "c", "e", "h"}
        assert (full["c"], full["d"], full["e"]) == (
            {"S": "5"},
            {"BOOL": True},
            {"B": an_id("info")},
        )

    def test_rows_are_written_as_nessie_writes_them(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        row, custom = a_row(1, micros=7), a_custom_row(b"custom", "v1", micros=8)
        backend.insert_rows("", [row, custom])
        stored = {item["k"]["S"]: item for item in _all(dynamodb, f"{prefix}_objs")}
        assert stored[f":{row.id.hex()}"] == {
            "k": {"S": f":{row.id.hex()}"},
            "y": {"S": "v"},
            "z": {"S": "7"},
            "v": {"B": row.data + b"\x58\x00"},
        }
        assert stored[f":{b'custom'.hex()}"]["V"] == {"S": "v1"}

    def test_attributes_that_nessie_omits_have_defaults(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        row = a_row(1, micros=0)
        item: Any = {"k": {"S": f"r:{row.id.hex()}"}, "y": {"S": "v"}}
        item["v"] = {"B": row.data + b"\x58\x00"}
        dynamodb.put_item(TableName=f"{prefix}_objs", Item=item)
        assert backend.read_rows("r", [row.id]) == {row.id: row}

    def test_a_damaged_record_is_named(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        dynamodb.put_item(TableName=f"{prefix}_refs", Item={"k": {"S": "r:torn"}})
        dynamodb.put_item(TableName=f"{prefix}_objs", Item={"k": {"S": "r:0a"}, "y": {"S": "v"}})
        dynamodb.put_item(TableName=f"{prefix}_objs", Item={"k": {"S": "s:xy"}, "y": {"S": "v"}})
        with pytest.raises(RepositoryCorrupt, match="torn"):
            backend.read_refs("r", ["torn"])
        with pytest.raises(RepositoryCorrupt, match="0a"):
            backend.read_rows("r", [ObjId(b"\x0a")])
        with pytest.raises(RepositoryCorrupt, match="xy"):
            list(backend.scan_rows("s"))

    def test_a_row_is_refreshed_in_place(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        backend.insert_rows("r", [a_row(1, micros=1)])
        backend.insert_rows("r", [a_row(1, micros=2)])
        (stored,) = _all(dynamodb, f"{prefix}_objs")
        assert stored["z"] == {"S": "2"}


class TestRequests:
    def test_every_read_is_strongly_consistent(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        intercepted.read_refs("r", ["a"])
        intercepted.read_refs("r", ["a", "b"])
        intercepted.read_rows("r", [an_id(1)])
        intercepted.read_rows("r", [an_id(1), an_id(2)])
        intercepted.read_log("r", None, 9)
        list(intercepted.scan_rows("r"))
        assert [name for name, _ in interceptor.seen] == [
            "GetItem", "BatchGetItem", "GetItem", "BatchGetItem", "Query", "Scan",
        ]  # fmt: skip
        for name, request in interceptor.seen:
            read = request
            if name == "BatchGetItem":
                (read,) = request["RequestItems"].values()
            assert read["ConsistentRead"] is True, name

    def test_a_row_that_is_deleted_while_it_is_refreshed_is_written_again(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        intercepted.insert_rows("r", [a_row(1)])
        interceptor.seen.clear()
        interceptor.next_time("UpdateItem", refusal("ConditionalCheckFailedException"))
        assert intercepted.insert_rows("r", [a_row(1)]) == frozenset()
        assert [name for name, _ in interceptor.seen] == ["PutItem", "UpdateItem"] * 2


class TestThrottling:
    KINDS = (
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
    )

    @pytest.mark.parametrize("kind", [*KINDS, "TransactionConflictException"])
    def test_a_throttled_call_is_retried(
        self, intercepted: FullBackend, interceptor: Interceptor, kind: str
    ) -> None:
        for operation in ("PutItem", "GetItem", "UpdateItem", "Scan", "BatchGetItem"):
            interceptor.next_time(operation, *[refusal(kind)] * 2)
        assert create(intercepted, MAIN)
        assert read(intercepted, MAIN.name) == MAIN
        assert intercepted.insert_rows("r", [a_row(1)]) == {an_id(1)}
        assert intercepted.insert_rows("r", [a_row(1), a_row(2)]) == {an_id(2)}
        assert len(intercepted.read_rows("r", [an_id(1), an_id(2)])) == 2
        assert len(list(intercepted.scan_rows("r"))) == 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_throttled_call_is_retried_a_few_times_only(
        self, intercepted: FullBackend, interceptor: Interceptor, kind: str
    ) -> None:
        interceptor.next_time("PutItem", *[refusal(kind)] * 99)
        with pytest.raises(StoreThrottled):
            create(intercepted, MAIN)
        assert 1 < interceptor.count("PutItem") < 20
        assert intercepted.read_refs("r", [MAIN.name]) == {}

    def test_unprocessed_keys_of_a_batch_are_requested_again(
        self, intercepted: FullBackend, interceptor: Interceptor, prefix: str
    ) -> None:
        intercepted.insert_rows("r", [a_row(n) for n in range(3)])
        table, key = f"{prefix}_objs", {"k": {"S": f"r:{an_id(0).hex()}"}}
        keys = {table: {"Keys": [key], "ConsistentRead": True}}
        nothing = (200, {"Responses": {}, "UnprocessedKeys": keys})
        interceptor.next_time("BatchGetItem", nothing, nothing)
        assert intercepted.read_rows("r", [an_id(0), an_id(1)]).keys() == {an_id(0)}
        assert interceptor.count("BatchGetItem") == 3
        left = {table: [{"DeleteRequest": {"Key": key}}]}
        interceptor.next_time("BatchWriteItem", *[(200, {"UnprocessedItems": left})] * 2)
        intercepted.delete_rows("r", [an_id(0)])
        assert interceptor.count("BatchWriteItem") == 3
        assert intercepted.read_rows("r", [an_id(0)]) == {}

    def test_a_batch_without_progress_is_given_up(
        self, intercepted: FullBackend, interceptor: Interceptor, prefix: str
    ) -> None:
        keys = {f"{prefix}_objs": {"Keys": [{"k": {"S": "r:00"}}]}}
        interceptor.next_time(
            "BatchGetItem", *[(200, {"Responses": {}, "UnprocessedKeys": keys})] * 99
        )
        with pytest.raises(StoreThrottled):
            intercepted.read_rows("r", [an_id(0), an_id(1)])
        left = {f"{prefix}_objs": [{"DeleteRequest": {"Key": {"k": {"S": "r:00"}}}}]}
        interceptor.next_time("BatchWriteItem", *[(200, {"UnprocessedItems": left})] * 99)
        with pytest.raises(StoreThrottled):
            intercepted.delete_rows("r", [an_id(0)])


class TestBrokenConnections:
    @pytest.mark.parametrize(
        "cut", [Interceptor.CUT_BEFORE, Interceptor.CUT_AFTER, BROKEN], ids=str
    )
    def test_a_read_is_retried(
        self, intercepted: FullBackend, interceptor: Interceptor, cut: Any
    ) -> None:
        create(intercepted, MAIN)
        interceptor.next_time("GetItem", cut)
        assert read(intercepted, MAIN.name) == MAIN
        assert interceptor.count("GetItem") == 2

    @pytest.mark.parametrize(
        ("cut", "made"),
        [(Interceptor.CUT_BEFORE, False), (Interceptor.CUT_AFTER, True), (BROKEN, False)],
        ids=str,
    )
    def test_a_swap_is_made_once_or_not_at_all(
        self, intercepted: FullBackend, interceptor: Interceptor, cut: Any, made: bool
    ) -> None:
        create(intercepted, MAIN)
        interceptor.seen.clear()
        interceptor.next_time("PutItem", cut)
        with pytest.raises(StoreBusy):
            move(intercepted, MAIN, MOVED)
        assert interceptor.count("PutItem") == 1
        assert read(intercepted, MAIN.name) == (MOVED if made else MAIN)

    def test_rows_whose_reply_is_lost_are_not_new_any_more(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        rows = [a_row(n) for n in range(5)]
        interceptor.next_time("PutItem", Interceptor.CUT_AFTER)
        with pytest.raises(StoreBusy):
            intercepted.insert_rows("r", rows)
        assert interceptor.count("PutItem") == 5, "all rows must be sent"
        assert intercepted.insert_rows("r", [*rows, a_row(5)]) == {an_id(5)}

    def test_lines_of_the_log_whose_reply_is_lost_are_there_once(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        interceptor.next_time("BatchWriteItem", Interceptor.CUT_AFTER)
        intercepted.append_log("r", [line(1), line(2)])
        assert intercepted.read_log("r", None, 9) == [line(2), line(1)]

    def test_a_server_that_comes_back_is_found_again(self, prefix: str, tmp_path: Path) -> None:
        with dynamodb_local(tmp_path) as server:
            port = server.port
            backend = open_backend(url_of(port, prefix, "connect_timeout_seconds=1"))
            create(backend, MAIN)
        for ask in (
            lambda: read(backend, MAIN.name),
            lambda: move(backend, MAIN, MOVED),
            lambda: backend.insert_rows("r", [a_row(1), a_row(2)]),
            lambda: list(backend.scan_rows("r")),
        ):
            with pytest.raises(StoreUnreachable, match="does not answer"):
                ask()
        with dynamodb_local(tmp_path, port), closing(backend):
            assert read(backend, MAIN.name) == MAIN
            assert move(backend, MAIN, MOVED)

    def test_waiting_for_an_answer_is_bounded(self, interceptor: Interceptor, prefix: str) -> None:
        with closing(
            open_backend(url_of(interceptor.port, prefix, "timeout_seconds=0.5"))
        ) as backend:
            create(backend, MAIN)
            interceptor.seen.clear()
            interceptor.next_time("PutItem", Interceptor.LATE)
            with pytest.raises(StoreBusy):
                move(backend, MAIN, MOVED)
            assert interceptor.count("PutItem") == 1
            interceptor.wake()


class TestOpening:
    @pytest.mark.parametrize(
        "text",
        [
            "dynamodb://Nowhere/at/all",
            "dynamodb://eu-west-1?endpoint=nonsense",
            "dynamodb://eu-west-1?consistent=off",
            "dynamodb://eu-west-1?timeout_seconds=soon",
            "dynamodb://eu-west-1?profile=nobody",
        ],
    )
    def test_an_invalid_url_is_refused(self, text: str) -> None:
        with pytest.raises(StoreUrlInvalid):
            open_backend(text)

    def test_a_missing_region_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
        with pytest.raises(StoreUrlInvalid, match="region"):
            open_backend("dynamodb:")

    def test_missing_credentials_are_reported(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in CREDENTIALS:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        with pytest.raises(StoreUrlInvalid, match="check the credentials"):
            open_backend(url)

    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (refusal("UnrecognizedClientException"), StoreUrlInvalid),
            (refusal("AccessDeniedException"), StoreUrlInvalid),
            (refusal("ThrottlingException"), StoreThrottled),
            (BROKEN, StoreBusy),
            (Interceptor.CUT_BEFORE, StoreBusy),
        ],
        ids=str,
    )
    def test_denied_access_is_explained(
        self, interceptor: Interceptor, prefix: str, answer: Any, error: type[MoragError]
    ) -> None:
        interceptor.next_time("DescribeTable", answer)
        with pytest.raises(error) as raised:
            open_backend(url_of(interceptor.port, prefix))
        assert type(raised.value) is error

    def test_a_port_without_a_server_is_reported(
        self, interceptor: Interceptor, prefix: str
    ) -> None:
        port = interceptor.port
        interceptor.close()
        with pytest.raises(StoreUnreachable, match="does not answer"):
            open_backend(url_of(port, prefix))

    def test_revoked_permissions_are_reported_to_operators(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        interceptor.next_time("PutItem", refusal("AccessDeniedException"))
        with pytest.raises(StoreCannotWrite):
            create(intercepted, MAIN)

    def test_several_servers_may_create_the_tables_at_once(self, url: str) -> None:
        backends = at_once(open_backend, [url] * 4)
        assert at_once(lambda backend: create(backend, MAIN), backends).count(True) == 1
        for backend in backends:
            backend.close()

    def test_tables_are_made_as_nessie_makes_them(
        self, backend: FullBackend, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        backend.read_refs("r", [MAIN.name])
        for table in ("refs", "objs"):
            found = dynamodb.describe_table(TableName=f"{prefix}_{table}")["Table"]
            assert found["KeySchema"] == [{"AttributeName": "k", "KeyType": "HASH"}]
            assert found["AttributeDefinitions"] == [{"AttributeName": "k", "AttributeType": "S"}]
            assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"

    @pytest.mark.parametrize("table", ["refs", "objs", "ref_log"])
    @pytest.mark.parametrize(("key", "type"), [("id", "S"), ("k", "N")])
    def test_the_table_of_another_program_is_not_changed(
        self, url: str, dynamodb: DynamoDBClient, prefix: str, table: str, key: str, type: Any
    ) -> None:
        dynamodb.create_table(
            TableName=f"{prefix}_{table}",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": type}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        with pytest.raises(StoreUrlInvalid, match="not a catalog's"):
            open_backend(url)

    def test_a_reader_makes_no_tables(
        self, url: str, dynamodb: DynamoDBClient, prefix: str
    ) -> None:
        with pytest.raises(StoreUrlInvalid, match="There is no table"):
            open_backend(url, read_only=True)
        assert not _tables(dynamodb, prefix)
        with closing(open_backend(url)) as backend:
            create(backend, MAIN)
        dynamodb.delete_table(TableName=f"{prefix}_ref_log")  # Nessie has no ref-log.
        with closing(open_backend(url, read_only=True)) as reader:
            assert read(reader, MAIN.name) == MAIN
            assert isinstance(reader, KeepsRefLog)
            assert reader.read_log("r", None, 9) == []
        assert _tables(dynamodb, prefix) == {f"{prefix}_objs", f"{prefix}_refs"}


def _all(client: DynamoDBClient, table: str) -> list[Any]:
    return list(client.scan(TableName=table)["Items"])


def _tables(client: DynamoDBClient, prefix: str) -> set[str]:
    pages = client.get_paginator("list_tables").paginate()
    names = [name for page in pages for name in page["TableNames"]]
    return {name for name in names if name.startswith(f"{prefix}_")}
