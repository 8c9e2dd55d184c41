"""A backend that counts calls and rows, so that tests can check the cost of an operation."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING

from morag.backend.base import (
    WHOLE,
    AppliesAtOnce,
    KeepsRefLog,
    QuickSwapsTogether,
    SwapsTogether,
    SyncsLater,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Applied, Backend, LogRow, ObjId, Ref, RefSwap, Row, Slice


class CountingBackend:
    """Passes every call to `backend` and counts it.

    - `counts`: calls by method;
    - `rows`: by method, the rows requested, passed or, in a scan, found;
    - `rows_read_by_kind` and `rows_written_by_kind`: returned and passed rows. A row that exists
      already counts as written, because its time is.

    It has `apply`, `apply_all`, their `try_` forms and the ref-log if the wrapped backend has them.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lock = Lock()
        self.reset()
        # Set on the instance: `isinstance` recognises an optional protocol by its methods.
        if isinstance(backend, AppliesAtOnce):
            self._applying: AppliesAtOnce = backend
            self.apply = self._apply
        if isinstance(backend, SyncsLater):
            self._quick: SyncsLater = backend
            self.needs_sync = backend.needs_sync
            self.try_apply, self.sync = self._try_apply, self._sync
        if isinstance(backend, SwapsTogether):
            self._swapping: SwapsTogether = backend
            self.apply_all = self._apply_all
        if isinstance(backend, QuickSwapsTogether):
            self._quick_swapping: QuickSwapsTogether = backend
            self.try_apply_all = self._try_apply_all
        if isinstance(backend, KeepsRefLog):
            self._logging: KeepsRefLog = backend
            self.append_log, self.read_log = self._append_log, self._read_log

    def reset(self) -> None:
        with self._lock:
            self.counts: Counter[str] = Counter()
            self.rows: Counter[str] = Counter()
            self.rows_read_by_kind: Counter[str] = Counter()
            self.rows_written_by_kind: Counter[str] = Counter()

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        self._count("read_refs")
        return self._backend.read_refs(repo, names)

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        self._count("swap_ref")
        return self._backend.swap_ref(repo, swap)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        found = self._backend.read_rows(repo, ids)
        self._count("read_rows", len(ids), read=found.values())
        return found

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._count("insert_rows", len(rows), written=rows)
        return self._backend.insert_rows(repo, rows)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        self._count("swap_row", 1, written=() if new is None else (new,))
        return self._backend.swap_row(repo, expected, new)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        ids = list(ids)
        self._count("delete_rows", len(ids))
        self._backend.delete_rows(repo, ids)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._count("delete_unreferenced", len(rows))
        return self._backend.delete_unreferenced(repo, rows)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        self._count("scan_rows")
        for row in self._backend.scan_rows(repo, kinds, part):
            with self._lock:
                self.rows["scan_rows"] += 1
                self.rows_read_by_kind[row.kind] += 1
            yield row

    def erase(self, repo: str) -> None:
        self._count("erase")
        self._backend.erase(repo)

    def close(self) -> None:
        self._count("close")
        self._backend.close()

    def _apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        applied = self._applying.apply(repo, rows, swap, log)
        self._count("apply", len(rows), written=rows if applied.swapped else ())
        return applied

    def _apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        is_applied = self._swapping.apply_all(repo, rows, swaps, log)
        self._count("apply_all", len(rows), written=rows if is_applied else ())
        return is_applied

    def _try_apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied | None:
        applied = self._quick.try_apply(repo, rows, swap, log)
        swapped = applied is not None and applied.swapped
        self._count("try_apply", len(rows), written=rows if swapped else ())
        return applied

    def _try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        applied = self._quick_swapping.try_apply_all(repo, rows, swaps, log)
        self._count("try_apply_all", len(rows), written=rows if applied else ())
        return applied

    def _sync(self) -> None:
        self._count("sync")
        self._quick.sync()

    def _append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        self._count("append_log", len(rows))
        self._logging.append_log(repo, rows)

    def _read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        found = self._logging.read_log(repo, before, limit)
        self._count("read_log", len(found))
        return found

    def _count(
        self, method: str, rows: int = 0, read: Iterable[Row] = (), written: Iterable[Row] = ()
    ) -> None:
        with self._lock:
            self.counts[method] += 1
            if rows:
                self.rows[method] += rows
            self.rows_read_by_kind.update(row.kind for row in read)
            self.rows_written_by_kind.update(row.kind for row in written)
