"""Marks every object that a reference leads to, and everything that such an object needs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.objects import Commit
from morag.logic.commit_graph import CommitGraph
from morag.logic.live_roots import live_roots
from morag.logic.row_facts import RowFacts
from morag.versions.maintenance.journal import put_back
from morag.versions.maintenance.purge_work import LocalWork, expand_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.backend.base import Backend
    from morag.format.records import ObjId, Row
    from morag.persist.persist import Persist
    from morag.versions.maintenance.journal import Journal
    from morag.versions.maintenance.mark_table import MarkTable
    from morag.versions.maintenance.purge_work import Expansion, PurgeWork

_READ_AT_ONCE: Final = 200
_IN_A_LINE: Final = 1000
_ADVICE: Final = "the purge ends here; run `morag admin check` to see what else is damaged"


class _How(Struct, frozen=True):
    """`needed`: nothing may be missing. `live`: a reference leads to it."""

    needed: bool
    live: bool


_NEEDED: Final = _How(needed=True, live=True)
_LIVE: Final = _How(needed=False, live=True)
_KEPT: Final = _How(needed=False, live=False)


class Marking:
    """Marks objects in `table`: first all, by a scan of all rows; later what became reachable.

    An object that is missing in the store, but is in the journal, is put back: a purge deleted it,
    and a reference leads to it now. If an object is in neither and a head needs it, the repository
    is damaged, and nobody knows what else the missing object needs: then nothing may be removed.
    """

    def __init__(
        self,
        backend: Backend,
        persist: Persist,
        table: MarkTable,
        journal: Journal | None,
        work: PurgeWork,
    ) -> None:
        self._backend = backend
        self._repo = persist.settings.repository_id
        self._persist = persist
        self._table = table
        self._journal = journal
        self._work = work
        self._local = LocalWork(backend, self._repo, None)
        self.put_back = 0

    def mark_all(self) -> Iterator[tuple[str, int]]:
        """Mark everything, in steps; yields what was done and how often.

        Rows that stay for a reason of their own need others: these are marked, too, if they exist.
        """
        roots = list(live_roots(self._persist))  # First: the scan then finds all their commits.
        with CommitGraph() as graph:
            count = 0
            for rows in self._all_facts():
                self._table.add(rows)
                graph.add(commit for row in rows if (commit := row.commit) is not None)
                count += len(rows)
                yield "scan", count
            graph.mark(root.id for root in roots if root.needed)
            self._check_complete(graph)
            yield from self._mark_lines(graph, _NEEDED)
            graph.mark(root.id for root in roots)
            self._mark(graph.marked(), _LIVE, self._work)
            yield "mark", len(graph)
            graph.mark(self._table.keeping(commits=True))
            self._mark(graph.marked(), _KEPT, self._work)
            yield "mark", len(graph)
        self.keep(self._table.keeping(commits=False))

    def mark_again(self) -> None:
        """Mark what references lead to now. Call it before and after something is removed."""
        needed: set[ObjId] = set()
        other: set[ObjId] = set()
        roots = live_roots(self._persist)
        while some := list(islice(roots, _READ_AT_ONCE)):
            unmarked = set(self._table.unmarked([root.id for root in some]))
            for root in some:
                if root.id in unmarked:
                    (needed if root.needed else other).add(root.id)
        self._mark(needed, _NEEDED)
        self._mark(other, _LIVE)

    def keep(self, ids: Iterable[ObjId]) -> None:
        """Mark objects that stay for another reason, and what they need, as far as it is there."""
        self._mark(ids, _KEPT)

    def _all_facts(self) -> Iterator[Sequence[RowFacts]]:
        yield from self._work.facts()
        if self._journal is not None:
            # Rows of an interrupted purge. Their parents may be in the store and be needed.
            rows = self._journal.rows(Commit.kind_letter)
            while some := [RowFacts.of(row) for row in islice(rows, _READ_AT_ONCE)]:
                yield some

    def _check_complete(self, graph: CommitGraph) -> None:
        missing = list(islice(graph.missing(), 1))
        if missing:
            rows = self._backend.read_rows(self._repo, missing)
            state = "is damaged" if missing[0] in rows else "is missing"
            raise RepositoryCorrupt(
                f"Commit {missing[0].hex()}, to which a reference leads, {state}: {_ADVICE}"
            )

    def _mark_lines(self, graph: CommitGraph, how: _How) -> Iterator[tuple[str, int]]:
        """Mark the commits that the graph marked, and what they need.

        They are followed along lines of history: neighbours have most of their index in common.
        """
        count = 0

        def batches() -> Iterator[list[ObjId]]:
            nonlocal count
            lines = graph.lines(_IN_A_LINE, only_marked=True)
            ids = (commit.id for line in lines for commit in line.commits)
            while some := list(islice(ids, _READ_AT_ONCE)):
                self._table.mark(some, follow=False, live=how.live)
                count += len(some)
                yield some

        for expansion in self._work.expand(batches()):
            self._add(expansion, how)
            yield "mark", count
        self._follow(how, self._work)
        yield "mark", count

    def _mark(self, ids: Iterable[ObjId], how: _How, work: PurgeWork | None = None) -> None:
        """Mark the ids, and what their objects need, until there is nothing new."""
        self._table.mark(ids, follow=True, live=how.live)
        self._follow(how, work or self._local)

    def _follow(self, how: _How, work: PurgeWork) -> None:
        while True:
            found = False
            for expansion in work.expand(self._to_follow()):
                self._add(expansion, how)
                found = True
            if not found:
                return

    def _to_follow(self) -> Iterator[list[ObjId]]:
        while ids := self._table.take_to_follow(_READ_AT_ONCE):
            yield ids

    def _add(self, expansion: Expansion, how: _How) -> None:
        """Mark what some objects need. If they are missing, they may be in the journal."""
        if how.needed and expansion.damage:
            raise RepositoryCorrupt(f"{expansion.damage}; {_ADVICE}")
        self._table.mark(expansion.follow, follow=True, live=how.live)
        self._mark_leaves(expansion.leaves, how)
        if expansion.missing:
            deleted = [] if self._journal is None else self._journal.find(expansion.missing)
            if how.needed and len(deleted) < len(expansion.missing):
                lost = set(expansion.missing).difference(row.id for row in deleted)
                raise RepositoryCorrupt(
                    f"Object {min(lost).hex()}, to which a reference leads, is missing: {_ADVICE}"
                )
            if deleted:
                self._put_back(deleted)
                self._add(expand_rows(deleted), how)

    def _mark_leaves(self, ids: Sequence[ObjId], how: _How) -> None:
        if self._journal is not None and not self._journal.is_empty:
            self._put_back(self._journal.find(self._table.unmarked(ids)))
        self._table.mark(ids, follow=False, live=how.live)

    def _put_back(self, rows: Sequence[Row]) -> None:
        assert self._journal is not None, "the rows come from the journal"
        if rows:
            now_micros = self._persist.now_micros
            self.put_back += put_back(self._backend, self._repo, rows, now_micros)
            self._journal.forget([row.id for row in rows])
