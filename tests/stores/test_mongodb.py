"""MongoDB, on what imitates it: our requests are proven here, MongoDB itself is not.

The imitation is no replica set, so what only a replica set answers comes from the door before it.
"""

from __future__ import annotations

from contextlib import closing
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import Int64
from msgspec.structs import replace
from pymongo import MongoClient

from morag.backend.base import Ref, RefSwap
from morag.backend.mongodb import ERASE_AT_ONCE
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
from tests.stores.servers.mongodb import Door, door, mongo_imitation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pymongo.database import Database

    from morag.testing.backend_contract import FullBackend
    from tests.stores.servers.mongodb import MongoImitation

pytestmark = pytest.mark.stores

DATABASES = count()


@pytest.fixture
def name() -> str:
    """A database of the test's own."""
    return f"d{next(DATABASES)}"


@pytest.fixture
def url(mongodb: MongoImitation, name: str) -> str:
    return mongodb.url(name)


@pytest.fixture
def inside(mongodb: MongoImitation, name: str) -> Iterator[Database[dict[str, Any]]]:
    """The database, past the backend."""
    client: MongoClient[dict[str, Any]] = MongoClient("127.0.0.1", mongodb.port)
    with closing(client):
        yield client[name]


@pytest.fixture
def before(mongodb: MongoImitation) -> Iterator[Door]:
    with door(mongodb) as before:
        yield before


@pytest.fixture
def behind(before: Door, name: str) -> Iterator[FullBackend]:
    """A backend that reaches the server through the door."""
    reopening = Reopening(f"mongodb://127.0.0.1:{before.port}/{name}?timeout_seconds=5")
    before.seen.clear()
    yield reopening.backend
    reopening.backend.close()


class TestMongoDB(DurableBackendContract, RefLogContract):
    """The whole contract, through `open_backend`."""


class TestDocuments:
    def test_refs_are_written_as_the_original_writes_them(
        self, backend: FullBackend, inside: Database[dict[str, Any]]
    ) -> None:
        create(backend, Ref("plain", an_id(1)))
        create(backend, Ref("full", an_id(1), True, 5, an_id("info"), PREVIOUS))
        plain, full = inside["refs2"].find().sort("_id", -1)
        assert plain == {"_id": {"r": "r", "n": "plain"}, "p": an_id(1), "d": False}
        assert list(full) == ["_id", "p", "d", "c", "e", "h"]
        assert list(full["_id"]) == ["r", "n"]
        assert full["c"] == 5
        assert isinstance(full["c"], Int64)
        assert full["d"] is True

    def test_rows_are_written_as_the_original_writes_them(
        self, backend: FullBackend, inside: Database[dict[str, Any]]
    ) -> None:
        row, custom = a_row(1, micros=7), a_custom_row(b"custom", "v1")
        backend.insert_rows("r", [row, custom])
        for _ in range(2):
            stored = inside["objs2"].find_one({"y": "v"})
            assert stored is not None
            assert list(stored["_id"].items()) == [("r", "r"), ("i", row.id)]
            assert stored.keys() == {"_id", "y", "z", "v"}
            assert stored["v"] == row.data + b"\x58\x00"
            assert isinstance(stored["z"], Int64)
            backend.insert_rows("r", [row])
        versioned = inside["objs2"].find_one({"y": "c-s"})
        assert versioned is not None
        assert versioned["V"] == "v1"

    def test_what_the_original_leaves_out_is_read(
        self, backend: FullBackend, inside: Database[dict[str, Any]]
    ) -> None:
        row = a_row(1, micros=0)
        value = row.data + b"\x58\x00"
        inside["objs2"].insert_one({"_id": {"r": "r", "i": row.id}, "y": "v", "v": value})
        assert backend.read_rows("r", [row.id]) == {row.id: row}

    def test_damage_is_told_by_name(
        self, backend: FullBackend, inside: Database[dict[str, Any]]
    ) -> None:
        inside["refs2"].insert_one({"_id": {"r": "r", "n": "torn"}, "d": False})
        inside["objs2"].insert_one({"_id": {"r": "r", "i": an_id(1)}, "y": "v", "v": b"\x12\xff"})
        with pytest.raises(RepositoryCorrupt, match="torn"):
            backend.read_refs("r", ["torn"])
        with pytest.raises(RepositoryCorrupt, match=an_id(1).hex()):
            backend.read_rows("r", [an_id(1)])


class TestRequests:
    def test_writes_wait_for_the_journals_of_most_and_reads_see_what_most_have(
        self, behind: FullBackend, before: Door
    ) -> None:
        create(behind, MAIN)
        move(behind, MAIN, MOVED)
        behind.insert_rows("r", [a_row(1)])
        behind.insert_rows("r", [a_row(1), a_row(2)])
        behind.append_log("r", [line(1)])
        behind.read_refs("r", [MAIN.name])
        behind.read_rows("r", [an_id(1)])
        behind.read_log("r", None, 9)
        list(behind.scan_rows("r"))
        move(behind, MOVED, None)
        behind.delete_rows("r", [an_id(1)])
        behind.erase("r")
        safely, agreed = {"w": "majority", "j": True}, {"level": "majority"}
        for name, command in before.seen:
            if name in ("insert", "update", "delete"):
                assert command["writeConcern"] == safely, command
            elif name == "find":
                assert command["readConcern"] == agreed, command
        assert {name for name, _ in before.seen} >= {"insert", "update", "delete", "find"}

    def test_a_repository_is_erased_in_pages(self, behind: FullBackend, before: Door) -> None:
        behind.insert_rows("r", [a_row(n) for n in range(ERASE_AT_ONCE + 1)])
        behind.insert_rows("r2", [a_row(1)])
        create(behind, MAIN)
        behind.append_log("r", [line(1)])
        before.seen.clear()
        behind.erase("r")
        assert before.count("delete") == 4
        assert list(behind.scan_rows("r")) == []
        assert behind.read_log("r", None, 9) == []
        assert behind.read_refs("r", [MAIN.name]) == {}
        assert len(list(behind.scan_rows("r2"))) == 1

    def test_a_call_is_one_request(self, behind: FullBackend, before: Door) -> None:
        rows = [a_row(n) for n in range(300)]
        behind.insert_rows("r", rows)
        assert [name for name, _ in before.seen] == ["insert"]
        before.seen.clear()
        assert len(behind.read_rows("r", [row.id for row in rows])) == 300
        assert [name for name, _ in before.seen] == ["find"]
        before.seen.clear()
        behind.insert_rows("r", [*rows, a_row("new")])
        assert [name for name, _ in before.seen] == ["insert", "update"]


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
    def test_a_write_that_is_refused_is_told_and_not_repeated(
        self,
        behind: FullBackend,
        before: Door,
        answer: Mapping[str, Any],
        error: type[MoragError],
    ) -> None:
        create(behind, MAIN)
        before.seen.clear()
        before.next_time("update", answer)
        with pytest.raises(error) as raised:
            move(behind, MAIN, MOVED)
        assert type(raised.value) is error
        assert before.count("update") == 1
        before.next_time("insert", answer)
        with pytest.raises(error):
            behind.insert_rows("r", [a_row(1), a_row(2)])
        assert before.count("insert") == 1

    def test_a_row_that_is_refused_for_another_reason_is_not_called_a_duplicate(
        self, behind: FullBackend, before: Door
    ) -> None:
        taken = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error"}
        stuck = {"index": 1, "code": 16500, "errmsg": "Request rate is large"}
        before.next_time("insert", {"ok": 1.0, "n": 0, "writeErrors": [taken, stuck]})
        with pytest.raises(StoreThrottled):
            behind.insert_rows("r", [a_row(1), a_row(2)])

    def test_rows_that_an_election_may_undo_are_not_called_new(
        self, behind: FullBackend, before: Door
    ) -> None:
        taken = {"index": 0, "code": 11000, "errmsg": "E11000 duplicate key error"}
        before.next_time("insert", {**UNDECIDED, "writeErrors": [taken]})
        with pytest.raises(StoreBusy):
            behind.insert_rows("r", [a_row(1), a_row(2)])

    @pytest.mark.parametrize("answer", [NOT_PRIMARY, Door.CUT_BEFORE, Door.CUT_AFTER])
    def test_a_read_is_tried_again(
        self, behind: FullBackend, before: Door, answer: Mapping[str, Any] | str
    ) -> None:
        create(behind, MAIN)
        before.next_time("find", answer)
        assert read(behind, MAIN.name) == MAIN
        assert before.count("find") == 2

    def test_a_row_that_is_too_large_for_a_document_is_refused(self, backend: FullBackend) -> None:
        large = a_row("large", "s", size_bytes=49 << 20)
        with pytest.raises(RequestTooLarge, match="so large a row"):
            backend.insert_rows("r", [large])
        assert list(backend.scan_rows("r")) == []

    @pytest.mark.parametrize(
        ("code", "text"),
        [(10334, "BSONObjectTooLarge"), (2, "object to insert too large. size in bytes: 17825792")],
    )
    def test_and_so_it_is_if_the_server_says_so(
        self, behind: FullBackend, before: Door, code: int, text: str
    ) -> None:
        refused = {"index": 0, "code": code, "errmsg": text}
        before.next_time("insert", {"ok": 1.0, "n": 0, "writeErrors": [refused]})
        with pytest.raises(RequestTooLarge, match="so large a row"):
            behind.insert_rows("r", [a_row(1)])

    def test_an_answer_that_cannot_be_read_is_damage(
        self, behind: FullBackend, before: Door, name: str
    ) -> None:
        for command, ask in (
            ("find", lambda: read(behind, MAIN.name)),
            (
                "listCollections",
                lambda: open_backend(f"mongodb://127.0.0.1:{before.port}/{name}"),
            ),
        ):
            cursor = {"id": Int64(0), "ns": f"{name}.x", "firstBatch": [{"name": "torn"}]}
            whole = bson.encode({"ok": 1.0, "cursor": cursor})
            before.next_time(command, whole.replace(b"torn", b"\xff\xfe\xfd\xfc"))
            with pytest.raises(RepositoryCorrupt, match="cannot be read"):
                ask()


class TestTheWayIsCut:
    def test_a_swap_whose_reply_is_lost_was_made_once(
        self, behind: FullBackend, before: Door
    ) -> None:
        create(behind, MAIN)
        before.next_time("update", Door.CUT_AFTER)
        with pytest.raises(StoreUnreachable):
            move(behind, MAIN, MOVED)
        assert before.count("update") == 1
        assert read(behind, MAIN.name) == MOVED

    def test_a_swap_that_did_not_arrive_was_not_made(
        self, behind: FullBackend, before: Door
    ) -> None:
        create(behind, MAIN)
        before.next_time("update", Door.CUT_BEFORE)
        with pytest.raises(StoreUnreachable):
            move(behind, MAIN, MOVED)
        assert read(behind, MAIN.name) == MAIN

    def test_rows_whose_reply_is_lost_are_not_new_any_more(
        self, behind: FullBackend, before: Door
    ) -> None:
        before.next_time("insert", Door.CUT_AFTER)
        with pytest.raises(StoreUnreachable):
            behind.insert_rows("r", [a_row(1), a_row(2)])
        assert behind.insert_rows("r", [a_row(1), a_row(2), a_row(3)]) == {an_id(3)}

    def test_an_answer_that_does_not_come_in_time_is_not_waited_for(
        self, before: Door, name: str
    ) -> None:
        late = Event()

        def never(command: str, _: Mapping[str, Any]) -> None:
            if command == "update":
                late.wait(60)

        hurried = f"mongodb://127.0.0.1:{before.port}/{name}?timeout_seconds=0.5"
        with closing(open_backend(hurried)) as backend:
            create(backend, MAIN)
            before.answer = never
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
    def test_a_url_that_names_no_database_or_weakens_it_is_refused(self, text: str) -> None:
        with pytest.raises(StoreUrlInvalid):
            open_backend(text)

    def test_a_server_that_is_not_there_is_told(self, name: str) -> None:
        with mongo_imitation() as server:
            port = server.port
        url = f"mongodb://ann:secret@127.0.0.1:{port}/{name}?timeout_seconds=0.3"
        with pytest.raises(StoreUnreachable, match="does not answer") as raised:
            open_backend(url)
        assert "secret" not in str(raised.value)

    def test_a_wrong_password_is_told_and_not_shown(self, before: Door, name: str) -> None:
        before.next_time("saslStart", *[failure(18, "AuthenticationFailed")] * 9)
        with pytest.raises(StoreUrlInvalid, match="check user, password") as raised:
            open_backend(f"mongodb://ann:secret@127.0.0.1:{before.port}/{name}")
        assert "secret" not in str(raised.value)

    @pytest.mark.parametrize("password", ["sec/ret", "sec@ret", "sec:ret", "sec%ret"])
    def test_a_password_that_is_not_escaped_is_not_shown(self, password: str) -> None:
        with pytest.raises(MoragError) as raised:
            open_backend(f"mongodb://ann:{password}@127.0.0.1:1/d?timeout_seconds=0.1")
        assert "sec" not in str(raised.value).replace("seconds", "")
        assert "ret" not in str(raised.value)

    def test_a_user_who_may_not_look_is_told(self, before: Door, name: str) -> None:
        before.next_time("listCollections", failure(13, "Unauthorized"))
        with pytest.raises(StoreUrlInvalid, match="does not let us into"):
            open_backend(f"mongodb://127.0.0.1:{before.port}/{name}")

    @pytest.mark.parametrize("collection", ["refs2", "objs2", "ref_log"])
    def test_somebody_elses_collection_is_left_alone(
        self, url: str, inside: Database[dict[str, Any]], collection: str
    ) -> None:
        inside[collection].insert_one({"_id": "letter"})
        with pytest.raises(StoreUrlInvalid, match="not a catalog's"):
            open_backend(url)
        assert inside.list_collection_names() == [collection]

    def test_a_collection_that_does_not_tell_cases_apart_is_refused(
        self, before: Door, name: str
    ) -> None:
        collated = {"name": "refs2", "options": {"collation": {"locale": "en", "strength": 1}}}
        cursor = {"id": Int64(0), "ns": f"{name}.$cmd.listCollections", "firstBatch": [collated]}
        before.next_time("listCollections", {"ok": 1.0, "cursor": cursor})
        with pytest.raises(StoreUrlInvalid, match="options of its own"):
            open_backend(f"mongodb://127.0.0.1:{before.port}/{name}")

    def test_who_only_reads_makes_nothing(self, url: str, inside: Database[dict[str, Any]]) -> None:
        with pytest.raises(StoreUrlInvalid, match="There is no store"):
            open_backend(url, read_only=True)
        assert inside.list_collection_names() == []
        with closing(open_backend(url)) as backend:
            create(backend, MAIN)
            backend.insert_rows("r", [a_row(1)])
        with closing(open_backend(url, read_only=True)) as reader:
            assert read(reader, MAIN.name) == MAIN
        assert "ref_log" not in inside.list_collection_names()

    def test_a_swap_of_a_ref_keeps_no_field_of_the_old_one(
        self, backend: FullBackend, inside: Database[dict[str, Any]]
    ) -> None:
        full = replace(MAIN, extended_info=an_id("info"), previous=PREVIOUS)
        create(backend, full)
        assert backend.swap_ref("r", RefSwap(MAIN.name, full, Ref(MAIN.name, an_id(2))))
        (stored,) = inside["refs2"].find()
        assert stored.keys() == {"_id", "p", "d"}
