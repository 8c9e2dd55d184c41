"""A backend that lets others act before each of its calls, or that ends a run at one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.backend.base import WHOLE
from tests.backend.counting import CountingBackend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.backend.base import Backend, ObjId, Ref, Row, Slice


class Killed(BaseException):
    """The process ends here."""


class InterruptedBackend(CountingBackend):
    """Calls `before` with the name of each method that a purge uses."""

    def __init__(self, backend: Backend, before: Callable[[str], None]) -> None:
        super().__init__(backend)
        self._before = before

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        self._before("read_refs")
        return super().read_refs(repo, names)

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        self._before("read_rows")
        return super().read_rows(repo, ids)

    def insert_rows(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._before("insert_rows")
        return super().insert_rows(repo, rows)

    def delete_unreferenced(self, repo: str, rows: Sequence[Row]) -> frozenset[ObjId]:
        self._before("delete_unreferenced")
        return super().delete_unreferenced(repo, rows)

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        self._before("scan_rows")
        return super().scan_rows(repo, kinds, part)
