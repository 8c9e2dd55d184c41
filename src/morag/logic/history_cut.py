"""Cuts a history: a commit loses its ancestors, which a purge can then remove.

Ids stay. The tails of later commits that go beyond the commit are shortened to it, and at last the
commit itself loses its parents. Each step leaves a repository that can be read, so an interrupted
cut does no harm, and the same call completes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import BadRequest, RepositoryCorrupt, StoreBusy
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.format.records import ObjId
from morag.logic.cut_points import record_cut
from morag.logic.history import find_commit
from morag.logic.refutation import is_cut_point

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.backend.base import Backend
    from morag.format.records import Row
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

_MOST_SCANS: Final = 3
"""Servers should be stopped. If one was not, it may have written commits with old tails."""


class HistoryCut(Struct, frozen=True):
    """The changes that a cut made, or would make."""

    id: ObjId
    parents: tuple[ObjId, ...]
    """The parents that the commit lost; none if the history was cut here before."""
    shortened: int
    """The number of commits whose tails were shortened."""


def plan_cut(persist: Persist, backend: Backend, id: ObjId) -> HistoryCut:
    """What `cut_history` would change. Nothing is changed."""
    commit = _commit(persist, id)
    return HistoryCut(id, commit.parents, sum(1 for _ in _beyond(persist, backend, id)))


def cut_history(persist: Persist, backend: Backend, retries: Retries, id: ObjId) -> HistoryCut:
    """Remove the parents of the commit. Running servers must be restarted: they cache commits."""
    commit, shortened = _commit(persist, id), 0
    if commit.parents:
        record_cut(persist, retries, commit)
    for _ in range(_MOST_SCANS):
        changed = 0
        for row, later in _beyond(persist, backend, id):
            tail = later.tail[: later.tail.index(id) + 1]
            _rewrite(persist, backend, row, replace(later, tail=tail))
            changed += 1
        shortened += changed
        if not changed:
            break
    if commit.parents:
        (row,) = persist.find([id]).values()
        cut = replace(commit, tail=(NO_ANCESTOR,), merge_parents=(), sealed=False)
        _rewrite(persist, backend, row, cut)
    return HistoryCut(id, commit.parents, shortened)


def _commit(persist: Persist, id: ObjId) -> Commit:
    commit = find_commit(persist, id)
    if commit is None:
        raise BadRequest("The empty history, which has no commits, cannot be cut")
    if not commit.parents and not is_cut_point(persist, commit):
        raise BadRequest(f"Commit {id.hex()} has no ancestors: its history begins with it")
    return commit


def _beyond(persist: Persist, backend: Backend, id: ObjId) -> Iterator[tuple[Row, Commit]]:
    """The commits whose tails go beyond this one, with their rows."""
    repo = persist.settings.repository_id
    for row in backend.scan_rows(repo, frozenset({Commit.kind_letter})):
        if bytes(id) not in row.data:
            continue  # Most rows need not be decoded.
        try:
            commit = codec.decode(row)
        except RepositoryCorrupt:
            continue  # Nobody can read it.
        if isinstance(commit, Commit) and id in commit.tail[:-1]:
            yield row, commit


def _rewrite(persist: Persist, backend: Backend, row: Row, commit: Commit) -> None:
    new = codec.encode(commit, persist.now_micros())
    if not backend.swap_row(persist.settings.repository_id, row, new):
        raise StoreBusy(f"Commit {commit.id.hex()} was removed meanwhile; cut the history again")
