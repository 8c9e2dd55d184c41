"""The backend on MongoDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bson import MaxKey, MinKey
from pymongo import DESCENDING
from pymongo.errors import BulkWriteError, DuplicateKeyError

from morag.backend.base import WHOLE, Limits, LogRow
from morag.backend.mongodb import records as documents
from morag.backend.mongodb.errors import DUPLICATE, ERRORS
from morag.backend.mongodb.opening import LOG, REFS, ROWS, open_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pymongo.collection import Collection
    from pymongo.database import Database

    from morag.backend.base import ObjId, Ref, RefSwap, Row, Slice
    from morag.backend.mongodb.opening import Document
    from morag.backend.urls import StoreUrl

_MIB: Final = 1 << 20
LIMITS: Final = Limits(
    rows_at_once=1000,
    bytes_at_once=16 * _MIB,
    row_bytes=16 * _MIB - (64 << 10),  # A document holds 16 MiB, including its id and all names.
)
SCAN_AT_ONCE: Final = 250
ERASE_AT_ONCE: Final = 1000
_MOST: Final = 2**31 - 1


def open_mongodb(url: StoreUrl) -> MongoDBBackend:
    return MongoDBBackend(open_database(url), str(url))


class MongoDBBackend:
    """Each call is one request, or two if some rows are stored already.

    A write returns when the journals of most members of the replica set have it, so that no
    election undoes it. Reads go to the primary and see only writes that no election undoes. The
    driver retries a read when a connection breaks; a write, too, but only in a replica set, which
    numbers writes and so applies each once.
    """

    limits = LIMITS

    def __init__(self, database: Database[Document], address: str) -> None:
        self._client = database.client
        self._refs: Collection[Document] = database[REFS]
        self._rows: Collection[Document] = database[ROWS]
        self._log: Collection[Document] = database[LOG]
        self._address = f"'{address}'"

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        ids = [documents.ref_id(repo, name) for name in names]
        return {ref.name: ref for ref in map(documents.to_ref, self._find(self._refs, ids))}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        expected, new = swap.expected, swap.new
        with ERRORS.translating(self._address):
            if expected is None:
                if new is None:
                    return self._refs.find_one({"_id": documents.ref_id(repo, swap.name)}) is None
                try:
                    self._refs.insert_one(documents.ref_document(repo, new))
                except DuplicateKeyError:
                    return False
                return True
            same = documents.same_ref(repo, expected)
            if new is None:
                return self._refs.delete_one(same).deleted_count == 1
            return (
                self._refs.replace_one(same, documents.ref_document(repo, new)).matched_count == 1
            )

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        found = self._find(self._rows, [documents.row_id(repo, id) for id in ids])
        return {row.id: row for row in map(documents.to_row, found)}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        new: set[ObjId] = set()
        while rows:
            at_there = self._insert(self._rows, [documents.row_document(repo, row) for row in rows])
            new.update(row.id for at, row in enumerate(rows) if at not in at_there)
            rows = [rows[at] for at in sorted(at_there)]
            # If a row was deleted between the two requests, all of them are tried again.
            if rows and self._refresh(repo, rows) == len(rows):
                break
        return frozenset(new)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        same = documents.same_row(repo, expected)
        with ERRORS.translating(self._address):
            if new is None:
                return self._rows.delete_one(same).deleted_count == 1
            return (
                self._rows.replace_one(same, documents.row_document(repo, new)).matched_count == 1
            )

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        with ERRORS.translating(self._address):
            self._rows.delete_many({"_id": {"$in": [documents.row_id(repo, id) for id in ids]}})

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        """A request for each row: MongoDB reports how many rows of a bulk it deleted, not which."""
        deleted = []
        with ERRORS.translating(self._address):
            for row in rows:
                same = documents.same_row(repo, row) | documents.same_time(row)
                if self._rows.delete_one(same).deleted_count:
                    deleted.append(row.id)
        return frozenset(deleted)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        # In pages: a cursor would not survive an election, nor a slow reader.
        low, high = documents.bounds(part)
        within: Document = {"$gte": {"r": repo, "i": low}, "$lt": {"r": repo, "i": high}}
        some: Document = {"y": {"$in": sorted(kinds)}} if kinds else {}
        while True:
            with ERRORS.translating(self._address):
                page = list(
                    self._rows.find({"_id": within, **some})
                    .sort("_id")
                    .limit(SCAN_AT_ONCE)
                    .batch_size(SCAN_AT_ONCE + 1)
                )
            yield from map(documents.to_row, page)
            if len(page) < SCAN_AT_ONCE:
                return
            within = {"$gt": page[-1]["_id"], "$lt": within["$lt"]}

    def erase(self, repo: str) -> None:
        """In pages, each with its own time limit: one call for all would time out."""
        for collection, name in ((self._refs, "n"), (self._rows, "i"), (self._log, "k")):
            first, last = {"r": repo, name: MinKey()}, {"r": repo, name: MaxKey()}
            while ids := self._some_ids(collection, {"$gte": first, "$lt": last}):
                with ERRORS.translating(self._address):
                    collection.delete_many({"_id": {"$in": ids}})

    def close(self) -> None:
        self._client.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        self._insert(
            self._log, [{"_id": documents.log_id(repo, row.key), "v": row.data} for row in rows]
        )

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        if not limit:  # MongoDB takes 0 for no limit.
            return []
        last: Document = (
            {"r": repo, "k": MaxKey()} if before is None else documents.log_id(repo, before)
        )
        within = {"$gte": {"r": repo, "k": MinKey()}, "$lt": last}
        with ERRORS.translating(self._address):
            found = self._log.find({"_id": within}).sort("_id", DESCENDING).limit(min(limit, _MOST))
            return [LogRow(bytes.fromhex(each["_id"]["k"]), each["v"]) for each in found]

    def _find(self, collection: Collection[Document], ids: Sequence[Document]) -> list[Document]:
        if not ids:
            return []
        with ERRORS.translating(self._address):
            # A batch larger than the limit, so that the first answer is also the last.
            found = collection.find({"_id": {"$in": ids}}).limit(len(ids))
            return list(found.batch_size(len(ids) + 1))

    def _some_ids(self, collection: Collection[Document], within: Document) -> list[Document]:
        with ERRORS.translating(self._address):
            found = collection.find({"_id": within}, {"_id": 1}).limit(ERASE_AT_ONCE)
            return [each["_id"] for each in found.batch_size(ERASE_AT_ONCE + 1)]

    def _refresh(self, repo: str, rows: Sequence[Row]) -> int:
        """Refresh the times of the rows; return how many are stored."""
        with ERRORS.translating(self._address):
            updates = [documents.refresh(repo, row) for row in rows]
            return self._rows.bulk_write(updates, ordered=False).matched_count

    def _insert(self, collection: Collection[Document], rows: list[Document]) -> set[int]:
        """Insert the documents that are not stored yet; return the indexes of the others."""
        if not rows:
            return set()
        with ERRORS.translating(self._address):
            try:
                collection.insert_many(rows, ordered=False)
            except BulkWriteError as error:
                failed = error.details["writeErrors"]
                if any(each["code"] != DUPLICATE for each in failed):
                    raise
                if error.details.get("writeConcernErrors"):  # An election may still undo it.
                    raise
                return {each["index"] for each in failed}
        return set()
