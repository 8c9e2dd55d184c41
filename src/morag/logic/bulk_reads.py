"""Reads for jobs that read a whole history once: past the cache, many rows at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from morag.errors import RepositoryCorrupt
from morag.format.export_transcoding import stored_commit
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import ADD, exists, with_action
from morag.format.object_codec import decode, encode
from morag.format.objects import Commit
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.persist.persist import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.export_transcoding import StoredCommit
    from morag.format.records import ObjId
    from morag.persist.persist import Persist


def read_stored(persist: Persist, ids: Sequence[ObjId]) -> list[StoredCommit]:
    """Like `read_commits`, in the form that an export takes: in half the time.

    A commit at which the history was cut gets all entries that it inherited as its own operations:
    otherwise they would be lost with its ancestors.
    """
    rows = persist.find(ids)
    if lost := [id for id in ids if id not in rows]:
        raise ObjectMissing(lost)
    commits = [stored_commit(rows[id]) for id in ids]
    return [
        _with_inherited(persist, commit)
        if commit.seq > 1 and commit.parent == NO_ANCESTOR
        else commit
        for commit in commits
    ]


def read_commits(persist: Persist, ids: Sequence[ObjId]) -> list[Commit]:
    """The commits in this order. Their ids are not checked: see `proof.own_operations`."""
    rows = persist.find(ids)
    if lost := [id for id in ids if id not in rows]:
        raise ObjectMissing(lost)
    commits = []
    for id in ids:
        commit = decode(rows[id])
        if not isinstance(commit, Commit):
            raise RepositoryCorrupt.object(id, f"is a {type(commit).__name__}, not a Commit")
        if commit.incomplete:
            raise RepositoryCorrupt.object(id, "is incomplete: its import was cut short")
        commits.append(commit)
    return commits


def _with_inherited(persist: Persist, stored: StoredCommit) -> StoredCommit:
    commit = stored.decoded()
    index = index_of(persist, commit)
    removes = [entry for entry in index.operations() if not exists(entry[1])]
    entries = sorted([*((key, with_action(ADD, op)) for key, op in index.items()), *removes])
    whole = replace(
        commit,
        incremental=Segment.build(entries).serialize(),
        reference_index=None,
        stripes=(),
        sealed=False,
    )
    return stored_commit(encode(whole, stored.row.referenced_micros))
