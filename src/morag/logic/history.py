"""Walks commits: logs, ancestry, merge bases."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from morag.errors import ReferenceNotFound, RepositoryCorrupt
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit, CommitKind
from morag.persist.persist import ObjectMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from morag.format.records import ObjId, Ref
    from morag.persist.persist import Persist


_RECENT_MICROS: Final = 3600 * 1_000_000  # A purge beside servers has a longer grace period.


def find_commit(persist: Persist, id: ObjId) -> Commit | None:
    """The commit that a client named by its hash; None for NO_ANCESTOR, which is not a commit.

    Commits on internal references are hidden, even from a client that knows a hash.
    """
    if id == NO_ANCESTOR:
        return None
    try:
        obj = persist.fetch_any(id)
    except ObjectMissing:
        raise ReferenceNotFound.commit(id.hex()) from None
    if not isinstance(obj, Commit) or obj.kind is CommitKind.INTERNAL:
        raise ReferenceNotFound.commit(id.hex())
    return persist.fetch(Commit, id)


def hold_commit(persist: Persist, commit: Commit | None) -> None:
    """Call this before a commit becomes reachable that may not be so now.

    A purge on another machine spares objects that were written recently, and all that they need. So
    an older commit is written again. If it was removed, and is only cached here, it is not found.
    """
    if commit is None or not persist.is_shared:
        return
    if persist.now_micros() - commit.created_micros < _RECENT_MICROS:
        return
    if not persist.touch(commit.id):
        raise ReferenceNotFound.commit(commit.id.hex())


def head_commit(persist: Persist, id: ObjId) -> Commit | None:
    """The commit that a reference points to, which must exist."""
    return None if id == NO_ANCESTOR else persist.fetch(Commit, id)


def log(persist: Persist, start: ObjId) -> Iterator[Commit]:
    """The commit and its first parents, newest first, read a tail at a time."""
    ids: tuple[ObjId, ...] = (start,)
    while True:
        if NO_ANCESTOR in ids:
            ids = ids[: ids.index(NO_ANCESTOR)]
        if not ids:
            return
        commits = persist.fetch_all(Commit, ids)
        yield from commits
        ids = commits[-1].tail


def log_ids(persist: Persist, start: ObjId) -> Iterator[ObjId]:
    """Like `log`, but reads one commit per tail."""
    ids: tuple[ObjId, ...] = (start,)
    while True:
        for id in ids:
            if id == NO_ANCESTOR:
                return
            yield id
        ids = persist.fetch(Commit, ids[-1]).tail


def predecessor(persist: Persist, commit: Commit, distance: int) -> ObjId:
    """The first parent of the first parent, `distance` times; NO_ANCESTOR past the root."""
    while distance > len(commit.tail):
        last = commit.tail[-1]
        if last == NO_ANCESTOR:
            return NO_ANCESTOR
        distance -= len(commit.tail)
        commit = persist.fetch(Commit, last)
    return commit.id if distance == 0 else commit.tail[distance - 1]


def is_first_ancestor(persist: Persist, commit: Commit | None, wanted: Commit) -> bool:
    """Whether `wanted` is `commit` or one of its first parents.

    Along first parents `seq` falls by one each, so `wanted` can only be in one place.
    """
    if commit is None or commit.seq < wanted.seq:
        return False
    return predecessor(persist, commit, commit.seq - wanted.seq) == wanted.id


def common_ancestor(persist: Persist, one: Commit, other: Commit) -> Commit | None:
    """The newest commit that both have among their first parents."""
    lower, upper = sorted((one, other), key=lambda c: c.seq)
    level = predecessor(persist, upper, upper.seq - lower.seq)
    # Both walks are now at the same seq. Go down together, one tail at a time, until they meet.
    left, right = lower, head_commit(persist, level)
    while right is not None and left.id != right.id:
        for a, b in zip(left.tail, right.tail, strict=False):
            if a == b:
                return head_commit(persist, a)
        step = min(len(left.tail), len(right.tail))
        below_left = head_commit(persist, left.tail[step - 1])
        below_right = head_commit(persist, right.tail[step - 1])
        if below_left is None or below_right is None:
            return None
        left, right = below_left, below_right
    return right


# How a walk reached a commit. Plain numbers: operations of `IntFlag` take as long as a whole step.
_ONE: Final = 1
_OTHER: Final = 2
_BOTH: Final = 3
_STALE: Final = 4
"""Below a commit that was reached from both sides, so not a better base than that one."""


class TooFar(Exception):
    """A walk would have to read more commits than its caller allows."""


def merge_base(
    persist: Persist, one: Commit, other: Commit, most_commits: int | None = None
) -> Commit | None:
    """The best common ancestor over all parents: one that no other common ancestor descends from.

    The walk goes by falling `seq`, which reaches most children before their parents. A merge parent
    may have a higher `seq` than its child, so the order only saves work: a commit whose
    marks change is walked again, and if several bases remain, reachability decides. With
    `most_commits`, raises `TooFar` if more would have to be read.
    """
    if other.id in (one.id, *one.tail):
        return other
    if one.id in other.tail:
        return one
    commits = {one.id: one, other.id: other}
    seen = {one.id: _ONE, other.id: _OTHER}
    queue = [(-commit.seq, id) for id, commit in commits.items()]
    heapify(queue)
    waiting = set(commits)
    fresh = 2  # How many waiting commits are not stale; without any, no base can be found.
    bases: dict[ObjId, Commit] = {}
    while fresh:
        _, id = heappop(queue)
        waiting.discard(id)
        commit, flags = commits[id], seen[id]
        fresh -= not flags & _STALE
        if flags == _BOTH:
            bases[id] = commit
            flags |= _STALE
        for parent in commit.parents:
            known = seen.get(parent, 0)
            if known | flags == known:
                continue
            if parent not in commits:
                if most_commits is not None and len(commits) >= most_commits:
                    raise TooFar
                commits[parent] = persist.fetch(Commit, parent)
            if parent not in waiting:
                waiting.add(parent)
                heappush(queue, (-commits[parent].seq, parent))
            elif not known & _STALE:
                fresh -= 1
            seen[parent] = known | flags
            fresh += not seen[parent] & _STALE
    found = [commit for id, commit in bases.items() if not seen[id] & _STALE]
    if len(found) > 1:
        if most_commits is not None:
            raise TooFar
        found = _without_ancestors(persist, found)
    return max(found, key=lambda c: (c.seq, c.id), default=None)


def _without_ancestors(persist: Persist, commits: list[Commit]) -> list[Commit]:
    """The commits that are not an ancestor of another given commit.

    Exact, and only needed for criss-cross merges.
    """
    wanted = {commit.id for commit in commits}
    redundant: set[ObjId] = set()
    for commit in commits:
        if commit.id not in redundant:
            redundant |= _reachable(persist, commit, wanted - {commit.id} - redundant)
    return [commit for commit in commits if commit.id not in redundant]


def _reachable(persist: Persist, start: Commit, wanted: set[ObjId]) -> set[ObjId]:
    found: set[ObjId] = set()
    seen, todo = {start.id}, [start]
    while todo and found != wanted:
        for parent in todo.pop().parents:
            if parent not in seen:
                seen.add(parent)
                if parent in wanted:
                    found.add(parent)
                todo.append(persist.fetch(Commit, parent))
    return found


def first_matching(
    persist: Persist, start: Commit, matches: Callable[[Commit], bool]
) -> Commit | None:
    """The newest commit of the log that matches."""
    return next((commit for commit in log(persist, start.id) if matches(commit)), None)


def was_published(persist: Persist, commit: Commit, ref: Ref) -> bool:
    """Whether the reference is or was at a commit of ours, whose reply was lost.

    If the reference was reset since then, only its recent heads show that, as far as they reach.
    """
    if any(previous.pointer == commit.id for previous in ref.previous):
        return True
    try:
        return is_first_ancestor(persist, head_commit(persist, ref.pointer), commit)
    except RepositoryCorrupt:
        return False


def is_published(persist: Persist, name: str, commit: Commit) -> bool:
    """Whether the commit is on the reference by now, perhaps with others on top."""
    now = persist.ref(name)
    return now is not None and was_published(persist, commit, now)
