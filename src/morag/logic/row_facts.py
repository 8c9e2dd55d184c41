"""The facts about a row by which a purge decides about it, without reading it again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.objects import KINDS, Commit, Unique
from morag.format.records import ObjId
from morag.logic.commit_graph import GraphCommit
from morag.logic.needed_objects import graph_commit, is_content_claim

if TYPE_CHECKING:
    from morag.format.records import Row


class RowFacts(Struct, frozen=True, gc=False, array_like=True):
    """`seq` and `parents` are those of a commit that can be read.

    A row is not `understood` if its kind is unknown, or if it is a claim on something else than a
    content id: nobody knows who needs it.
    """

    id: ObjId
    kind: str
    referenced_micros: int
    size_bytes: int
    understood: bool = True
    seq: int = 0
    parents: tuple[ObjId, ...] = ()

    @classmethod
    def of(cls, row: Row) -> RowFacts:
        understood, seq = row.kind in KINDS, 0
        parents: tuple[ObjId, ...] = ()
        try:
            if row.kind == Commit.kind_letter:
                commit = graph_commit(row)
                seq, parents = commit.seq, (commit.parent, *commit.merge_parents)
            elif row.kind == Unique.kind_letter:
                understood = is_content_claim(row)
        except RepositoryCorrupt:
            # A damaged commit is missed in the graph, if it is needed.
            understood = row.kind == Commit.kind_letter
        return cls(row.id, row.kind, row.referenced_micros, len(row.data), understood, seq, parents)

    @property
    def commit(self) -> GraphCommit | None:
        if not self.parents:
            return None
        return GraphCommit(self.id, self.parents[0], self.seq, self.parents[1:])
