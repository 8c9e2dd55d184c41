"""Puts a commit on top of its parent: the parent's index with its operations, and its tail.

New commits, imported ones and those that Spark completes all get their indexes here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from morag.format.ids import NO_ANCESTOR, Headers
from morag.format.objects import Commit, CommitKind, Index, IndexSegments
from morag.format.records import ObjId
from morag.index.layered import index_of
from morag.index.spill import checkpoint_index, grown_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.index.segment import Entry, Segment
    from morag.index.spill import NewIndex
    from morag.persist.persist import Persist


class CommitFacts(Struct, frozen=True, kw_only=True):
    """The statements of a commit about itself: everything but its keys and its ancestors."""

    id: ObjId
    created_micros: int
    seq: int
    merge_parents: tuple[ObjId, ...] = ()
    headers: Headers = ()
    message: str = ""
    sealed: bool = False
    kind: CommitKind = CommitKind.NORMAL


class BuiltCommit(Struct, frozen=True):
    """A commit and the index objects that must be stored with it. Nothing is stored yet."""

    commit: Commit
    indexes: tuple[Index | IndexSegments, ...]
    changes: int


def commit_on(
    persist: Persist, parent: Commit | None, facts: CommitFacts, operations: Sequence[Entry]
) -> BuiltCommit:
    """The complete commit with these operations, which come in key order, on top of `parent`."""
    inherited = (None, ()) if parent is None else (parent.reference_index, parent.stripes)
    grown = grown_index(persist, index_of(persist, parent), inherited, operations)
    if parent is None:
        tail: tuple[ObjId, ...] = (NO_ANCESTOR,)
    else:
        tail = (parent.id, *parent.tail)[: persist.settings.parents_per_commit]
    return _built(facts, tail, grown, len(operations))


def checkpoint_on(
    persist: Persist,
    before: Commit | None,
    changes: Segment,
    tail: tuple[ObjId, ...],
    facts: CommitFacts,
    operations: Sequence[Entry],
) -> BuiltCommit:
    """The complete commit with these operations, some commits after `before`.

    `changes` has the last operation on each key of the commits in between, and `tail` their ids and
    those before them, newest first. So the commits in between need not be complete.
    """
    grown = checkpoint_index(persist, index_of(persist, before), changes, operations)
    return _built(facts, tail, grown, len(operations))


def _built(
    facts: CommitFacts, tail: tuple[ObjId, ...], grown: NewIndex, changes: int
) -> BuiltCommit:
    commit = Commit(
        id=facts.id,
        created_micros=facts.created_micros,
        seq=facts.seq,
        tail=tail,
        merge_parents=facts.merge_parents,
        headers=facts.headers,
        message=facts.message,
        reference_index=grown.reference_index,
        stripes=grown.stripes,
        incremental=grown.incremental,
        sealed=facts.sealed,
        kind=facts.kind,
    )
    commit.memo.form = grown.index
    return BuiltCommit(commit, grown.objects, changes)
