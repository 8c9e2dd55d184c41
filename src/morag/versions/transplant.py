"""Transplanting: a run of commits from anywhere, applied to a branch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from morag.errors import BadRequest
from morag.logic import history
from morag.logic.reflog import RefOperation
from morag.versions.bringing import Bringing, MergeWish, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.persist.objects import Commit
    from morag.persist.persist import Persist
    from morag.versions.tickets import Attempt


class TransplantRequest(Bringing):
    """Either keeps the individual commits or makes one of them. No parent tells where from."""

    operation: ClassVar = RefOperation.TRANSPLANT

    def __init__(self, persist: Persist, wish: MergeWish, sources: Sequence[Commit]) -> None:
        super().__init__(persist, wish)
        if any(newer.parent != older.id for older, newer in pairwise(sources)):
            raise BadRequest("Sequence of hashes is not contiguous.")
        self._sources = sources

    def attempt(self, head: Commit | None) -> Attempt:
        self._check_expected(head)
        outcome = Outcome(self._wish, head, None)
        if self._wish.squash_meta is None:
            return self._replay(outcome, self._sources)
        before = history.head_commit(self._persist, self._sources[0].parent)
        return self._squash(outcome, self._wish.squash_meta, before, self._sources[-1])
