"""The backend on Bigtable. A row of a table holds one ref, one row or one log line."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.backend.base import WHOLE, Limits, ObjId
from morag.backend.bigtable import records as cells
from morag.backend.bigtable.opening import open_calls
from morag.backend.bigtable.records import HAS_REF, HAS_ROW, LOG, NOTHING, REFS, ROWS
from morag.backend.ordered_keys import after, id_range, is_row_id, log_prefix_of, prefix_of, row_key
from morag.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.backend.base import LogRow, Ref, RefSwap, Row, Slice
    from morag.backend.bigtable.calls import BigtableCalls
    from morag.backend.bigtable.records import Cells
    from morag.backend.urls import StoreUrl

_MIB: Final = 1 << 20
_AT_ONCE: Final = 100
_THREADS: Final = 16
_SWAP_ATTEMPTS: Final = 8
_NO_LIMIT: Final = 1 << 40


def open_bigtable(url: StoreUrl) -> BigtableBackend:
    calls, has_log = open_calls(url)
    return BigtableBackend(calls, has_log=has_log)


class BigtableBackend:
    """Every write is one conditional mutation of one row, which is atomic in Bigtable.

    Bigtable allows these only if all requests go to one cluster, and there a read sees every
    acknowledged write. So an application profile with single-cluster routing is needed, and weaker
    consistency cannot be configured by mistake.
    """

    limits = Limits(rows_at_once=_AT_ONCE, bytes_at_once=20 * _MIB, row_bytes=10_000_000)
    """Bigtable recommends at most ten megabytes for a cell, and accepts ten times that."""

    def __init__(self, calls: BigtableCalls, *, has_log: bool = True) -> None:
        self._calls = calls
        self._has_log = has_log
        # Each conditional mutation is a request of its own, so several are sent in parallel.
        self._threads = ThreadPoolExecutor(_THREADS, "morag-bigtable")

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        if not names:
            return {}
        prefix = prefix_of(repo)
        found = self._calls.read(REFS, (prefix + name.encode() for name in names))
        refs = (cells.to_ref(prefix, key, content) for key, content in found.items())
        return {ref.name: ref for ref in refs if ref is not None}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        """The condition compares the stored bytes, which include the previous pointers.

        Usually `expected` has them, and one call is enough. Otherwise the stored ref is read and
        compared here, and the condition is that it has not changed since.
        """
        prefix = prefix_of(repo)
        key = prefix + swap.name.encode()
        change = [NOTHING] if swap.new is None else cells.ref_cells(swap.new)
        if swap.expected is None:
            if swap.new is None:
                return not self.read_refs(repo, [swap.name])
            return not self._calls.change_if(REFS, key, HAS_REF, otherwise=change)
        condition = cells.same_ref(swap.expected)
        for _ in range(_SWAP_ATTEMPTS):
            if self._calls.change_if(REFS, key, condition, then=change):
                return True
            content = self._calls.read(REFS, [key]).get(key, {})
            stored = cells.to_ref(prefix, key, content)
            if stored is None or stored.identity != swap.expected.identity:
                return False
            condition = cells.same_cell(content)
        raise StoreBusy(f"Other servers keep changing '{swap.name}'; try again")

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        prefix = prefix_of(repo)
        found = self._calls.read(ROWS, (prefix + id for id in ids)) if ids else {}
        return {row.id: row for row in _rows(prefix, found)}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        prefix = prefix_of(repo)

        def insert(key: bytes, row: Row) -> bool:
            return not self._calls.change_if(
                ROWS,
                key,
                HAS_ROW,
                then=[cells.refreshed(row.referenced_micros)],
                otherwise=cells.row_cells(row),
            )

        return self._each(insert, prefix, rows)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        # The row is emptied first: the old one may have a version that the new one lacks.
        change = [NOTHING] if new is None else [NOTHING, *cells.row_cells(new)]
        key = row_key(prefix_of(repo), expected.id)
        return self._calls.change_if(ROWS, key, cells.same_row(expected), then=change)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        prefix = prefix_of(repo)
        self._calls.change(ROWS, {row_key(prefix, id): [NOTHING] for id in ids})

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        def delete(key: bytes, row: Row) -> bool:
            return self._calls.change_if(ROWS, key, cells.unreferenced_row(row), then=[NOTHING])

        return self._each(delete, prefix_of(repo), rows)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        prefix, (low, high) = prefix_of(repo), id_range(part)
        end = after(prefix) if high is None else prefix + high
        for page in self._pages(ROWS, prefix + low, end):
            for row in _rows(prefix, page):
                if not kinds or row.kind in kinds:
                    yield row

    def erase(self, repo: str) -> None:
        """Key by key: a range would include repositories whose prefix starts with this one."""
        prefix, log = prefix_of(repo), log_prefix_of(repo)
        for page in self._pages(REFS, prefix, after(prefix)):
            ours = [key for key, content in page.items() if cells.to_ref(prefix, key, content)]
            self._calls.change(REFS, {key: [NOTHING] for key in ours})
        for page in self._pages(ROWS, prefix, after(prefix)):
            ours = [key for key in page if is_row_id(key[len(prefix) :])]
            self._calls.change(ROWS, {key: [NOTHING] for key in ours})
        for page in self._pages(LOG, log, after(log)):
            self._calls.change(LOG, {key: [NOTHING] for key in page})

    def close(self) -> None:
        self._threads.shutdown()
        self._calls.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        """Not conditional: a line with the same key is replaced."""
        prefix = log_prefix_of(repo)
        lines = {prefix + cells.log_key(row.key): cells.log_cells(row) for row in rows}
        self._calls.change(LOG, lines)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        if not self._has_log or not limit:
            return []
        prefix = log_prefix_of(repo)
        low = prefix if before is None else prefix + cells.log_key(before) + b"\0"
        pages = self._pages(LOG, low, after(prefix), min(limit, _AT_ONCE))
        lines = (
            cells.log_row(key[len(prefix) :], line) for page in pages for key, line in page.items()
        )
        return list(islice(lines, min(limit, _NO_LIMIT)))

    def _each(
        self, change: Callable[[bytes, Row], bool], prefix: bytes, rows: Sequence[Row]
    ) -> frozenset[ObjId]:
        """Change each row under its key; the ids of those for which that returned true."""
        keys = [row_key(prefix, row.id) for row in rows]
        if len(rows) == 1:
            return frozenset({rows[0].id} if change(keys[0], rows[0]) else ())
        # All requests end before an error is raised: none stays in flight.
        sent = [self._threads.submit(change, *each) for each in zip(keys, rows, strict=True)]
        failures = [each.exception() for each in sent]
        for failure in failures:
            if failure is not None:
                raise failure
        return frozenset(row.id for row, done in zip(rows, sent, strict=True) if done.result())

    def _pages(
        self, table: str, low: bytes, end: bytes, size: int = _AT_ONCE
    ) -> Iterator[dict[bytes, Cells]]:
        """All rows from `low` up to `end`, with one complete call per page."""
        while page := self._calls.read_range(table, low, end, size):
            yield page
            if len(page) < size:
                return
            low = next(reversed(page)) + b"\0"


def _rows(prefix: bytes, found: dict[bytes, Cells]) -> Iterator[Row]:
    for key, content in found.items():
        id = ObjId(key[len(prefix) :])
        row = cells.to_row(id, content) if is_row_id(id) else None
        if row is not None:
            yield row
