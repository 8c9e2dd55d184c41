"""Walks the history of a store in lines: along first parents, up to a commit that is known."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from morag.format.ids import NO_ANCESTOR
from morag.logic.bulk_reads import read_stored
from morag.logic.commit_graph import CommitGraph, GraphCommit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.format.export_transcoding import StoredCommit
    from morag.format.records import ObjId
    from morag.persist.persist import Persist

_COMMITS_AT_ONCE: Final = 500
_INDEX_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_NOTED_AT_ONCE: Final = 10_000
_id: Final = attrgetter("id")


class Lines:
    """Gives each commit once, and notes it in a graph.

    If a commit was given, all its first parents were. So a line that is given oldest first has all
    its parents before it, and one look at the oldest of several commits tells whether all are new.
    """

    def __init__(self, persist: Persist, graph: CommitGraph) -> None:
        self._persist = persist
        self._graph = graph
        self._noted: list[GraphCommit] = []

    def of(self, head: ObjId) -> Iterator[list[StoredCommit]]:
        """The new commits of a head and its first parents, newest first, some hundreds at a time.

        Read all of them before the next line.
        """
        batch: list[StoredCommit] = []
        batch_bytes = 0
        ids: Sequence[ObjId] = (head,)
        while ids := self._unknown(ids):
            commits = _connected(read_stored(self._persist, ids))
            batch += commits
            batch_bytes += sum([len(commit.incremental) for commit in commits])
            ids = commits[-1].tail
            if len(batch) >= _COMMITS_AT_ONCE or batch_bytes >= _INDEX_BYTES_AT_ONCE:
                self._note(batch)
                yield batch
                batch, batch_bytes = [], 0
        self._note(batch)
        self._add_noted()
        if batch:
            yield batch

    def _unknown(self, ids: Sequence[ObjId]) -> Sequence[ObjId]:
        """The ids before the first one that is known, or before the start of the history."""
        if NO_ANCESTOR in ids:
            ids = ids[: ids.index(NO_ANCESTOR)]
        if not ids or ids[-1] not in self._graph:
            return ids
        low, high = 0, len(ids) - 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if ids[middle] in self._graph else (middle + 1, high)
        return ids[:low]

    def _note(self, commits: list[StoredCommit]) -> None:
        """Note commits of the current line; no look-up meets them before it ends."""
        self._noted += [
            GraphCommit(commit.id, commit.parent, commit.seq, commit.merge_parents)
            for commit in commits
        ]
        if len(self._noted) >= _NOTED_AT_ONCE:
            self._add_noted()

    def _add_noted(self) -> None:
        self._graph.add(sorted(self._noted, key=_id))  # Sorted, they are inserted faster.
        self._noted = []


def _connected(commits: list[StoredCommit]) -> list[StoredCommit]:
    """The commits up to the first one whose parent is not the next: a tail may be outdated."""
    for at, (commit, older) in enumerate(pairwise(commits), 1):
        if commit.parent != older.id:
            return commits[:at]
    return commits
