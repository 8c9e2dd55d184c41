"""DynamoDB, on Amazon's DynamoDB Local; what that never answers comes from a door before it."""

from __future__ import annotations

from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from morag.backend.base import KeepsRefLog, ObjId, Ref
from morag.backend.dynamodb import LIMITS
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
from tests.stores.servers.dynamodb import (
    CREDENTIALS,
    Door,
    door,
    dynamodb_local,
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

PREFIXES = count()
BROKEN = refusal("InternalServerError", 500)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix() -> str:
    """Of tables of the test's own."""
    return f"t{next(PREFIXES)}"


@pytest.fixture
def url(dynamodb: DynamoDBLocal, prefix: str) -> str:
    return dynamodb.url(prefix)


@pytest.fixture
def inside(dynamodb: DynamoDBLocal) -> Iterator[DynamoDBClient]:
    """The database, past the backend."""
    endpoint = f"http://127.0.0.1:{dynamodb.port}"
    client = boto3.client("dynamodb", region_name="eu-west-1", endpoint_url=endpoint)
    with closing(client):
        yield client


@pytest.fixture
def before(dynamodb: DynamoDBLocal) -> Iterator[Door]:
    with door(dynamodb) as before:
        yield before


@pytest.fixture
def behind(before: Door, prefix: str) -> Iterator[FullBackend]:
    """A backend that reaches the server through the door."""
    reopening = Reopening(url_of(before.port, prefix))
    before.seen.clear()
    yield reopening.backend
    reopening.backend.close()


class TestDynamoDB(DurableBackendContract, RefLogContract):
    """The whole contract, through `open_backend`."""

    def test_a_big_row_comes_back(self, backend: Backend) -> None:
        """As big as a row gets, which is less than elsewhere."""
        big = a_row("big", "s", size_bytes=LIMITS.row_bytes - 8)
        assert len(big.data) == LIMITS.row_bytes
        assert backend.insert_rows("r" * 1000, [big]) == {big.id}
        assert backend.read_rows("r" * 1000, [big.id]) == {big.id: big}

    def test_a_row_that_is_too_big_is_told(self, backend: Backend) -> None:
        with pytest.raises(RequestTooLarge, match="so large an item"):
            backend.insert_rows("r", [a_row("big", "s", size_bytes=410 << 10)])

    def test_big_rows_are_read_although_no_answer_holds_them(self, backend: Backend) -> None:
        rows = {row.id: row for row in (a_row(n, "s", size_bytes=390 << 10) for n in range(45))}
        assert backend.insert_rows("r", list(rows.values())) == rows.keys()
        assert backend.read_rows("r", list(rows)) == rows

    def test_an_id_that_is_asked_for_twice_is_read_once(self, backend: Backend) -> None:
        backend.insert_rows("r", [a_row(1)])
        assert backend.read_rows("r", [an_id(1), an_id(1), an_id(2)]) == {an_id(1): a_row(1)}
        backend.delete_rows("r", [an_id(1), an_id(1)])
        assert backend.read_rows("r", [an_id(1)]) == {}


class TestItems:
    def test_refs_are_written_as_the_original_writes_them(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        create(backend, Ref("plain", an_id(1)))
        create(backend, Ref("full", an_id(1), True, 5, an_id("info"), PREVIOUS[:1]))
        stored = {item["k"]["S"]: item for item in _all(inside, f"{prefix}_refs")}
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

    def test_rows_are_written_as_the_original_writes_them(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        row, custom = a_row(1, micros=7), a_custom_row(b"custom", "v1", micros=8)
        backend.insert_rows("", [row, custom])
        stored = {item["k"]["S"]: item for item in _all(inside, f"{prefix}_objs")}
        assert stored[f":{row.id.hex()}"] == {
            "k": {"S": f":{row.id.hex()}"},
            "y": {"S": "v"},
            "z": {"S": "7"},
            "v": {"B": row.data + b"\x58\x00"},
        }
        assert stored[f":{b'custom'.hex()}"]["V"] == {"S": "v1"}

    def test_what_the_original_leaves_out_is_read(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        row = a_row(1, micros=0)
        item: Any = {"k": {"S": f"r:{row.id.hex()}"}, "y": {"S": "v"}}
        item["v"] = {"B": row.data + b"\x58\x00"}
        inside.put_item(TableName=f"{prefix}_objs", Item=item)
        assert backend.read_rows("r", [row.id]) == {row.id: row}

    def test_damage_is_told_by_name(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        inside.put_item(TableName=f"{prefix}_refs", Item={"k": {"S": "r:torn"}})
        inside.put_item(TableName=f"{prefix}_objs", Item={"k": {"S": "r:0a"}, "y": {"S": "v"}})
        inside.put_item(TableName=f"{prefix}_objs", Item={"k": {"S": "s:xy"}, "y": {"S": "v"}})
        with pytest.raises(RepositoryCorrupt, match="torn"):
            backend.read_refs("r", ["torn"])
        with pytest.raises(RepositoryCorrupt, match="0a"):
            backend.read_rows("r", [ObjId(b"\x0a")])
        with pytest.raises(RepositoryCorrupt, match="xy"):
            list(backend.scan_rows("s"))

    def test_a_row_of_the_original_is_refreshed_in_its_place(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        backend.insert_rows("r", [a_row(1, micros=1)])
        backend.insert_rows("r", [a_row(1, micros=2)])
        (stored,) = _all(inside, f"{prefix}_objs")
        assert stored["z"] == {"S": "2"}


class TestRequests:
    def test_every_read_is_strongly_consistent(self, behind: FullBackend, before: Door) -> None:
        behind.read_refs("r", ["a"])
        behind.read_refs("r", ["a", "b"])
        behind.read_rows("r", [an_id(1)])
        behind.read_rows("r", [an_id(1), an_id(2)])
        behind.read_log("r", None, 9)
        list(behind.scan_rows("r"))
        assert [name for name, _ in before.seen] == [
            "GetItem", "BatchGetItem", "GetItem", "BatchGetItem", "Query", "Scan",
        ]  # fmt: skip
        for name, request in before.seen:
            asked = request
            if name == "BatchGetItem":
                (asked,) = request["RequestItems"].values()
            assert asked["ConsistentRead"] is True, name

    def test_a_row_that_goes_while_it_is_refreshed_is_written_anew(
        self, behind: FullBackend, before: Door
    ) -> None:
        behind.insert_rows("r", [a_row(1)])
        before.seen.clear()
        before.next_time("UpdateItem", refusal("ConditionalCheckFailedException"))
        assert behind.insert_rows("r", [a_row(1)]) == frozenset()
        assert [name for name, _ in before.seen] == ["PutItem", "UpdateItem"] * 2


class TestThrottling:
    KINDS = (
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottlingException",
    )

    @pytest.mark.parametrize("kind", [*KINDS, "TransactionConflictException"])
    def test_what_was_refused_for_now_is_tried_again(
        self, behind: FullBackend, before: Door, kind: str
    ) -> None:
        for operation in ("PutItem", "GetItem", "UpdateItem", "Scan", "BatchGetItem"):
            before.next_time(operation, *[refusal(kind)] * 2)
        assert create(behind, MAIN)
        assert read(behind, MAIN.name) == MAIN
        assert behind.insert_rows("r", [a_row(1)]) == {an_id(1)}
        assert behind.insert_rows("r", [a_row(1), a_row(2)]) == {an_id(2)}
        assert len(behind.read_rows("r", [an_id(1), an_id(2)])) == 2
        assert len(list(behind.scan_rows("r"))) == 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_it_is_not_tried_for_ever(self, behind: FullBackend, before: Door, kind: str) -> None:
        before.next_time("PutItem", *[refusal(kind)] * 99)
        with pytest.raises(StoreThrottled):
            create(behind, MAIN)
        assert 1 < before.count("PutItem") < 20
        assert behind.read_refs("r", [MAIN.name]) == {}

    def test_what_a_batch_leaves_out_is_asked_for_again(
        self, behind: FullBackend, before: Door, prefix: str
    ) -> None:
        behind.insert_rows("r", [a_row(n) for n in range(3)])
        table, key = f"{prefix}_objs", {"k": {"S": f"r:{an_id(0).hex()}"}}
        keys = {table: {"Keys": [key], "ConsistentRead": True}}
        nothing = (200, {"Responses": {}, "UnprocessedKeys": keys})
        before.next_time("BatchGetItem", nothing, nothing)
        assert behind.read_rows("r", [an_id(0), an_id(1)]).keys() == {an_id(0)}
        assert before.count("BatchGetItem") == 3
        left = {table: [{"DeleteRequest": {"Key": key}}]}
        before.next_time("BatchWriteItem", *[(200, {"UnprocessedItems": left})] * 2)
        behind.delete_rows("r", [an_id(0)])
        assert before.count("BatchWriteItem") == 3
        assert behind.read_rows("r", [an_id(0)]) == {}

    def test_a_batch_that_never_moves_is_given_up(
        self, behind: FullBackend, before: Door, prefix: str
    ) -> None:
        keys = {f"{prefix}_objs": {"Keys": [{"k": {"S": "r:00"}}]}}
        before.next_time("BatchGetItem", *[(200, {"Responses": {}, "UnprocessedKeys": keys})] * 99)
        with pytest.raises(StoreThrottled):
            behind.read_rows("r", [an_id(0), an_id(1)])
        left = {f"{prefix}_objs": [{"DeleteRequest": {"Key": {"k": {"S": "r:00"}}}}]}
        before.next_time("BatchWriteItem", *[(200, {"UnprocessedItems": left})] * 99)
        with pytest.raises(StoreThrottled):
            behind.delete_rows("r", [an_id(0)])


class TestTheWayIsCut:
    @pytest.mark.parametrize("cut", [Door.CUT_BEFORE, Door.CUT_AFTER, BROKEN], ids=str)
    def test_a_read_is_tried_again(self, behind: FullBackend, before: Door, cut: Any) -> None:
        create(behind, MAIN)
        before.next_time("GetItem", cut)
        assert read(behind, MAIN.name) == MAIN
        assert before.count("GetItem") == 2

    @pytest.mark.parametrize(
        ("cut", "made"),
        [(Door.CUT_BEFORE, False), (Door.CUT_AFTER, True), (BROKEN, False)],
        ids=str,
    )
    def test_a_swap_is_made_once_or_not_at_all(
        self, behind: FullBackend, before: Door, cut: Any, made: bool
    ) -> None:
        create(behind, MAIN)
        before.seen.clear()
        before.next_time("PutItem", cut)
        with pytest.raises(StoreBusy):
            move(behind, MAIN, MOVED)
        assert before.count("PutItem") == 1
        assert read(behind, MAIN.name) == (MOVED if made else MAIN)

    def test_rows_whose_reply_is_lost_are_not_new_any_more(
        self, behind: FullBackend, before: Door
    ) -> None:
        rows = [a_row(n) for n in range(5)]
        before.next_time("PutItem", Door.CUT_AFTER)
        with pytest.raises(StoreBusy):
            behind.insert_rows("r", rows)
        assert before.count("PutItem") == 5, "the others are not left half way"
        assert behind.insert_rows("r", [*rows, a_row(5)]) == {an_id(5)}

    def test_lines_of_the_log_whose_reply_is_lost_are_there_once(
        self, behind: FullBackend, before: Door
    ) -> None:
        before.next_time("BatchWriteItem", Door.CUT_AFTER)
        behind.append_log("r", [line(1), line(2)])
        assert behind.read_log("r", None, 9) == [line(2), line(1)]

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

    def test_an_answer_that_does_not_come_in_time_is_not_waited_for(
        self, before: Door, prefix: str
    ) -> None:
        with closing(open_backend(url_of(before.port, prefix, "timeout_seconds=0.5"))) as backend:
            create(backend, MAIN)
            before.seen.clear()
            before.next_time("PutItem", Door.LATE)
            with pytest.raises(StoreBusy):
                move(backend, MAIN, MOVED)
            assert before.count("PutItem") == 1
            before.wake()


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
    def test_a_url_that_is_not_understood_is_refused(self, text: str) -> None:
        with pytest.raises(StoreUrlInvalid):
            open_backend(text)

    def test_without_a_region_it_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
        with pytest.raises(StoreUrlInvalid, match="region"):
            open_backend("dynamodb:")

    def test_without_credentials_it_is_told(
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
            (Door.CUT_BEFORE, StoreBusy),
        ],
        ids=str,
    )
    def test_who_is_not_let_in_is_told_why(
        self, before: Door, prefix: str, answer: Any, error: type[MoragError]
    ) -> None:
        before.next_time("DescribeTable", answer)
        with pytest.raises(error) as raised:
            open_backend(url_of(before.port, prefix))
        assert type(raised.value) is error

    def test_a_server_that_is_not_there_is_told(self, before: Door, prefix: str) -> None:
        port = before.port
        before.close()
        with pytest.raises(StoreUnreachable, match="does not answer"):
            open_backend(url_of(port, prefix))

    def test_permissions_that_are_taken_away_are_told_to_operators(
        self, behind: FullBackend, before: Door
    ) -> None:
        before.next_time("PutItem", refusal("AccessDeniedException"))
        with pytest.raises(StoreCannotWrite):
            create(behind, MAIN)

    def test_many_may_start_at_once(self, url: str) -> None:
        backends = at_once(open_backend, [url] * 4)
        assert at_once(lambda backend: create(backend, MAIN), backends).count(True) == 1
        for backend in backends:
            backend.close()

    def test_tables_are_made_as_the_original_makes_them(
        self, backend: FullBackend, inside: DynamoDBClient, prefix: str
    ) -> None:
        backend.read_refs("r", [MAIN.name])
        for table in ("refs", "objs"):
            found = inside.describe_table(TableName=f"{prefix}_{table}")["Table"]
            assert found["KeySchema"] == [{"AttributeName": "k", "KeyType": "HASH"}]
            assert found["AttributeDefinitions"] == [{"AttributeName": "k", "AttributeType": "S"}]
            assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"

    @pytest.mark.parametrize("table", ["refs", "objs", "ref_log"])
    @pytest.mark.parametrize(("key", "type"), [("id", "S"), ("k", "N")])
    def test_somebody_elses_table_is_left_alone(
        self, url: str, inside: DynamoDBClient, prefix: str, table: str, key: str, type: Any
    ) -> None:
        inside.create_table(
            TableName=f"{prefix}_{table}",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": type}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )
        with pytest.raises(StoreUrlInvalid, match="not a catalog's"):
            open_backend(url)

    def test_who_only_reads_makes_nothing(
        self, url: str, inside: DynamoDBClient, prefix: str
    ) -> None:
        with pytest.raises(StoreUrlInvalid, match="There is no table"):
            open_backend(url, read_only=True)
        assert not _tables(inside, prefix)
        with closing(open_backend(url)) as backend:
            create(backend, MAIN)
        inside.delete_table(TableName=f"{prefix}_ref_log")  # As the original would leave it.
        with closing(open_backend(url, read_only=True)) as reader:
            assert read(reader, MAIN.name) == MAIN
            assert isinstance(reader, KeepsRefLog)
            assert reader.read_log("r", None, 9) == []
        assert _tables(inside, prefix) == {f"{prefix}_objs", f"{prefix}_refs"}


def _all(client: DynamoDBClient, table: str) -> list[Any]:
    return list(client.scan(TableName=table)["Items"])


def _tables(client: DynamoDBClient, prefix: str) -> set[str]:
    pages = client.get_paginator("list_tables").paginate()
    names = [name for page in pages for name in page["TableNames"]]
    return {name for name in names if name.startswith(f"{prefix}_")}
