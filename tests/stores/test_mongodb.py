"""MongoDB, on an imitation: it tests our requests, not the behaviour of MongoDB.

The imitation has no replica sets, so an interceptor gives their answers.
"""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import Int64
from msgspec.structs import replace
from pymongo import MongoClient

from morag.backend.base import Ref, RefSwap
from morag.backend.mongodb.backend import ERASE_AT_ONCE
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
    create,
    line,
    move,
    read,
)
from tests.stores.conftest import Reopening
from tests.stores.databases import new_name
from tests.stores.servers.mongodb import Interceptor, intercepting, mongo_imitation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pymongo.database import Database

    from morag.testing.backend_contract import FullBackend
    from tests.stores.servers.mongodb import MongoImitation

pytestmark = pytest.mark.stores

SERVER = "mongodb"


@pytest.fixture
def name() -> str:
    """A database that no other test uses."""
    return new_name()


@pytest.fixture
def url(server: MongoImitation, name: str) -> str:
    return server.url(name)


@pytest.fixture
def documents(server: MongoImitation, name: str) -> Iterator[Database[dict[str, Any]]]:
    """The database, read and written without the backend."""
    client: MongoClient[dict[str, Any]] = MongoClient("127.0.0.1", server.port)
    with closing(client):
        yield client[name]


@pytest.fixture
def interceptor(server: MongoImitation) -> Iterator[Interceptor]:
    with intercepting(server) as interceptor:
        yield interceptor


@pytest.fixture
def intercepted(interceptor: Interceptor, name: str) -> Iterator[FullBackend]:
    """A backend that connects to the interceptor."""
    reopening = Reopening(f"mongodb://127.0.0.1:{interceptor.port}/{name}?timeout_seconds=5")
    interceptor.seen.clear()
    yield reopening.backend
    reopening.backend.close()


class TestMongoDB(DurableBackendContract, RefLogContract):
    """The contract of backends."""


class TestDocuments:
    def test_refs_are_written_as_nessie_writes_them(
        self, backend: FullBackend, documents: Database[dict[str, Any]]
    ) -> None:
        create(backend, Ref("plain", an_id(1)))
        create(backend, Ref("full", an_id(1), True, 5, an_id("info"), PREVIOUS))
        plain, full = documents["refs2"].find().sort("_id", -1)
        assert plain == {"_id": {"r": "r", "n": "plain"}, "p": an_id(1), "d": False}
        assert list(full) == ["_id", "p", "d", "c", "e", "h"]
        assert list(full["_id"]) == ["r", "n"]
        assert full["c"] == 5
        assert isinstance(full["c"], Int64)
        assert full["d"] is True

    def test_rows_are_written_as_nessie_writes_them(
        self, backend: FullBackend, documents: Database[dict[str, Any]]
    ) -> None:
        row, custom = a_row(1, micros=7), a_custom_row(b"custom", "v1")
        backend.insert_rows("r", [row, custom])
        for _ in range(2):
            stored = documents["objs2"].find_one({"y": "v"})
            assert stored is not None
            assert list(stored["_id"].items()) == [("r", "r"), ("i", row.id)]
            assert stored.keys() == {"_id", "y", "z", "v"}
            assert stored["v"] == row.data + b"\x58\x00"
            assert isinstance(stored["z"], Int64)
            backend.insert_rows("r", [row])
        versioned = documents["objs2"].find_one({"y": "c-s"})
        assert versioned is not None
        assert versioned["V"] == "v1"

    def test_fields_that_nessie_omits_have_defaults(
        self, backend: FullBackend, documents: Database[dict[str, Any]]
    ) -> None:
        row = a_row(1, micros=0)
        value = row.data + b"\x58\x00"
        documents["objs2"].insert_one({"_id": {"r": "r", "i": row.id}, "y": "v", "v": value})
        assert backend.read_rows("r", [row.id]) == {row.id: row}

    def test_a_damaged_record_is_named(
        self, backend: FullBackend, documents: Database[dict[str, Any]]
    ) -> None:
        documents["refs2"].insert_one({"_id": {"r": "r", "n": "torn"}, "d": False})
        documents["objs2"].insert_one(
            {"_id": {"r": "r", "i": an_id(1)}, "y": "v", "v": b"\x12\xff"}
        )
        with pytest.raises(RepositoryCorrupt, match="torn"):
            backend.read_refs("r", ["torn"])
        with pytest.raises(RepositoryCorrupt, match=an_id(1).hex()):
            backend.read_rows("r", [an_id(1)])


class TestRequests:
    def test_writes_and_reads_use_majority_concerns(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        create(intercepted, MAIN)
        move(intercepted, MAIN, MOVED)
        intercepted.insert_rows("r", [a_row(1)])
        intercepted.insert_rows("r", [a_row(1), a_row(2)])
        intercepted.append_log("r", [line(1)])
        intercepted.read_refs("r", [MAIN.name])
        intercepted.read_rows("r", [an_id(1)])
        intercepted.read_log("r", None, 9)
        list(intercepted.scan_rows("r"))
        move(intercepted, MOVED, None)
        intercepted.delete_rows("r", [an_id(1)])
        intercepted.erase("r")
        safely, agreed = {"w": "majority", "j": True}, {"level": "majority"}
        for name, command in interceptor.seen:
            if name in ("insert", "update", "delete"):
                assert command["writeConcern"] == safely, command
            elif name == "find":
                assert command["readConcern"] == agreed, command
        assert {name for name, _ in interceptor.seen} >= {"insert", "update", "delete", "find"}

    def test_a_repository_is_erased_in_pages(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        intercepted.insert_rows("r", [a_row(n) for n in range(ERASE_AT_ONCE + 1)])
        intercepted.insert_rows("r2", [a_row(1)])
        create(intercepted, MAIN)
        intercepted.append_log("r", [line(1)])
        interceptor.seen.clear()
        intercepted.erase("r")
        assert interceptor.count("delete") == 4
        assert list(intercepted.scan_rows("r")) == []
        assert intercepted.read_log("r", None, 9) == []
        assert intercepted.read_refs("r", [MAIN.name]) == {}
        assert len(list(intercepted.scan_rows("r2"))) == 1

    def test_a_call_is_one_request(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        rows = [a_row(n) for n in range(300)]
        intercepted.insert_rows("r", rows)
        assert [name for name, _ in interceptor.seen] == ["insert"]
        interceptor.seen.clear()
        assert len(intercepted.read_rows("r", [row.id for row in rows])) == 300
        assert [name for name, _ in interceptor.seen] == ["find"]
        interceptor.seen.clear()
        intercepted.insert_rows("r", [*rows, a_row("new")])
        assert [name for name, _ in interceptor.seen] == ["insert", "update"]


def failure(code: int, name: str, *labels: str) -> Mapping[str, Any]:
    return {"ok": 0.0, "code": code, "codeName": name, "errmsg": name, "errorLabels": labels}


THROTTLED = failure(16500, "TooManyRequests")
NOT_PRIMARY = failure(10107, "NotWritablePrimary")
UNDECIDED = {
    "ok": 1.0,
    "n": 1,
    "nModified": 1,
    "writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"},
}


class TestSpecialAnswers:
    @pytest.mark.parametrize(
        ("answer", "error"),
        [
            (THROTTLED, StoreThrottled),
            (failure(462, "IngressRequestRateLimitExceeded"), StoreThrottled),
            (NOT_PRIMARY, StoreBusy),
            (failure(50, "MaxTimeMSExpired"), StoreBusy),
            (failure(112, "WriteConflict", "TransientTransactionError"), StoreBusy),
            (failure(14031, "OutOfDiskSpace"), StoreCannotWrite),
            (failure(13, "Unauthorized"), StoreCannotWrite),
            (failure(8, "UnknownError"), StoreBusy),
            (UNDECIDED, StoreBusy),
        ],
        ids=lambda value: str(value.get("codeName")) if isinstance(value, dict) else "",
    )
    def test_a_refused_write_is_reported_and_not_repeated(
        self,
        intercepted: FullBackend,
        interceptor: Interceptor,
        answer: Mapping[str, Any],
        error: type[MoragError],
    ) -> None:
        create(intercepted, MAIN)
        interceptor.seen.clear()
        interceptor.next_time("update", answer)
        with pytest.raises(error) as raised:
            move(intercepted, MAIN, MOVED)
        assert type(raised.value) is error
        assert interceptor.count("update") == 1
        interceptor.next_time("insert", answer)
        with pytest.raises(error):
            intercepted.insert_rows("r", [a_row(1), a_row(2)])
        assert interceptor.count("insert") == 1

    def test_a_row_that_is_refused_for_another_reason_is_not_called_a_duplicate(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        taken = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error"}
        stuck = {"index": 1, "code": 16500, "errmsg": "Request rate is large"}
        interceptor.next_time("insert", {"ok": 1.0, "n": 0, "writeErrors": [taken, stuck]})
        with pytest.raises(StoreThrottled):
            intercepted.insert_rows("r", [a_row(1), a_row(2)])

    def test_rows_that_an_election_may_undo_are_not_called_new(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        taken = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error"}
        interceptor.next_time("insert", {**UNDECIDED, "writeErrors": [taken]})
        with pytest.raises(StoreBusy):
            intercepted.insert_rows("r", [a_row(1), a_row(2)])

    @pytest.mark.parametrize("answer", [NOT_PRIMARY, Interceptor.CUT_BEFORE, Interceptor.CUT_AFTER])
    def test_a_read_is_retried(
        self, intercepted: FullBackend, interceptor: Interceptor, answer: Mapping[str, Any] | str
    ) -> None:
        create(intercepted, MAIN)
        interceptor.next_time("find", answer)
        assert read(intercepted, MAIN.name) == MAIN
        assert interceptor.count("find") == 2

    def test_a_row_that_is_too_large_for_a_document_is_refused(self, backend: FullBackend) -> None:
        large = a_row("large", "s", size_bytes=49 << 20)
        with pytest.raises(RequestTooLarge, match="a row of this size"):
            backend.insert_rows("r", [large])
        assert list(backend.scan_rows("r")) == []

    @pytest.mark.parametrize(
        ("code", "text"),
        [(10334, "BSONObjectTooLarge"), (2, "object to insert too large. size in bytes: 17825792")],
    )
    def test_a_row_that_the_server_finds_too_large_is_refused(
        self, intercepted: FullBackend, interceptor: Interceptor, code: int, text: str
    ) -> None:
        refused = {"index": 0, "code": code, "errmsg": text}
        interceptor.next_time("insert", {"ok": 1.0, "n": 0, "writeErrors": [refused]})
        with pytest.raises(RequestTooLarge, match="a row of this size"):
            intercepted.insert_rows("r", [a_row(1)])

    def test_an_answer_that_cannot_be_read_is_damage(
        self, intercepted: FullBackend, interceptor: Interceptor, name: str
    ) -> None:
        for command, ask in (
            ("find", lambda: read(intercepted, MAIN.name)),
            (
                "listCollections",
                lambda: open_backend(f"mongodb://127.0.0.1:{interceptor.port}/{name}"),
            ),
        ):
            cursor = {"id": Int64(0), "ns": f"{name}.x", "firstBatch": [{"name": "torn"}]}
            whole = bson.encode({"ok": 1.0, "cursor": cursor})
            interceptor.next_time(command, whole.replace(b"torn", b"\xff\xfe\xfd\xfc"))
            with pytest.raises(RepositoryCorrupt, match="cannot be read"):
                ask()


class TestBrokenConnections:
    def test_a_swap_whose_reply_is_lost_was_made_once(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        create(intercepted, MAIN)
        interceptor.next_time("update", Interceptor.CUT_AFTER)
        with pytest.raises(StoreUnreachable):
            move(intercepted, MAIN, MOVED)
        assert interceptor.count("update") == 1
        assert read(intercepted, MAIN.name) == MOVED

    def test_a_swap_that_did_not_arrive_was_not_made(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        create(intercepted, MAIN)
        interceptor.next_time("update", Interceptor.CUT_BEFORE)
        with pytest.raises(StoreUnreachable):
            move(intercepted, MAIN, MOVED)
        assert read(intercepted, MAIN.name) == MAIN

    def test_rows_whose_reply_is_lost_are_not_new_any_more(
        self, intercepted: FullBackend, interceptor: Interceptor
    ) -> None:
        interceptor.next_time("insert", Interceptor.CUT_AFTER)
        with pytest.raises(StoreUnreachable):
            intercepted.insert_rows("r", [a_row(1), a_row(2)])
        assert intercepted.insert_rows("r", [a_row(1), a_row(2), a_row(3)]) == {an_id(3)}

    def test_waiting_for_an_answer_is_bounded(self, interceptor: Interceptor, name: str) -> None:
        late = Event()

        def never(command: str, _: Mapping[str, Any]) -> None:
            if command == "update":
                late.wait(60)

        url = f"mongodb://127.0.0.1:{interceptor.port}/{name}?timeout_seconds=0.5"
        with closing(open_backend(url)) as backend:
            create(backend, MAIN)
            interceptor.answer = never
            with pytest.raises(StoreUnreachable):
                move(backend, MAIN, MOVED)
            late.set()

    def test_a_server_that_comes_back_is_found_again(self, name: str) -> None:
        with mongo_imitation() as server:
            url = f"{server.url(name)}?timeout_seconds=1"
            with closing(open_backend(url)) as backend:
                create(backend, MAIN)
                server.stop()
                for ask in (
                    lambda: read(backend, MAIN.name),
                    lambda: move(backend, MAIN, MOVED),
                    lambda: backend.insert_rows("r", [a_row(1)]),
                    lambda: list(backend.scan_rows("r")),
                ):
                    with pytest.raises(StoreUnreachable, match="does not answer"):
                        ask()
                server.start()
                assert read(backend, MAIN.name) == MAIN
                assert move(backend, MAIN, MOVED)


class TestOpening:
    @pytest.mark.parametrize(
        "text",
        [
            "mongodb:",
            "mongodb://127.0.0.1",
            "mongodb://127.0.0.1/",
            "mongodb://127.0.0.1:x/nessie",
            "mongodb://127.0.0.1/nessie?w=1",
            "mongodb://127.0.0.1/nessie?readPreference=secondary",
            "mongodb://127.0.0.1/nessie?timeout_seconds=soon",
            "mongodb://127.0.0.1/nessie?timeout_seconds=0",
            "mongodb://127.0.0.1/nessie?maxPoolSize=many",
            "mongodb://127.0.0.1/a b",
        ],
    )
    def test_a_url_without_a_database_or_with_weak_options_is_refused(self, text: str) -> None:
        with pytest.raises(StoreUrlInvalid):
            open_backend(text)

    def test_a_port_without_a_server_is_reported(self, name: str) -> None:
        with mongo_imitation() as server:
            port = server.port
        url = f"mongodb://ann:secret@127.0.0.1:{port}/{name}?timeout_seconds=0.3"
        with pytest.raises(StoreUnreachable, match="does not answer") as raised:
            open_backend(url)
        assert "secret" not in str(raised.value)

    def test_a_wrong_password_is_reported_and_not_shown(
        self, interceptor: Interceptor, name: str
    ) -> None:
        interceptor.next_time("saslStart", *[failure(18, "AuthenticationFailed")] * 9)
        with pytest.raises(StoreUrlInvalid, match="check user, password") as raised:
            open_backend(f"mongodb://ann:secret@127.0.0.1:{interceptor.port}/{name}")
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize("password", ["sec/ret", "sec@ret", "sec:ret", "sec%ret"])
    def test_a_password_that_is_not_escaped_is_not_shown(self, password: str) -> None:
        with pytest.raises(MoragError) as raised:
            open_backend(f"mongodb://ann:{password}@127.0.0.1:1/d?timeout_seconds=0.1")
        assert "sec" not in str(raised.value).replace("seconds", "")
        assert "ret" not in str(raised.value)

    def test_a_user_without_the_right_to_list_is_refused(
        self, interceptor: Interceptor, name: str
    ) -> None:
        interceptor.next_time("listCollections", failure(13, "Unauthorized"))
        with pytest.raises(StoreUrlInvalid, match="denies access"):
            open_backend(f"mongodb://127.0.0.1:{interceptor.port}/{name}")

    @pytest.mark.parametrize("collection", ["refs2", "objs2", "ref_log"])
    def test_the_collection_of_another_program_is_not_changed(
        self, url: str, documents: Database[dict[str, Any]], collection: str
    ) -> None:
        documents[collection].insert_one({"_id": "letter"})
        with pytest.raises(StoreUrlInvalid, match="not a catalog's"):
            open_backend(url)
        assert documents.list_collection_names() == [collection]

    def test_a_case_insensitive_collection_is_refused(
        self, interceptor: Interceptor, name: str
    ) -> None:
        collated = {"name": "refs2", "options": {"collation": {"locale": "en", "strength": 1}}}
        cursor = {"id": Int64(0), "ns": f"{name}.$cmd.listCollections", "firstBatch": [collated]}
        interceptor.next_time("listCollections", {"ok": 1.0, "cursor": cursor})
        with pytest.raises(StoreUrlInvalid, match="options of its own"):
            open_backend(f"mongodb://127.0.0.1:{interceptor.port}/{name}")

    def test_a_reader_makes_no_tables(self, url: str, documents: Database[dict[str, Any]]) -> None:
        with pytest.raises(StoreUrlInvalid, match="There is no store"):
            open_backend(url, read_only=True)
        assert documents.list_collection_names() == []
        with closing(open_backend(url)) as backend:
            create(backend, MAIN)
            backend.insert_rows("r", [a_row(1)])
        with closing(open_backend(url, read_only=True)) as reader:
            assert read(reader, MAIN.name) == MAIN
        assert "ref_log" not in documents.list_collection_names()

    def test_a_swap_of_a_ref_keeps_no_field_of_the_old_one(
        self, backend: FullBackend, documents: Database[dict[str, Any]]
    ) -> None:
        full = replace(MAIN, extended_info=an_id("info"), previous=PREVIOUS)
        create(backend, full)
        assert backend.swap_ref("r", RefSwap(MAIN.name, full, Ref(MAIN.name, an_id(2))))
        (stored,) = documents["refs2"].find()
        assert stored.keys() == {"_id", "p", "d"}
