"""Commits on the internal references of the catalog: `int/refs` and `int/repo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt, StoreBusy
from morag.format.header_order import java_header_order
from morag.format.objects import CommitKind
from morag.format.records import Ref
from morag.index.layered import CommitIndex, index_of
from morag.logic.commits import Add, Draft, Remove, build_commit
from morag.logic.history import head_commit, is_published, was_published

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId
    from morag.logic.retry import Retries
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
    """Commit the result of `make` on top of the reference's head, and retry on each new head.

    If `make` returns None, nothing is done.
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
        raise missing(name)
    if any(was_published(persist, commit, ref) for commit in tried):
        # An earlier attempt was published after all. Built again, it would conflict with itself.
        return True
    head = head_commit(persist, ref.pointer)
    draft = make(index_of(persist, head))
    if draft is None:
        return is_unchanged_by_swap(persist, ref)
    built = build_commit(persist, head, draft)
    tried.append(built.commit)
    new = [*objects, *built.indexes, built.commit]
    return written(
        persist, name, built.commit, lambda: persist.publish(new, ref, built.commit.id) is not None
    )


def written(persist: Persist, name: str, commit: Commit, write: Callable[[], bool]) -> bool:
    """Whether `write` moved the reference to the commit.

    If the reply to a successful swap is lost, that looks like a failure or like a lost race. The
    commit's id shows whether the swap was ours.
    """
    try:
        if write():
            return True
    except Exception as failure:  # After any error the swap may have succeeded.
        if is_published(persist, name, commit):
            return True
        if isinstance(failure, StoreBusy):
            return False
        raise
    return is_published(persist, name, commit)


def is_unchanged_by_swap(persist: Persist, ref: Ref) -> bool:
    """Whether the reference is still as we read it: a store may return a stale value.

    A commit needs no such check, because its swap fails. A caller that decides to do nothing does.
    """
    return persist.swap_ref(ref.name, ref, ref)


def insert_internal(persist: Persist, name: str, draft: Draft, objects: Sequence[Obj]) -> None:
    """Create an internal reference with its first commit, unless it exists."""
    built = build_commit(persist, None, draft)
    persist.store([*objects, *built.indexes, built.commit])
    persist.swap_ref(name, None, Ref(name, built.commit.id, created_micros=persist.now_micros()))


def missing(name: str) -> RepositoryCorrupt:
    return RepositoryCorrupt.found(f"The internal reference '{name}'", "is missing")


def pointer_of(persist: Persist, name: str) -> ObjId | None:
    ref = persist.ref(name)
    return None if ref is None else ref.pointer
