"""Splits calls that are too large for an engine."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from morag.backend.base import WHOLE, Backend, KeepsRefLog, LimitsNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Limits, LogRow, ObjId, Ref, RefSwap, Row, Slice

T = TypeVar("T")


@runtime_checkable
class LimitedBackend(Backend, KeepsRefLog, Protocol):
    """A backend with limits on the size of a call. None of these has `apply`."""

    limits: Limits


class SplittingBackend:
    """Splits calls, so that none exceeds the limits of `backend`.

    That breaks no promise: a backend promises nothing across several rows.
    """

    def __init__(self, backend: LimitedBackend) -> None:
        self._backend = backend
        self.limits = backend.limits
        self.row_bytes = backend.limits.row_bytes
        if isinstance(backend, LimitsNames):
            self.most_name_characters = backend.most_name_characters

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        found: dict[str, Ref] = {}
        for some in _batched(names, self.limits.rows_at_once):
            found.update(self._backend.read_refs(repo, some))
        return found

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        return self._backend.swap_ref(repo, swap)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        found: dict[ObjId, Row] = {}
        for some in _batched(ids, self.limits.rows_at_once):
            found.update(self._backend.read_rows(repo, some))
        return found

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        new: set[ObjId] = set()
        for some in fitting(rows, self.limits):
            new |= self._backend.insert_rows(repo, some)
        return frozenset(new)

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        return self._backend.swap_row(repo, expected, new)

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        for some in _batched(ids, self.limits.rows_at_once):
            self._backend.delete_rows(repo, some)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        deleted: set[ObjId] = set()
        for some in _batched(rows, self.limits.rows_at_once):
            deleted |= self._backend.delete_unreferenced(repo, some)
        return frozenset(deleted)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        return self._backend.scan_rows(repo, kinds, part)

    def erase(self, repo: str) -> None:
        self._backend.erase(repo)

    def close(self) -> None:
        self._backend.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        for some in _batched(rows, self.limits.rows_at_once):
            self._backend.append_log(repo, some)

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        return self._backend.read_log(repo, before, limit)


def _batched(items: Iterable[T], most: int) -> Iterator[list[T]]:
    items = iter(items)
    while some := list(islice(items, most)):
        yield some


def fitting(rows: Iterable[Row], limits: Limits) -> Iterator[list[Row]]:
    """The rows in their order, in groups that are small enough in number and size."""
    group: list[Row] = []
    size_bytes = 0
    for row in rows:
        full = len(group) == limits.rows_at_once
        if group and (full or size_bytes + len(row.data) > limits.bytes_at_once):
            yield group
            group, size_bytes = [], 0
        group.append(row)
        size_bytes += len(row.data)
    if group:
        yield group
