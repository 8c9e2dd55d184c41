"""Merging: everything a source changed since it parted from the target, at once or one by one."""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from morag.errors import ReferenceNotFound
from morag.logic import history
from morag.logic.reflog import RefOperation
from morag.model.merging import MergeResult
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import Commit
from morag.versions.commit import expected_commit
from morag.versions.lanes import Attempt
from morag.versions.merge_rules import MergeRules, merge_conflict
from morag.versions.replay import Replay
from morag.versions.squash import Squash

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.backend.base import ObjId
    from morag.model.keys import ContentKey
    from morag.model.merging import MergedKey
    from morag.model.meta import CommitMeta
    from morag.persist.objects import Obj
    from morag.persist.persist import Persist


class MergeRequest:
    """Merges `source` into a branch.

    Squashed, the result is one commit with two parents. Otherwise the source's own commits are
    replayed, and the last of them has the source as its second parent, so that a later merge starts
    from there.
    """

    operation: ClassVar = RefOperation.MERGE
    shares_batch: ClassVar = False
    operations: ClassVar = 1  # It has a batch to itself.

    def __init__(
        self,
        persist: Persist,
        branch: str,
        source: Commit | None,
        rules: MergeRules,
        squash_meta: CommitMeta | None,
        replay_meta: Callable[[CommitMeta], CommitMeta],
        expected: ObjId | None,
        dry_run: bool,
        who: str,
    ) -> None:
        self._persist = persist
        self._branch = branch
        self._source = source
        self._rules = rules
        self._squash_meta = squash_meta
        self._replay_meta = replay_meta
        self._expected = expected
        self._dry_run = dry_run
        self.who = who

    def attempt(self, head: Commit | None) -> Attempt:
        if self._expected is not None:
            expected_commit(self._persist, self._branch, head, self._expected)
        base = self._base(head)
        outcome = Outcome(self._branch, head, self._expected, base.id.hex(), self._dry_run)
        if self._source is None or self._source.id == base.id:
            return outcome.attempt([], [])
        if self._squash_meta is None:
            replay = Replay(self._persist, self._rules, self._replay_meta, outcome.details)
            replay.run(head, self._unmerged(head), merge_parent=self._source.id)
            return outcome.attempt(replay.commits, replay.objects)
        squash = Squash(self._persist, self._rules, outcome.details)
        squash.run(head, base, self._source, self._squash_meta, (self._source.id,))
        return outcome.attempt(squash.commits, squash.objects)

    def forget(self, taken: frozenset[ObjId]) -> None:
        """A merge makes up no content ids."""

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


class Outcome:
    """Gathers what a merge or transplant answers."""

    def __init__(
        self,
        branch: str,
        head: Commit | None,
        expected: ObjId | None,
        ancestor: str | None,
        dry_run: bool,
    ) -> None:
        self.details: dict[ContentKey, MergedKey] = {}
        self._branch = branch
        self._head = NO_ANCESTOR if head is None else head.id
        self._expected = expected
        self._ancestor = ancestor
        self._dry_run = dry_run

    def attempt(self, commits: list[Commit], objects: list[Obj]) -> Attempt:
        """Nothing is written for a dry run, after a conflict, or when there is nothing to do."""
        failed = any(detail.conflict for detail in self.details.values())
        if failed or self._dry_run:
            commits, objects = [], []
        result = commits[-1].id if commits else self._head
        answer = MergeResult(
            was_applied=bool(commits),
            was_successful=not failed,
            resultant_target_hash=None if failed or self._dry_run else result.hex(),
            common_ancestor=self._ancestor,
            target_branch=self._branch,
            effective_target_hash=self._head.hex(),
            expected_hash=None if self._expected is None else self._expected.hex(),
            details=tuple(sorted(self.details.values(), key=lambda detail: detail.key.sort_key)),
        )
        return Attempt(tuple(commits), objects, answer)


def raise_conflicts(result: MergeResult) -> MergeResult:
    """For those who want an error instead of a result that tells of conflicts."""
    if not result.was_successful:
        raise merge_conflict(result.details)
    return result
