"""The methods that are the same in all SQL engines: those of one statement each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from morag.backend.base import WHOLE
from morag.backend.sql import statements as sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.backend.base import LogRow, ObjId, Ref, RefSwap, Row, Slice
    from morag.backend.sql.statements import Keyed, Statement

Records: TypeAlias = "Sequence[Sequence[Any]]"

SCAN_AT_ONCE: Final = 500


class SqlBackend(ABC):
    """An engine adds a way to run a statement, and the methods with more than one statement."""

    @abstractmethod
    def _select(self, statement: Statement) -> Records: ...

    @abstractmethod
    def _change(self, statement: Statement) -> int:
        """The number of records that the condition matches, also those that do not change."""

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        return {ref.name: ref for ref in map(sql.to_ref, self._find(sql.REFS, repo, names))}

    def swap_ref(self, repo: str, swap: RefSwap) -> bool:
        if swap.expected is None and swap.new is None:
            return not self.read_refs(repo, [swap.name])
        return self._change(sql.change_ref(repo, swap)) == 1

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return {row.id: row for row in map(sql.to_row, self._find(sql.ROWS, repo, ids))}

    def swap_row(self, repo: str, expected: Row, new: Row | None) -> bool:
        return self._change(sql.change_row(repo, expected, new)) == 1

    def scan_rows(
        self, repo: str, kinds: frozenset[str] = frozenset(), part: Slice = WHOLE
    ) -> Iterator[Row]:
        # In short reads: a long one would make the database keep old versions of all rows.
        after: ObjId | None = None
        while True:
            statement = sql.scan_rows(repo, kinds, part, after, SCAN_AT_ONCE)
            records = self._select_page(statement)
            rows = [sql.to_scanned_row(record, kinds) for record in records]
            yield from rows
            if len(rows) < SCAN_AT_ONCE:
                return
            after = rows[-1].id

    def read_log(self, repo: str, before: bytes | None, limit: int) -> list[LogRow]:
        return [sql.to_log_row(r) for r in self._select(sql.select_log(repo, before, limit))]

    def _find(self, what: Keyed, repo: str, keys: Sequence[object]) -> Records:
        statements = self._look_ups(what, repo, keys)
        return [record for statement in statements for record in self._select(statement)]

    def _look_ups(self, what: Keyed, repo: str, keys: Sequence[object]) -> Iterator[Statement]:
        return sql.select(what, repo, keys)

    def _select_page(self, statement: Statement) -> Records:
        """Like `_select`, for a page that may examine many more records than it returns."""
        return self._select(statement)

    def _not_stored(self, repo: str, ids: Sequence[ObjId]) -> frozenset[ObjId]:
        return frozenset(ids).difference(id for (id,) in self._find(sql.IDS, repo, ids))
