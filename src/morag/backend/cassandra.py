"""Cassandra and ScyllaDB: for catalogs that outlive a machine, and a data centre of them."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.backend import cassandra_cql as cql
from morag.backend import sql
from morag.backend.base import WHOLE, Limits, LogRow, ObjId
from morag.backend.cassandra_opening import open_session
from morag.backend.cassandra_session import AGAIN, AT_ONCE
from morag.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Ref, RefSwap, Row, Slice
    from morag.backend.cassandra_session import CassandraSession, Record
    from morag.backend.urls import StoreUrl

_MIB: Final = 1 << 20
_BUCKET_BYTES: Final = 3  # Of a time in nanoseconds: a new one every 18 minutes.
_BUCKETS: Final = b""  # The bucket that lists the others.


def open_cassandra(url: StoreUrl) -> CassandraBackend:
    session, has_log = open_session(url)
    return CassandraBackend(session, has_log=has_log)


class CassandraBackend:
    """Everything that matters is written by lightweight transactions, also where a row goes.

    These are linearizable within the data centre (`LOCAL_SERIAL`), and their times come from the
    ballots of Paxos: no clock of a client, nor a delete that it dated ahead, can hide a later
    write. Reads are made at `LOCAL_QUORUM`, which sees whatever was acknowledged. A swap without an
    answer may be half done, though, and be finished by whoever comes next; so the ref that it was
    about is read at `LOCAL_SERIAL` next time, which settles it first.
    """

    limits = Limits(rows_at_once=AT_ONCE, bytes_at_once=12 * _MIB, row_bytes=12 * _MIB)
    """A mutation may have 16 MiB, unless the operator chose otherwise; and so may a message."""

    def __init__(self, session: CassandraSession, *, has_log: bool = True) -> None:
        self._session = session
        self._has_log = has_log
        self._unsettled: set[tuple[str, str, object]] = set()

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        unsettled = {name for of, name, _ in tuple(self._unsettled) if of == repo}
        records = list(self._read_settled(repo, unsettled.intersection(names)))
        names = [name for name in names if name not in unsettled] if unsettled else names
        if len(names) == 1:  # The driver sends it to a replica, if it is about one key.
            records += self._session.read(cql.READ_REF, (repo, names[0]))
        elif names:
            records += self._session.read(cql.READ_REFS, (repo, names))
        return {ref.name: ref for ref in map(sql.to_ref, records)}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        expected, new = swap.expected, swap.new
        if expected is None and new is None:
            return not self.read_refs(repo, [swap.name])
        if expected is None:
            assert new is not None, "seen above"
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
            # One that was deleted in between is not there any more, so it is inserted after all.
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

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        # Chosen here and not there: ScyllaDB has no filter that goes with a range of tokens.
        for owner, *record in self._session.pages(cql.SCAN_ROWS, cql.tokens(part)):
            if owner == repo and (not kinds or record[1] in kinds):
                yield sql.to_row(record)

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
        """Not conditional: a line never changes, so writing it again changes nothing."""
        buckets = {row.key[:_BUCKET_BYTES] for row in rows}
        lines: list[tuple[object, ...]] = [(repo, _BUCKETS, bucket, b"") for bucket in buckets]
        lines += ((repo, row.key[:_BUCKET_BYTES], row.key, row.data) for row in rows)
        self._session.write(cql.APPEND_LOG, lines, AGAIN)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        lines = self._lines(repo, before) if self._has_log else iter(())
        return list(islice(lines, min(limit, sys.maxsize)))

    def _lines(self, repo: str, before: bytes | None) -> Iterator[LogRow]:
        """From the newest on. Buckets keep partitions small, and sort as the keys in them do."""
        last = None if before is None else before[:_BUCKET_BYTES]
        for bucket, _ in self._older(repo, _BUCKETS, "<=", last):
            for key, data in self._older(repo, bucket, "<", before):
                yield LogRow(key, data)

    def _older(self, repo: str, bucket: bytes, than: str, key: bytes | None) -> Iterator[Record]:
        if key is None:
            return self._session.pages(cql.READ_LOG, (repo, bucket))
        return self._session.pages(f"{cql.READ_LOG} AND log_key {than} ?", (repo, bucket, key))

    def _read_settled(self, repo: str, names: Iterable[str]) -> Iterator[Record]:
        """Refs of which a swap got lost, so that none of ours is under way any more."""
        for name in names:
            # Only these are settled: while the answer comes, another swap may get lost.
            doubts = [each for each in tuple(self._unsettled) if each[:2] == (repo, name)]
            yield from self._session.read(cql.READ_REF, (repo, name), serial=True)
            self._unsettled.difference_update(doubts)
