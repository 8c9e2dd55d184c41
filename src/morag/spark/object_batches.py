"""Stores the objects of commits in batches, while the next commits are built on top of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.format.objects import Commit, Index, IndexSegments
from morag.logic.retry import Retries
from morag.persist.persist import Persist
from morag.versions.world import World

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.backend.base import Backend
    from morag.format.objects import Obj
    from morag.format.records import Row
    from morag.persist.cache import ObjectCache

_ROWS: Final = 16_000
_BYTES: Final = 16_000_000
"""Large: ids are random, so that a transaction of SQLite writes most pages of their index again."""
_TIMEOUT_MS: Final = 120_000
"""Other tasks may keep the store busy for longer than one commit would wait."""


class ObjectBatches:
    """Collects objects for the store of `persist`, whose cache is `cache`.

    Indexes are cached, because later commits need them; until they are stored, they are staged as
    well, because the cache may evict them.
    """

    def __init__(self, backend: Backend, persist: Persist, cache: ObjectCache) -> None:
        self._backend = backend
        self._persist = persist
        self._cache = cache
        # The clock of `persist` may not be the real one, but the time in a row protects it from
        # being removed as garbage.
        world = World()
        self._encoding = Persist(backend, cache, persist.settings, world.clock_nanos)
        settings = replace(persist.settings, commit_timeout_ms=_TIMEOUT_MS, commit_retries=None)
        self._retries = Retries(settings, world.monotonic, world.sleep, world.random)
        self._rows: list[Row] = []
        self._staged: list[Obj] = []
        self._bytes = 0
        self.rows = 0
        self.bytes = 0

    def add(self, objects: Sequence[Obj]) -> None:
        rows = self._encoding.encoded(objects)
        indexes: list[Obj] = []
        for row, each in zip(rows, objects, strict=True):
            self._bytes += len(row.data)
            if isinstance(each, Index | IndexSegments):
                self._cache.put(each, len(row.data))
                indexes.append(each)
        self._persist.stage(indexes)
        self._staged += indexes
        self._rows += rows
        self._flush_if_full()

    def add_row(self, row: Row) -> None:
        """A row that no commit is built on."""
        self._rows.append(row)
        self._bytes += len(row.data)
        self._flush_if_full()

    def _flush_if_full(self) -> None:
        if len(self._rows) >= _ROWS or self._bytes >= _BYTES:
            self.flush()

    def flush(self) -> None:
        """Store everything that was added. Waits as long as other tasks keep the store busy.

        Commits are stored last: if one is there, so is everything that it needs.
        """
        if not self._rows:
            return
        self._insert([row for row in self._rows if row.kind != Commit.kind_letter])
        self._insert([row for row in self._rows if row.kind == Commit.kind_letter])
        self._persist.unstage(self._staged)
        for each in self._staged:
            if isinstance(each, Index):
                each.settle()
        self.rows += len(self._rows)
        self.bytes += self._bytes
        self._rows, self._staged, self._bytes = [], [], 0

    def _insert(self, rows: list[Row]) -> None:
        repo, insert = self._persist.settings.repository_id, self._backend.insert_rows
        if rows:
            # Stores keep rows by id: neighbours share pages, and tasks lock rows in one order.
            rows.sort(key=lambda row: row.id)
            self._retries.repeat("insert", lambda: insert(repo, rows))
