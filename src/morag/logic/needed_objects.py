"""The objects that an object needs: pure functions of rows, for marking what is reachable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.ids import NO_ANCESTOR, unique_id
from morag.format.index_entries import content_id_of, has_content_id, payload_of, value_of
from morag.format.objects import (
    CONTENT_ID_SPACE,
    Commit,
    Index,
    IndexSegments,
    RefObj,
    StringObj,
    Unique,
)
from morag.index.segment import Segment
from morag.logic.commit_graph import GraphCommit

if TYPE_CHECKING:
    from morag.format.records import ObjId, Row

POINTING_KINDS: Final = frozenset(
    kind.kind_letter for kind in (Commit, IndexSegments, Index, RefObj, StringObj)
)
"""Kinds of objects that may need others."""


def graph_commit(row: Row) -> GraphCommit:
    """The commit in the row, without its content."""
    commit = codec.decode(row)
    assert isinstance(commit, Commit), "the row is of kind COMMIT"
    return GraphCommit(commit.id, commit.parent, commit.seq, commit.merge_parents)


def is_content_claim(row: Row) -> bool:
    """Whether the row of a `Unique` claims a content id, so that entries with it need the row."""
    claim = codec.decode(row)
    return isinstance(claim, Unique) and claim.space == CONTENT_ID_SPACE


class NeededObjects:
    """Collects the ids of what rows need, each once.

    `follow` are ids of objects that may need others; `leaves` those of objects that never do.
    The commit that a `RefObj` started at is left out: it is needed only while the ref of that name
    is missing, which the caller knows.
    """

    def __init__(self) -> None:
        self.follow: set[ObjId] = set()
        self._leaves: set[ObjId] = set()
        self._content_ids: set[bytes] = set()

    def add(self, row: Row) -> None:
        """Raises `RepositoryCorrupt` if the row cannot be read, or is an incomplete commit."""
        obj = codec.decode(row)
        if isinstance(obj, Commit):
            self._add_commit(obj)
        elif isinstance(obj, IndexSegments):
            stripes = obj.memo.form or codec.decode_stripes(obj.encoded)  # Decoded for its id.
            self.follow.update(stripe.segment for stripe in stripes)
        elif isinstance(obj, Index):
            self._add_entries(obj.id, obj.encoded)
        elif isinstance(obj, RefObj):
            if obj.extended_info is not None:
                self._leaves.add(obj.extended_info)
        elif isinstance(obj, StringObj):
            self.follow.update(obj.predecessors)

    @property
    def leaves(self) -> set[ObjId]:
        claims = {unique_id(CONTENT_ID_SPACE, content_id) for content_id in self._content_ids}
        return claims | self._leaves

    def _add_commit(self, commit: Commit) -> None:
        if commit.incomplete:
            raise RepositoryCorrupt(
                f"Commit {commit.id.hex()} is incomplete: its import was cut short"
            )
        self.follow.update(commit.parents)
        if commit.reference_index is not None:
            self.follow.add(commit.reference_index)
        self.follow.update(stripe.segment for stripe in commit.stripes)
        self._add_entries(commit.id, commit.incremental)

    def _add_entries(self, id: ObjId, encoded: bytes) -> None:
        try:
            entries = list(Segment.decode(encoded).items())
        except UNREADABLE as damage:
            raise RepositoryCorrupt.object(id, f"has no readable index ({damage})") from damage
        for _, op in entries:
            value = value_of(op)
            if value and value != NO_ANCESTOR:
                # Contents need nothing. Payload 0 is that of names and settings, whose objects may,
                # and of contents that an old Nessie wrote.
                (self._leaves if payload_of(op) else self.follow).add(value)
            if has_content_id(op):
                self._content_ids.add(content_id_of(op))
