"""The backend on DynamoDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.backend.base import WHOLE, Limits
from morag.backend.dynamodb import records as items
from morag.backend.dynamodb.calls import READ_AT_ONCE, Requests
from morag.backend.dynamodb.opening import connect, open_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, Ref, RefSwap, Row, Slice
    from morag.backend.dynamodb.opening import Tables
    from morag.backend.dynamodb.records import Item
    from morag.backend.urls import StoreUrl

LIMITS: Final = Limits(
    rows_at_once=READ_AT_ONCE,
    bytes_at_once=16 << 20,
    row_bytes=(400 - 4) << 10,  # An item holds 400 KiB, with its key and all names.
)
_WRITERS: Final = 16
_MOST: Final = 2**63 - 1


def open_dynamodb(url: StoreUrl) -> DynamoDBBackend:
    client = connect(url)
    try:
        tables = open_tables(client, url)
    except BaseException:
        client.close()
        raise
    return DynamoDBBackend(Requests(client, f"DynamoDB at '{url}'"), tables)


class DynamoDBBackend:
    """Every read is strongly consistent: it sees all writes that were acknowledged before.

    That costs twice as much as an eventually consistent read. But an object that seems to be
    missing is an error, and a commit on an old head is wasted work. A write is one conditional
    request per row, many in parallel: batches have no conditions, and transactions cost double.
    """

    limits = LIMITS

    def __init__(self, requests: Requests, tables: Tables) -> None:
        self._requests, self._tables = requests, tables
        self._client = requests.client
        self._writers = ThreadPoolExecutor(_WRITERS, "morag-dynamodb")

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        keys = [items.ref_key(repo, name) for name in dict.fromkeys(names)]
        found = (items.to_ref(repo, each) for each in self._read(self._tables.refs, repo, keys))
        return {ref.name: ref for ref in found}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        expected, new = swap.expected, swap.new
        if expected is None and new is None:
            return not self.read_refs(repo, [swap.name])
        request: Item = {"TableName": self._tables.refs}
        if expected is None:
            request["ConditionExpression"] = "attribute_not_exists(p)"
        else:
            condition, values = items.same_ref(expected)
            request |= {"ConditionExpression": condition, "ExpressionAttributeValues": values}
        if new is None:
            request["Key"] = items.ref_key(repo, swap.name)
            return self._requests.write_if(self._client.delete_item, request)
        request["Item"] = items.ref_item(repo, new)
        return self._requests.write_if(self._client.put_item, request)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        keys = [items.row_key(repo, id) for id in dict.fromkeys(ids)]
        found = (items.to_row(repo, each) for each in self._read(self._tables.rows, repo, keys))
        return {row.id: row for row in found}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        return self._each(self._insert, repo, rows)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        condition, values = items.same_row(expected)
        request: Item = {"TableName": self._tables.rows}
        request |= {"ConditionExpression": condition, "ExpressionAttributeValues": values}
        if new is None:
            request["Key"] = items.row_key(repo, expected.id)
            return self._requests.write_if(self._client.delete_item, request)
        request["Item"] = items.row_item(repo, new)
        return self._requests.write_if(self._client.put_item, request)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        self._delete(self._tables.rows, (items.row_key(repo, id) for id in dict.fromkeys(ids)))

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        return self._each(self._delete_unreferenced, repo, rows)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        for item in self._scan(self._tables.rows, repo, kinds, part):
            yield items.to_row(repo, item)

    def erase(self, repo: str) -> None:
        for table in (self._tables.refs, self._tables.rows):
            found = self._scan(table, repo, keys="k, n")
            self._delete(table, ({"k": item["k"]} for item in found))
        if self._tables.log is not None:
            self._delete(self._tables.log, self._lines(repo, {"ProjectionExpression": "r, k"}))

    def close(self) -> None:
        self._writers.shutdown()
        self._client.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        assert self._tables.log is not None, "a reader appends nothing"
        puts = ({"PutRequest": {"Item": items.log_item(repo, row)}} for row in rows)
        self._requests.write_all(self._tables.log, puts)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        if self._tables.log is None or not limit:
            return []
        request: Item = {"ScanIndexForward": False, "Limit": min(limit, 1000)}
        if before is not None:
            request["KeyConditionExpression"] = "r = :r AND k < :k"
            request["ExpressionAttributeValues"] = {":k": {"B": before}}
        found = islice(self._lines(repo, request), min(limit, _MOST))
        return [items.to_log_row(item) for item in found]

    def _read(self, table: str, repo: str, keys: Sequence[Item]) -> list[Item]:
        if len(keys) == 1:
            item = self._requests.get(table, keys[0])
            found = [] if item is None else [item]
        else:
            found = self._requests.get_all(table, keys)
        return [item for item in found if items.is_of(repo, item)]

    def _each(
        self, write: Callable[[str, Row], bool], repo: str, rows: Sequence[Row]
    ) -> frozenset[ObjId]:
        """Write each row; the ids of those for which that returned true."""
        if len(rows) == 1:
            return frozenset(row.id for row in rows if write(repo, row))
        # All writes end before an error is raised, so that a retry finds them settled.
        writing = [self._writers.submit(write, repo, row) for row in rows]
        failed = [error for each in writing if (error := each.exception()) is not None]
        if failed:
            raise failed[0]
        return frozenset(row.id for row, each in zip(rows, writing, strict=True) if each.result())

    def _delete_unreferenced(self, repo: str, row: Row) -> bool:
        condition, values = items.unreferenced_row(row)
        request: Item = {
            "TableName": self._tables.rows,
            "Key": items.row_key(repo, row.id),
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }
        return self._requests.write_if(self._client.delete_item, request)

    def _insert(self, repo: str, row: Row) -> bool:
        item = items.row_item(repo, row)
        insert: Item = {
            "TableName": self._tables.rows,
            "Item": item,
            "ConditionExpression": "attribute_not_exists(y)",
        }
        refresh: Item = {
            "TableName": self._tables.rows,
            "Key": {"k": item["k"]},
            "UpdateExpression": "SET z = :z",
            "ConditionExpression": "attribute_exists(y)",
            "ExpressionAttributeValues": {":z": item["z"]},
        }
        while True:  # Repeats if the row was deleted between the two requests.
            if self._requests.write_if(self._client.put_item, insert):
                return True
            if self._requests.write_if(self._client.update_item, refresh):
                return False

    def _delete(self, table: str, keys: Iterable[Item]) -> None:
        self._requests.write_all(table, ({"DeleteRequest": {"Key": key}} for key in keys))

    def _scan(
        self,
        table: str,
        repo: str,
        kinds: frozenset[str] = frozenset(),
        part: Slice = WHOLE,
        keys: str | None = None,
    ) -> Iterator[Item]:
        condition, values = items.of_repo(repo, kinds)
        request: Item = {
            "TableName": table,
            "ConsistentRead": True,
            "Segment": part.index,
            "TotalSegments": part.count,
            "FilterExpression": condition,
            "ExpressionAttributeValues": values,
        }
        if keys is not None:
            request["ProjectionExpression"] = keys
        for page in self._requests.pages(self._client.scan, request):
            yield from (item for item in page if items.is_of(repo, item))

    def _lines(self, repo: str, request: Item) -> Iterator[Item]:
        values = {":r": {"S": items.prefix(repo)}, **request.get("ExpressionAttributeValues", {})}
        request = {
            "TableName": self._tables.log,
            "ConsistentRead": True,
            "KeyConditionExpression": "r = :r",
            **request,
            "ExpressionAttributeValues": values,
        }
        for page in self._requests.pages(self._client.query, request):
            yield from page
