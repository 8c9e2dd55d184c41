"""A backend that refuses writes, for jobs that read a store while a server writes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from morag.backend.base import WHOLE, KeepsRefLog, LimitsNames
from morag.errors import StoreReadOnly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Backend, LogRow, ObjId, Ref, RefSwap, Row, Slice


class ReadOnlyBackend:
    """Passes reads on to `backend` and refuses all writes.

    Some engines also open their store read-only. This class covers the others, and shows the layers
    above that the store is read-only. It has neither `apply` nor `check_writable`.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        if isinstance(backend, LimitsNames):
            self.most_name_characters = backend.most_name_characters

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        return self._backend.read_refs(repo, names)

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        _refuse()

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return self._backend.read_rows(repo, ids)

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        _refuse()

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        _refuse()

    def delete_rows(self, repo: str, ids: Iterable[ObjId]) -> None:
        _refuse()

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        _refuse()

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        return self._backend.scan_rows(repo, kinds, part)

    def erase(self, repo: str) -> None:
        _refuse()

    def close(self) -> None:
        self._backend.close()

    def append_log(self, repo: str, rows: Sequence[LogRow]) -> None:
        _refuse()

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        if not isinstance(self._backend, KeepsRefLog):
            return []
        return self._backend.read_log(repo, before, limit)


def _refuse() -> NoReturn:
    raise StoreReadOnly
