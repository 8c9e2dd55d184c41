"""A store in the memory of one process: the reference implementation of the backend contract."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from threading import Lock
from typing import TYPE_CHECKING, Final

from morag.backend.base import UNIQUE_KIND, WHOLE, Applied, Row, is_unchanged
from morag.backend.engines import Engine, Traits
from morag.backend.ordered_keys import id_range
from morag.errors import StoreUrlInvalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, Ref, RefSwap, Slice
    from morag.backend.urls import StoreUrl


ENGINE: Final = Engine(
    "morag.backend.memory:open_memory",
    Traits(embedded=True, private=True),
)


def open_memory(url: StoreUrl) -> MemoryBackend:
    url.check_options(frozenset())
    if url.rest:
        raise StoreUrlInvalid(f"'{url}' names a location, but memory has none; write memory:")
    return MemoryBackend()


class MemoryBackend:
    """Writers take turns under one lock. Readers need none: each looks up one key at a time."""

    is_private: Final = True
    needs_sync: Final = False

    def __init__(self) -> None:
        self._repos: defaultdict[str, _Repo] = defaultdict(_Repo)  # Grows under the lock only.
        self._lock = Lock()

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        refs = self._repos.get(repo, _NOTHING).refs
        return {name: ref for name in names if (ref := refs.get(name)) is not None}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        with self._lock:
            stored = self._repos[repo]
            if not stored.expects(swap):
                return False
            stored.move(swap)
            return True

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        rows = self._repos.get(repo, _NOTHING).rows
        return {id: row for id in ids if (row := rows.get(id)) is not None}

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        with self._lock:
            return self._repos[repo].insert(rows)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        with self._lock:
            rows = self._repos[repo].rows
            stored = rows.get(expected.id)
            if stored is None or stored.kind != expected.kind or stored.version != expected.version:
                return False
            if new is None:
                del rows[expected.id]
            else:
                rows[expected.id] = new
            return True

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        with self._lock:
            rows = self._repos[repo].rows
            for id in ids:
                rows.pop(id, None)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        with self._lock:
            stored = self._repos[repo].rows
            same = [row.id for row in rows if is_unchanged(stored.get(row.id), row)]
            for id in same:
                del stored[id]
        return frozenset(same)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        low, high = id_range(part)
        with self._lock:
            rows = list(self._repos[repo].rows.values())
        for row in rows:
            if (
                (not kinds or row.kind in kinds)
                and row.id >= low
                and (high is None or row.id < high)
            ):
                yield row

    def erase(self, repo: str) -> None:
        with self._lock:
            self._repos.pop(repo, None)

    def close(self) -> None:
        """Nothing to release."""

    def apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied:
        with self._lock:
            return self._repos[repo].apply(rows, (swap,), log)

    def apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool:
        with self._lock:
            return self._repos[repo].apply(rows, swaps, log).swapped

    def try_apply(
        self, repo: str, rows: Sequence[Row], swap: RefSwap, log: Sequence[LogRow] = ()
    ) -> Applied | None:
        return self._try(repo, rows, (swap,), log)

    def try_apply_all(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow] = ()
    ) -> bool | None:
        applied = self._try(repo, rows, swaps, log)
        return None if applied is None else applied.swapped

    def sync(self) -> None:
        """Nothing is durable, so nothing is left to do."""

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        with self._lock:
            self._repos[repo].append(rows)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        with self._lock:
            log = self._repos[repo].log
            end = len(log) if before is None else bisect_left(log, before, key=_key)
            return log[max(0, end - limit) : end][::-1]

    def _try(
        self, repo: str, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow]
    ) -> Applied | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._repos[repo].apply(rows, swaps, log)
        finally:
            self._lock.release()


class _Repo:
    """One repository. Its methods are called with the backend's lock held."""

    __slots__ = ("log", "refs", "rows")

    def __init__(self) -> None:
        self.refs: dict[str, Ref] = {}
        self.rows: dict[ObjId, Row] = {}
        self.log: list[LogRow] = []

    def apply(
        self, rows: Sequence[Row], swaps: Sequence[RefSwap], log: Sequence[LogRow]
    ) -> Applied:
        unique = [row.id for row in rows if row.kind == UNIQUE_KIND]
        fresh = [id for id in unique if id not in self.rows]
        if len(fresh) < len(unique) or not all(map(self.expects, swaps)):
            return Applied(swapped=False, new=frozenset(fresh))
        # The refs come last: readers take no lock, and must find what they point to.
        new = self.insert(rows)
        self.append(log)
        for swap in swaps:
            self.move(swap)
        return Applied(swapped=True, new=new)

    def expects(self, swap: RefSwap) -> bool:
        stored, expected = self.refs.get(swap.name), swap.expected
        if stored is None or expected is None:
            return stored is expected
        return stored.identity == expected.identity

    def move(self, swap: RefSwap) -> None:
        if swap.new is None:
            self.refs.pop(swap.name, None)
        else:
            self.refs[swap.name] = swap.new

    def insert(self, rows: Sequence[Row]) -> frozenset[ObjId]:
        new, here = [], self.rows
        for row in rows:
            stored = here.get(row.id)
            if stored is None:
                here[row.id] = row
                new.append(row.id)
            else:
                here[row.id] = Row(
                    stored.id, stored.kind, stored.data, stored.version, row.referenced_micros
                )
        return frozenset(new)

    def append(self, rows: Sequence[LogRow]) -> None:
        log = self.log
        for row in rows:
            if not log or log[-1].key < row.key:  # The usual case, because keys rise.
                log.append(row)
                continue
            at = bisect_left(log, row.key, key=_key)
            if log[at].key == row.key:
                log[at] = row
            else:
                log.insert(at, row)


_NOTHING = _Repo()


def _key(row: LogRow) -> bytes:
    return row.key
