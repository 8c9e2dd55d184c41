"""One write to RocksDB: rows, refs and lines of the ref-log, all or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocksdict import WriteBatch

from morag.backend.base import is_unchanged
from morag.backend.ordered_keys import log_prefix_of, row_key
from morag.format.refs import encode_ref
from morag.format.rows import decode_row, encode_row, refreshed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocksdict import ColumnFamily

    from morag.backend.base import LogRow, ObjId, Ref, Row


class Writes:
    """Collects a write; `batch` is for RocksDB.

    The ref-log lives in the column family `default`, which Nessie opens and never touches.
    """

    __slots__ = ("_in_refs", "_in_rows", "batch")

    def __init__(self, in_refs: ColumnFamily, in_rows: ColumnFamily) -> None:
        self._in_refs = in_refs
        self._in_rows = in_rows
        self.batch = WriteBatch(raw_mode=True)

    def insert(
        self, prefix: bytes, rows: Sequence[Row], stored: Sequence[bytes | None]
    ) -> frozenset[ObjId]:
        """Insert the rows, of which some may be `stored`. Returns the ids of the others."""
        new, put, in_rows = [], self.batch.put, self._in_rows
        for row, message in zip(rows, stored, strict=True):
            if message is None:
                new.append(row.id)
                message = encode_row(row)
            else:
                message = refreshed(row.id, message, row.referenced_micros)
            put(row_key(prefix, row.id), message, in_rows)
        return frozenset(new)

    def delete_unchanged(
        self, prefix: bytes, rows: Sequence[Row], stored: Sequence[bytes | None]
    ) -> frozenset[ObjId]:
        """Delete those rows that are `stored` as they are given. Returns their ids."""
        deleted = []
        for row, message in zip(rows, stored, strict=True):
            if message is not None and is_unchanged(decode_row(row.id, message), row):
                self.batch.delete(row_key(prefix, row.id), self._in_rows)
                deleted.append(row.id)
        return frozenset(deleted)

    def move(self, key: bytes, ref: Ref | None) -> None:
        if ref is None:
            self.batch.delete(key, self._in_refs)
        else:
            self.batch.put(key, encode_ref(ref), self._in_refs)

    def append(self, repo: str, rows: Sequence[LogRow]) -> None:
        prefix = log_prefix_of(repo)
        for row in rows:
            self.batch.put(prefix + row.key, row.data)
