"""The backend on Cassandra and ScyllaDB."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.backend.base import WHOLE, Limits, LogRow, ObjId
from morag.backend.cassandra import statements as cql
from morag.backend.cassandra.calls import AGAIN, AT_ONCE
from morag.backend.cassandra.opening import open_session
from morag.backend.sql import statements as sql
from morag.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Ref, RefSwap, Row, Slice
    from morag.backend.cassandra.calls import CassandraSession, Record
    from morag.backend.urls import StoreUrl

_MIB: Final = 1 << 20
_BUCKET_BYTES: Final = 3  # The first bytes of a time in nanoseconds: a new bucket every 18 minutes.
_BUCKETS: Final = b""  # The bucket that lists the others.


def open_cassandra(url: StoreUrl) -> CassandraBackend:
    session, has_log = open_session(url)
    return CassandraBackend(session, has_log=has_log)


class CassandraBackend:
    """Refs and rows are written and deleted by lightweight transactions.

    These are linearizable within the data centre (`LOCAL_SERIAL`), and their timestamps come from
    the ballots of Paxos: neither a client's clock nor a delete with a future timestamp can hide a
    later write. Reads use `LOCAL_QUORUM`, which sees every acknowledged write. But a swap whose
    reply was lost may be half done, and the next operation may finish it. So the next read of its
    ref uses `LOCAL_SERIAL`, which settles the swap first.
    """

    limits = Limits(rows_at_once=AT_ONCE, bytes_at_once=12 * _MIB, row_bytes=12 * _MIB)
    """A mutation and a message may have 16 MiB, unless the operator configured another limit."""

    def __init__(self, session: CassandraSession, *, has_log: bool = True) -> None:
        self._session = session
        self._has_log = has_log
        self._unsettled: set[tuple[str, str, object]] = set()

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        unsettled = {name for of, name, _ in tuple(self._unsettled) if of == repo}
        records = list(self._read_settled(repo, unsettled.intersection(names)))
        names = [name for name in names if name not in unsettled] if unsettled else names
        if len(names) == 1:  # The driver sends a statement about one key to a replica.
            records += self._session.read(cql.READ_REF, (repo, names[0]))
        elif names:
            records += self._session.read(cql.READ_REFS, (repo, names))
        return {ref.name: ref for ref in map(sql.to_ref, records)}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        expected, new = swap.expected, swap.new
        if expected is None and new is None:
            return not self.read_refs(repo, [swap.name])
        if expected is None:
            assert new is not None, "handled above"
            text, values = cql.INSERT_REF, (repo, new.name, *cql.ref_values(new))
        elif new is None:
            text, values = cql.DROP_REF, cql.same_ref(repo, expected)
        else:
            text, values = cql.MOVE_REF, (*cql.ref_values(new), *cql.same_ref(repo, expected))
        try:
            ((swapped, *_),) = self._session.write(text, [values])
        except StoreBusy:
            self._unsettled.add((repo, swap.name, object()))
            raise
        return bool(swapped)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        if len(ids) == 1:
            records = self._session.read(cql.READ_ROW, (repo, ids[0]))
        else:
            records = self._session.read(cql.READ_ROWS, (repo, ids)) if ids else []
        return {row.id: row for row in map(sql.to_row, records)}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        new: set[ObjId] = set()
        while rows:
            done = self._session.write(cql.INSERT_ROW, [cql.set_values(repo, row) for row in rows])
            new.update(row.id for row, (inserted, *_) in zip(rows, done, strict=True) if inserted)
            there = [row for row in rows if row.id not in new]
            done = self._session.write(
                cql.REFRESH_ROW, [(row.referenced_micros, repo, row.id) for row in there]
            )
            # A row that was deleted between the two statements is inserted again.
            rows = [row for row, (kept, *_) in zip(there, done, strict=True) if not kept]
        return frozenset(new)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        same = (repo, expected.id, expected.kind, expected.version)
        if new is None:
            ((swapped, *_),) = self._session.write(cql.DROP_ROW, [same])
        else:
            _, _, *values = sql.row_record(repo, new)
            ((swapped, *_),) = self._session.write(cql.CHANGE_ROW, [(*values, *same)])
        return bool(swapped)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        self._session.write(cql.DELETE_ROW, ((repo, id) for id in ids))

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        identities = {row.id: sql.row_identity(repo, row) for row in rows}
        done = self._session.write(cql.DROP_UNREFERENCED, identities.values())
        deleted = {id for id, (dropped, *_) in zip(identities, done, strict=True) if dropped}
        # A time that is not known may also be stored as null, which equals only null.
        unknown = {
            row.id: (*identities[row.id][:-1], None)
            for row in rows
            if row.id not in deleted and not row.referenced_micros
        }
        done = self._session.write(cql.DROP_UNREFERENCED, unknown.values())
        deleted.update(id for id, (dropped, *_) in zip(unknown, done, strict=True) if dropped)
        return frozenset(deleted)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        # Filtered here: ScyllaDB cannot combine a filter with a range of tokens.
        for owner, *record in self._session.pages(cql.SCAN_ROWS, cql.tokens(part)):
            if owner == repo and (not kinds or record[1] in kinds):
                yield sql.to_scanned_row(record, kinds)

    def erase(self, repo: str) -> None:
        for find, delete in ((cql.ALL_REFS, cql.ERASE_REF), (cql.ALL_ROWS, cql.DELETE_ROW)):
            found = self._session.pages(find, (repo,))
            self._session.write(delete, ((repo, key) for (key,) in found))
        buckets = [bucket for bucket, _ in self._session.pages(cql.READ_LOG, (repo, _BUCKETS))]
        self._session.write(
            cql.ERASE_LOG, [(repo, bucket) for bucket in (*buckets, _BUCKETS)], AGAIN
        )

    def close(self) -> None:
        self._session.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        """Not conditional: a line with the same key is replaced."""
        buckets = {row.key[:_BUCKET_BYTES] for row in rows}
        lines: list[tuple[object, ...]] = [(repo, _BUCKETS, bucket, b"") for bucket in buckets]
        lines += ((repo, row.key[:_BUCKET_BYTES], row.key, row.data) for row in rows)
        self._session.write(cql.APPEND_LOG, lines, AGAIN)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        lines = self._lines(repo, before) if self._has_log else iter(())
        return list(islice(lines, min(limit, sys.maxsize)))

    def _lines(self, repo: str, before: bytes | None) -> Iterator[LogRow]:
        """The lines, newest first. Buckets keep partitions small, and sort like their keys."""
        last = None if before is None else before[:_BUCKET_BYTES]
        for bucket, _ in self._older(repo, _BUCKETS, "<=", last):
            for key, data in self._older(repo, bucket, "<", before):
                yield LogRow(key, data)

    def _older(self, repo: str, bucket: bytes, than: str, key: bytes | None) -> Iterator[Record]:
        if key is None:
            return self._session.pages(cql.READ_LOG, (repo, bucket))
        return self._session.pages(f"{cql.READ_LOG} AND log_key {than} ?", (repo, bucket, key))

    def _read_settled(self, repo: str, names: Iterable[str]) -> Iterator[Record]:
        """Refs whose last swap got no reply. Reading them serially settles these swaps."""
        for name in names:
            # The read settles only these: the reply to another swap may get lost meanwhile.
            settled = [each for each in tuple(self._unsettled) if each[:2] == (repo, name)]
            yield from self._session.read(cql.READ_REF, (repo, name), serial=True)
            self._unsettled.difference_update(settled)
