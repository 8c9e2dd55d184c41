"""Merging: everything a source changed since it parted from the target, at once or one by one."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from morag.errors import ReferenceNotFound
from morag.logic import history
from morag.logic.reflog import RefOperation
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import Commit
from morag.versions.bringing import Bringing, MergeWish, Outcome

if TYPE_CHECKING:
    from morag.backend.base import ObjId
    from morag.persist.persist import Persist
    from morag.versions.tickets import Attempt


class MergeRequest(Bringing):
    """Merges `source` into a branch.

    Squashed, the result is one commit with two parents. Otherwise the source's own commits are
    replayed, and the last of them has the source as its second parent, so that a later merge starts
    from there.
    """

    operation: ClassVar = RefOperation.MERGE

    def __init__(self, persist: Persist, wish: MergeWish, source: Commit | None) -> None:
        super().__init__(persist, wish)
        self._source = source

    def attempt(self, head: Commit | None) -> Attempt:
        self._check_expected(head)
        base = self._base(head)
        outcome = Outcome(self._wish, head, base)
        source = self._source
        if source is None or source.id == base.id:
            return outcome.attempt([], [], is_merged=True)
        if self._wish.squash_meta is None:
            return self._replay(outcome, self._unmerged(head), source.id)
        return self._squash(outcome, self._wish.squash_meta, base, source, (source.id,))

    def _base(self, head: Commit | None) -> Commit:
        """The state both sides come from."""
        base = None
        if head is not None:
            base = (
                head
                if self._source is None
                else history.merge_base(self._persist, head, self._source)
            )
        if base is None:
            ours, theirs = (c.id if c else NO_ANCESTOR for c in (head, self._source))
            raise ReferenceNotFound(
                f"No common ancestor in parents of {ours.hex()} and {theirs.hex()}"
            )
        return base

    def _unmerged(self, head: Commit | None) -> list[Commit]:
        """The source's first parents that the target has not got yet, oldest first.

        Having a commit means having all below it, so the border is found by ever longer leaps from
        the tip and by bisection within the last one: no more is read than twice what is merged.
        """
        assert head is not None, "there is a merge base"
        assert self._source is not None, "there is a merge base"
        ids = history.log_ids(self._persist, self._source.id)
        chain = [next(ids)]  # The source itself, which is no merge base.
        unmerged = 1
        while leap := list(islice(ids, len(chain))):
            chain += leap
            if self._is_merged(head, chain[-1]):
                break
            unmerged = len(chain)
        border = bisect_left(
            chain, True, unmerged, key=lambda commit: self._is_merged(head, commit)
        )
        return self._persist.fetch_all(Commit, chain[:border])[::-1]

    def _is_merged(self, head: Commit, id: ObjId) -> bool:
        commit = self._persist.fetch(Commit, id)
        base = history.merge_base(self._persist, head, commit)
        return base is not None and base.id == id
