"""What merges and transplants share: how it is to be done, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

from morag.backend.base import ObjId
from morag.model.merging import MergeResult
from morag.model.meta import CommitMeta
from morag.persist.ids import NO_ANCESTOR
from morag.versions.commit import expected_commit
from morag.versions.merge_rules import MergeRules, merge_conflict
from morag.versions.replay import Replay
from morag.versions.squash import Squash
from morag.versions.tickets import Attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.model.keys import ContentKey
    from morag.model.merging import MergedKey
    from morag.persist.objects import Commit, Obj
    from morag.persist.persist import Persist


class MergeWish(Struct, frozen=True, kw_only=True):
    """How it is to be done, whatever is brought.

    With `squash_meta` everything becomes one commit that says so; without, the commits are replayed
    one by one, each with what `replay_meta` makes of its metadata.
    """

    branch: str
    rules: MergeRules
    squash_meta: CommitMeta | None
    replay_meta: Callable[[CommitMeta], CommitMeta]
    expected: ObjId | None
    dry_run: bool
    conflicts_as_result: bool
    who: str


class Bringing:
    """A merge or transplant in its branch's lane. Subclasses know what is brought."""

    shares_batch: ClassVar = False
    operations: ClassVar = 1  # It has a batch to itself.

    def __init__(self, persist: Persist, wish: MergeWish) -> None:
        self._persist = persist
        self._wish = wish
        self.branch = wish.branch
        self.who = wish.who

    def forget(self, taken: frozenset[ObjId]) -> None:
        """No content ids are made up here."""

    def _check_expected(self, head: Commit | None) -> None:
        if self._wish.expected is not None:
            expected_commit(self._persist, self._wish.branch, head, self._wish.expected)

    def _squash(
        self,
        outcome: Outcome,
        meta: CommitMeta,
        before: Commit | None,
        after: Commit,
        merge_parents: tuple[ObjId, ...] = (),
    ) -> Attempt:
        squash = Squash(self._persist, self._wish.rules, outcome.details)
        squash.run(outcome.head, before, after, meta, merge_parents)
        return outcome.attempt(squash.commits, squash.objects)

    def _replay(
        self, outcome: Outcome, sources: Sequence[Commit], merge_parent: ObjId | None = None
    ) -> Attempt:
        wish = self._wish
        replay = Replay(self._persist, wish.rules, wish.replay_meta, outcome.details)
        replay.run(outcome.head, sources, merge_parent)
        return outcome.attempt(replay.commits, replay.objects)


class Outcome:
    """Gathers what is answered. `ancestor` is the merge base, where there is one."""

    def __init__(self, wish: MergeWish, head: Commit | None, ancestor: Commit | None) -> None:
        self.details: dict[ContentKey, MergedKey] = {}
        self.head = head
        self._wish = wish
        self._ancestor = ancestor

    def attempt(
        self, commits: list[Commit], objects: list[Obj], *, is_merged: bool = False
    ) -> Attempt:
        """Nothing is written for a dry run, after a conflict, or when there is nothing to do.

        Conflicts are an error, unless they were asked for as a result.
        """
        at = NO_ANCESTOR if self.head is None else self.head.id
        expected = self._wish.expected
        failed = any(detail.conflict for detail in self.details.values())
        # What was merged already is where it would be, even if it is not meant.
        unsaid = failed or (self._wish.dry_run and not is_merged)
        if unsaid:
            commits, objects = [], []
        result = commits[-1].id if commits else at
        answer = MergeResult(
            was_applied=bool(commits),
            was_successful=not failed,
            resultant_target_hash=None if unsaid else result.hex(),
            common_ancestor=None if self._ancestor is None else self._ancestor.id.hex(),
            target_branch=self._wish.branch,
            effective_target_hash=at.hex(),
            expected_hash=None if expected is None else expected.hex(),
            details=tuple(sorted(self.details.values(), key=lambda detail: detail.key.sort_key)),
        )
        if failed and not self._wish.conflicts_as_result:
            raise merge_conflict(answer.details)
        return Attempt(tuple(commits), objects, answer)
