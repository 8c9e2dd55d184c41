"""Removes the objects that no reference leads to, while servers go on.

docs/decisions/0016-purge-safety.md explains why nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.logic.import_marker import check_not_importing
from morag.logic.repository import check_exists, read_description
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.maintenance.journal import Journal
from morag.versions.maintenance.mark_table import REFERENCED, REMOVED, MarkTable
from morag.versions.maintenance.marking import Marking
from morag.versions.maintenance.purge_report import PurgeReport, PurgeRequest
from morag.versions.maintenance.purge_work import LocalWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from morag.backend.base import Backend
    from morag.config import Settings
    from morag.logic.row_facts import RowFacts
    from morag.versions.maintenance.purge_work import PurgeWork
    from morag.versions.world import World

_CACHE_BYTES: Final = 32 << 20


class PurgeProgress(Struct, frozen=True):
    """A step of a purge that was just done, and how many rows of it."""

    stage: str
    rows: int


def purge(
    backend: Backend,
    settings: Settings,
    world: World,
    request: PurgeRequest,
    journal: Path | None = None,
    show: Callable[[PurgeProgress], None] = lambda _: None,
    make_work: Callable[[LocalWork], PurgeWork] = lambda local: local,
) -> PurgeReport:
    """Remove what no reference leads to, or report it. A real run needs a `journal` directory.

    `make_work` replaces the functions that read and delete many rows.
    """
    running = Purge(backend, settings, world, request, journal, make_work)
    try:
        for progress in running.steps():
            show(progress)
        return running.report()
    finally:
        running.close()


class Purge:
    """One purge. `steps` does the work, and pauses wherever other writers may come in between."""

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        world: World,
        request: PurgeRequest,
        journal: Path | None = None,
        make_work: Callable[[LocalWork], PurgeWork] = lambda local: local,
    ) -> None:
        request.check()
        self._world, self._request = world, request
        persist = Persist(backend, ObjectCache(_CACHE_BYTES), settings, world.clock_nanos)
        check_exists(persist)
        description = read_description(persist)
        check_not_importing(description)
        self._journal: Journal | None = None
        if not request.dry_run:
            assert journal is not None, "a purge that removes rows needs a journal"
            identity = f"{settings.repository_id}\n{description.repository_created_time}"
            self._journal = Journal(journal, identity)
            self._journal.absorb()
        self._table = MarkTable(
            persist.now_micros() - int(request.grace_seconds * 1_000_000),
            keep_undated=not request.include_undated,
        )
        write_journal = None if self._journal is None else self._journal.write
        self._work = make_work(LocalWork(backend, settings.repository_id, write_journal))
        self._marking = Marking(backend, persist, self._table, self._journal, self._work)

    def steps(self) -> Iterator[PurgeProgress]:
        """Do everything. Ends early with an error if the repository is damaged."""
        for stage, rows in self._marking.mark_all():
            yield PurgeProgress(stage, rows)
        self._table.doom()
        if self._journal is not None:
            yield from self._sweep(self._journal)
            yield from self._settle(self._journal)
            self._journal.remove()
            self._journal = None

    def report(self) -> PurgeReport:
        dry_run = self._request.dry_run
        return PurgeReport.of(self._table.sums(dry_run=dry_run), dry_run, self._marking.put_back)

    def close(self) -> None:
        """Release the files. A journal stays if the purge has not ended."""
        self._table.close()
        if self._journal is not None:
            self._journal.close()

    def _sweep(self, journal: Journal) -> Iterator[PurgeProgress]:
        count, started = 0, self._world.monotonic()
        at_once, rate = self._request.rows_at_once, self._request.rows_per_second
        if rate is not None:  # Otherwise a large batch would be a burst.
            at_once = max(1, min(at_once, int(rate)))
        for doomed in self._table.doomed(at_once):
            self._marking.mark_again()
            yield PurgeProgress("sweep", count)
            left = frozenset(self._table.unmarked([row.id for row in doomed]))
            self._remove([row for row in doomed if row.id in left], journal)
            yield PurgeProgress("sweep", count)
            self._marking.mark_again()
            count += len(doomed)
            if rate is not None:
                due = started + count / rate
                self._world.sleep(max(0.0, due - self._world.monotonic()))
        yield PurgeProgress("sweep", count)

    def _remove(self, doomed: Sequence[RowFacts], journal: Journal) -> None:
        removal = self._work.remove(doomed)
        journal.absorb()
        self._table.note(removal.deleted, REMOVED)
        # Rows that were written again stay, and with them everything that they need.
        self._table.note(removal.written_again, REFERENCED)
        self._marking.keep(removal.written_again)

    def _settle(self, journal: Journal) -> Iterator[PurgeProgress]:
        """Wait for requests that saw objects before they were removed, then look once more."""
        if journal.is_empty:
            return
        self._world.sleep(self._request.settle_seconds)
        yield PurgeProgress("settle", 0)
        self._marking.mark_again()
