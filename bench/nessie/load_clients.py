"""Simulated clients: readers that repeat fixed requests, committers that track their own head."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.nessie.load_generator import Address

NAMESPACE: Final = "race"
_HASH_CHARACTERS: Final = 64
_ID_CHARACTERS: Final = 36
_HOT_TABLES: Final = 4
_NEW_TABLE_EVERY: Final = 50
_FIRST_SNAPSHOT: Final = 3_000_000_000_000_000_000  # As many digits as real snapshot ids.

_COMMIT: Final = (
    '{"commitMeta":{"hash":null,"committer":null,"authors":["spark"],"allSignedOffBy":[],'
    '"message":"Iceberg commit against %(namespace)s.%(table)s","commitTime":null,'
    '"authorTime":null,"allProperties":{"application-type":["iceberg"],'
    '"app-id":["local-1700000000000"]}},"operations":[{"type":"PUT",'
    '"key":{"elements":["%(namespace)s","%(table)s"]},"content":{"type":"ICEBERG_TABLE",'
    '"id":%(id)s,"metadataLocation":"s3://lake/warehouse/%(namespace)s/%(table)s/metadata/'
    '%(snapshot)d.metadata.json","snapshotId":%(snapshot)d,"schemaId":0,"specId":0,'
    '"sortOrderId":0},"documentation":null}]}'
)
"""The body that the Java client sends for one table, byte for byte, but not compressed."""


class Reader:
    """Repeats the same requests."""

    def __init__(self, address: Address, paths: Iterable[str]) -> None:
        self._requests = cycle([get(address, path) for path in paths])

    def request(self) -> bytes:
        return next(self._requests)

    def answered(self, response: bytes) -> None:
        pass


class Committer:
    """Updates its own tables in turn, and sometimes creates a new one that replaces the oldest.

    The expected hash is that of its own last commit, as with a real client: after commits of other
    clients, the server must find out that they changed other tables.
    """

    def __init__(self, address: Address, branch: str, number: int, head: str) -> None:
        self.commits = 0
        self._number = number
        self._tables: list[tuple[str, str]] = []
        self._new_table: str | None = None
        self._head = head.encode()
        self._before_head = f"POST /api/v2/trees/{branch}%40".encode()
        self._after_head = (
            f"/history/commit HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
            "Accept: application/json\r\nContent-Type: application/json\r\n"
            "Nessie-Client-Spec: 2\r\nContent-Length: "
        ).encode()

    def request(self) -> bytes:
        self.commits += 1
        if len(self._tables) < _HOT_TABLES or self.commits % _NEW_TABLE_EVERY == 0:
            table, id = f"table-{self._number:02}-{self.commits:07}", "null"
            self._new_table = table
        else:
            table, id = self._tables[self.commits % _HOT_TABLES]
            self._new_table = None
        snapshot = _FIRST_SNAPSHOT + self.commits
        body = _COMMIT % {"namespace": NAMESPACE, "table": table, "id": id, "snapshot": snapshot}
        length = b"%d\r\n\r\n" % len(body)
        return b"".join(
            (self._before_head, self._head, self._after_head, length, body.encode("ascii"))
        )

    def answered(self, response: bytes) -> None:
        self._head = _string_after(response, b'"hash"', _HASH_CHARACTERS)
        if self._new_table is not None:
            id = _string_after(response, b'"contentId"', _ID_CHARACTERS).decode()
            self._tables = [*self._tables, (self._new_table, f'"{id}"')][-_HOT_TABLES:]


def get(address: Address, path: str) -> bytes:
    return (
        f"GET /api/v2/{path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
        "Accept: application/json\r\nNessie-Client-Spec: 2\r\n\r\n"
    ).encode()


def _string_after(response: bytes, name: bytes, length: int) -> bytes:
    """The value of a field, whether the JSON is compact or pretty."""
    start = response.index(b'"', response.index(name) + len(name)) + 1
    return response[start : start + length]
