"""A repository on a clock that tests turn, with helpers that make and count garbage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag import ContentKey, IcebergTable, Put, Settings
from morag.errors import RepositoryCorrupt
from morag.format.object_codec import decode
from morag.logic.consistency import Consistency, check_commit
from morag.logic.live_roots import live_roots
from morag.logic.needed_objects import NeededObjects
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.maintenance.purge import purge
from morag.versions.maintenance.purge_report import PurgeRequest
from morag.versions.repository import Repository
from morag.versions.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import Backend, Row
    from morag.format.records import ObjId
    from morag.versions.maintenance.purge_report import PurgeReport

DAY_NANOS = 86_400 * 10**9
SMALL = Settings(
    max_incremental_index_bytes=400,
    min_index_segment_bytes=200,
    max_index_segment_bytes=600,
    max_inlined_stripes=2,
)
"""Sizes with which a few keys need stripes and directories of stripes."""


class Scenario:
    """Everything that happens takes a second of the scenario's own time."""

    def __init__(self, backend: Backend, settings: Settings = SMALL) -> None:
        self.backend, self.settings = backend, settings
        self._now = 1_794_776_952 * 10**9
        self._numbers = iter(range(1, 1 << 30))
        self.world = World(clock_nanos=self._tick, sleep=lambda _: None, new_uuid=self._new_uuid)
        self.repo = Repository(backend, settings, self.world)

    def another_server(self) -> Repository:
        """Another server on the same store, with an empty cache."""
        return Repository(self.backend, self.settings, self.world)

    def put(self, branch: str, *names: str, location: str | None = None) -> str:
        """Create or update tables."""
        keys = [ContentKey.of(name) for name in names]
        found = self.repo.contents.get_all(branch, keys)
        puts = []
        for key in keys:
            table = a_table(location or f"{key}-{next(self._numbers)}")
            puts.append(Put(key, replace(table, id=found[key].id) if key in found else table))
        return self.repo.commit(branch, puts, "put").hash

    def days_pass(self, days: float = 2) -> None:
        self._now += int(days * DAY_NANOS)

    def purge(self, journal: Path | None, **options: object) -> PurgeReport:
        """Remove unreachable objects for real, if there is a journal."""
        request = PurgeRequest(dry_run=journal is None, **options)  # type: ignore[arg-type]
        return purge(self.backend, self.settings, self.world, request, journal)

    def rows(self) -> dict[ObjId, Row]:
        return {row.id: row for row in self.backend.scan_rows(self.settings.repository_id)}

    def reachable(self) -> set[ObjId]:
        """All ids that references lead to, found by the simplest walk, in memory."""
        persist = self.persist()
        seen: set[ObjId] = set()
        todo = [root.id for root in live_roots(persist)]
        rows = self.rows()
        while todo:
            id = todo.pop()
            if id in seen or id not in rows:
                continue
            seen.add(id)
            found = NeededObjects()
            found.add(rows[id])
            todo += [*found.follow, *found.leaves]
        return seen

    def check(self) -> None:
        """Fail if an object is missing or damaged that a reference leads to."""
        persist = self.persist()
        rows = self.rows()
        todo, seen = [root.id for root in live_roots(persist) if root.needed], set()
        while todo:
            id = todo.pop()
            if id in seen:
                continue
            seen.add(id)
            status = check_commit(persist, id)
            problems = [(f.id.hex(), f.problem) for f in status.findings]
            # Names and settings are not contents, which is all that this check knows.
            if status.commit is None or status.commit.kind.name == "NORMAL":
                assert status.consistency is Consistency.COMMIT_CONSISTENT, problems
            assert status.commit is not None
            todo += status.commit.parents
            found = NeededObjects()
            found.add(rows[id])
            for value in found.follow:
                decode(rows[value])

    def persist(self) -> Persist:
        return Persist(self.backend, ObjectCache(1 << 20), self.settings, self.world.clock_nanos)

    def _tick(self) -> int:
        self._now += 10**9
        return self._now

    def _new_uuid(self) -> bytes:
        return next(self._numbers).to_bytes(16, "big")


def a_table(location: str) -> IcebergTable:
    return IcebergTable(
        metadata_location=location, snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1
    )


def is_damaged(scenario: Scenario) -> bool:
    try:
        scenario.check()
    except (AssertionError, RepositoryCorrupt):
        return True
    return False
