"""Commits on the references that the catalog keeps for itself: `int/refs` and `int/repo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.backend.base import Ref
from morag.errors import RepositoryCorrupt, StoreBusy
from morag.index.layered import CommitIndex, index_of
from morag.logic.commits import Add, Draft, Remove, build_commit
from morag.logic.history import head_commit, is_published, was_published
from morag.persist.header_order import java_header_order
from morag.persist.objects import CommitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from morag.backend.base import ObjId
    from morag.logic.retry import Retries
    from morag.persist.objects import Commit, Obj
    from morag.persist.persist import Persist

REFS: Final = "int/refs"
REPOSITORY: Final = "int/repo"


def internal_draft(
    message: str,
    headers: Mapping[str, str],
    adds: Sequence[Add] = (),
    removes: Sequence[Remove] = (),
) -> Draft:
    return Draft(
        message=message,
        headers=tuple((name, (headers[name],)) for name in java_header_order(list(headers))),
        adds=adds,
        removes=removes,
        kind=CommitKind.INTERNAL,
    )


def commit_internal(
    persist: Persist,
    retries: Retries,
    name: str,
    make: Callable[[CommitIndex], Draft | None],
    objects: Sequence[Obj],
) -> None:
    """Commit what `make` says on top of the reference's head, again for each head that we meet.

    Nothing is done when `make` returns None.
    """
    tried: list[Commit] = []
    for attempt in retries.attempts("commit"):
        try:
            if _commit_once(persist, name, make, objects, tried):
                return
        except StoreBusy as busy:
            attempt.failure = busy


def _commit_once(
    persist: Persist,
    name: str,
    make: Callable[[CommitIndex], Draft | None],
    objects: Sequence[Obj],
    tried: list[Commit],
) -> bool:
    ref = persist.ref(name)
    if ref is None:
        raise RepositoryCorrupt.found(f"The internal reference '{name}'", "is missing")
    if any(was_published(persist, commit, ref.pointer) for commit in tried):
        # It was published after all, but we could not see it then. Built again, it would
        # conflict with itself.
        return True
    head = head_commit(persist, ref.pointer)
    draft = make(index_of(persist, head))
    if draft is None:
        return is_current(persist, ref)
    built = build_commit(persist, head, draft)
    tried.append(built.commit)
    return publish(persist, ref, built.commit, [*objects, *built.indexes, built.commit])


def publish(persist: Persist, ref: Ref, commit: Commit, objects: Sequence[Obj]) -> bool:
    """Store the objects and move the reference. False if another was faster.

    A reply can be lost after the deed was done, which then looks like a failure, or like the
    victory of another. The commit's id tells whether it was ours.
    """
    try:
        if persist.publish(objects, ref, commit.id) is not None:
            return True
    except Exception as failure:
        if is_published(persist, ref.name, commit):
            return True
        if isinstance(failure, StoreBusy):
            return False
        raise
    return is_published(persist, ref.name, commit)


def is_current(persist: Persist, ref: Ref) -> bool:
    """Whether the reference is what we read: a store may answer with what was true a moment ago.

    A commit need not ask, because its swap does. This is for those who would rather do nothing.
    """
    return persist.swap_ref(ref.name, ref, ref)


def insert_internal(persist: Persist, name: str, draft: Draft, objects: Sequence[Obj]) -> None:
    """Start an internal reference with its first commit. Whoever comes second changes nothing."""
    built = build_commit(persist, None, draft)
    persist.store([*objects, *built.indexes, built.commit])
    persist.swap_ref(name, None, Ref(name, built.commit.id, created_micros=persist.now_micros()))


def pointer_of(persist: Persist, name: str) -> ObjId | None:
    ref = persist.ref(name)
    return None if ref is None else ref.pointer
