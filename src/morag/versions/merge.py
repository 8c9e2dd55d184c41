"""Merges: everything a source changed since the merge base, squashed or commit by commit."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice, pairwise
from typing import TYPE_CHECKING, ClassVar, Final

from morag.errors import BadRequest, ReferenceNotFound
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.logic import history
from morag.logic.reflog import RefOperation
from morag.versions.merge_requests import (
    MergeOrTransplant,
    MergePlan,
    Outcome,
    is_small,
    is_small_difference,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.records import ObjId
    from morag.persist.persist import Persist
    from morag.versions.tickets import Proposal

_MOST_TO_BASE: Final = 40
"""Commits that may be read to find the merge base of a small merge."""
_MOST_REPLAYED: Final = 4
"""Commits of a small transplant."""


class MergeRequest(MergeOrTransplant):
    """Merges `source` into a branch.

    Squashed, the result is one commit with two parents. Otherwise the source's own commits are
    replayed, and the last of them has the source as its second parent, so that a later merge starts
    from there.
    """

    operation: ClassVar = RefOperation.MERGE

    def __init__(self, persist: Persist, plan: MergePlan, source: Commit | None) -> None:
        super().__init__(persist, plan)
        self._source = source
        self._found_base: tuple[Commit, Commit | None] | None = None

    def is_brief_on(self, head: Commit | None) -> bool:
        """Whether this is a squash of few changes, and the merge base is near."""
        source = self._source
        if head is None or source is None:
            return True
        if self._plan.squash_meta is None or not super().is_brief_on(head):
            return False
        try:
            base = history.merge_base(self._persist, head, source, _MOST_TO_BASE)
        except history.TooFar:
            return False
        except Exception:  # noqa: BLE001 - Only this request fails, when `propose` finds the same.
            return True
        self._found_base = head, base  # `propose` follows, most likely on the same head.
        return base is None or is_small_difference(base, source)

    def propose(self, head: Commit | None) -> Proposal:
        self._check_expected(head)
        base = self._base(head)
        outcome = Outcome(self._plan, head, base)
        source = self._source
        if source is None or source.id == base.id:
            return outcome.proposal([], [], is_merged=True)
        if self._plan.squash_meta is None:
            return self._replay(outcome, self._unmerged(head), source.id)
        return self._squash(outcome, self._plan.squash_meta, base, source, (source.id,))

    def _base(self, head: Commit | None) -> Commit:
        """The state of the merge base."""
        base = None
        if head is not None:
            base = head if self._source is None else self._base_of(head, self._source)
        if base is None:
            ours, theirs = (c.id if c else NO_ANCESTOR for c in (head, self._source))
            raise ReferenceNotFound(
                f"No common ancestor in parents of {ours.hex()} and {theirs.hex()}"
            )
        return base

    def _base_of(self, head: Commit, source: Commit) -> Commit | None:
        if self._found_base is not None and self._found_base[0] is head:
            return self._found_base[1]
        return history.merge_base(self._persist, head, source)

    def _unmerged(self, head: Commit | None) -> list[Commit]:
        """The source's first parents that the target does not have yet, oldest first.

        A branch that has a commit has all its ancestors, so the border is found by growing steps
        from the head and by bisection within the last step. That reads at most twice as many
        commits as are merged.
        """
        assert head is not None, "there is a merge base"
        assert self._source is not None, "there is a merge base"
        ids = history.log_ids(self._persist, self._source.id)
        chain = [next(ids)]  # The source itself, which is not a merge base.
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


class TransplantRequest(MergeOrTransplant):
    """Keeps the individual commits or squashes them. No merge parent records the source."""

    operation: ClassVar = RefOperation.TRANSPLANT

    def __init__(self, persist: Persist, plan: MergePlan, sources: Sequence[Commit]) -> None:
        super().__init__(persist, plan)
        if any(newer.parent != older.id for older, newer in pairwise(sources)):
            raise BadRequest("Sequence of hashes is not contiguous.")
        self._sources = sources

    def is_brief_on(self, head: Commit | None) -> bool:
        """Whether a few small commits are replayed."""
        return (
            self._plan.squash_meta is None
            and len(self._sources) <= _MOST_REPLAYED
            and super().is_brief_on(head)
            and is_small(*self._sources)
        )

    def propose(self, head: Commit | None) -> Proposal:
        self._check_expected(head)
        outcome = Outcome(self._plan, head, None)
        if self._plan.squash_meta is None:
            return self._replay(outcome, self._sources)
        before = history.head_commit(self._persist, self._sources[0].parent)
        return self._squash(outcome, self._plan.squash_meta, before, self._sources[-1])
