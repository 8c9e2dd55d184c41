"""Transplanting: a run of commits from anywhere, applied to a branch."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from morag.errors import BadRequest
from morag.logic import history
from morag.logic.reflog import RefOperation
from morag.versions.commit import expected_commit
from morag.versions.merge import Outcome
from morag.versions.replay import Replay
from morag.versions.squash import Squash

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from morag.backend.base import ObjId
    from morag.model.meta import CommitMeta
    from morag.persist.objects import Commit
    from morag.persist.persist import Persist
    from morag.versions.lanes import Attempt
    from morag.versions.merge_rules import MergeRules


class TransplantRequest:
    """Either keeps the individual commits or, with `squash_meta`, makes one of them."""

    operation: ClassVar = RefOperation.TRANSPLANT
    shares_batch: ClassVar = False
    operations: ClassVar = 1  # It has a batch to itself.

    def __init__(
        self,
        persist: Persist,
        branch: str,
        sources: Sequence[Commit],
        rules: MergeRules,
        squash_meta: CommitMeta | None,
        replay_meta: Callable[[CommitMeta], CommitMeta],
        expected: ObjId | None,
        dry_run: bool,
        who: str,
    ) -> None:
        if any(newer.parent != older.id for older, newer in pairwise(sources)):
            raise BadRequest("Sequence of hashes is not contiguous.")
        self._persist = persist
        self._branch = branch
        self._sources = sources
        self._rules = rules
        self._squash_meta = squash_meta
        self._replay_meta = replay_meta
        self._expected = expected
        self._dry_run = dry_run
        self.who = who

    def attempt(self, head: Commit | None) -> Attempt:
        if self._expected is not None:
            expected_commit(self._persist, self._branch, head, self._expected)
        outcome = Outcome(self._branch, head, self._expected, None, self._dry_run)
        if self._squash_meta is None:
            replay = Replay(self._persist, self._rules, self._replay_meta, outcome.details)
            replay.run(head, self._sources)
            return outcome.attempt(replay.commits, replay.objects)
        before = history.head_commit(self._persist, self._sources[0].parent)
        squash = Squash(self._persist, self._rules, outcome.details)
        squash.run(head, before, self._sources[-1], self._squash_meta)
        return outcome.attempt(squash.commits, squash.objects)

    def forget(self, taken: frozenset[ObjId]) -> None:
        """A transplant makes up no content ids."""
