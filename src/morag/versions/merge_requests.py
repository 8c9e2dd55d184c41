"""The base of merge and transplant requests: their options and their result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.model.merging import MergeResult
from morag.model.meta import CommitMeta
from morag.versions.commit import expected_commit, is_expected_near
from morag.versions.merge_rules import MergeRules, merge_conflict
from morag.versions.replay import Replay
from morag.versions.squash import Squash
from morag.versions.tickets import Proposal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.objects import Commit, Obj
    from morag.model.keys import ContentKey
    from morag.model.merging import MergedKey
    from morag.persist.persist import Persist


_FEW_OPERATIONS_BYTES: Final = 16 * 1024
"""Of incremental indexes, which hold the operations of a commit and some earlier ones."""


class MergePlan(Struct, frozen=True, kw_only=True):
    """The options of a merge or transplant.

    With `squash_meta` everything becomes one commit with this metadata. Otherwise the commits are
    replayed one by one, each with metadata from `replay_meta`.
    """

    branch: str
    rules: MergeRules
    squash_meta: CommitMeta | None
    replay_meta: Callable[[CommitMeta], CommitMeta]
    expected: ObjId | None
    dry_run: bool
    conflicts_as_result: bool
    who: str


class MergeOrTransplant:
    """A merge or transplant in its branch's lane. Subclasses find the changes."""

    shares_batch: ClassVar = False
    operations: ClassVar = 1  # It is a batch of its own.
    index_bytes: ClassVar = _FEW_OPERATIONS_BYTES  # If it is more, a thread carries it out.

    def __init__(self, persist: Persist, plan: MergePlan) -> None:
        self._persist = persist
        self._plan = plan
        self.branch = plan.branch
        self.who = plan.who

    def is_brief_on(self, head: Commit | None) -> bool:
        plan = self._plan
        return plan.rules.are_plain and is_expected_near(self._persist, head, plan.expected)

    def forget(self, taken: frozenset[ObjId]) -> None:
        """No content ids are generated here."""

    def _check_expected(self, head: Commit | None) -> None:
        if self._plan.expected is not None:
            expected_commit(self._persist, self._plan.branch, head, self._plan.expected)

    def _squash(
        self,
        outcome: Outcome,
        meta: CommitMeta,
        before: Commit | None,
        after: Commit,
        merge_parents: tuple[ObjId, ...] = (),
    ) -> Proposal:
        squash = Squash(self._persist, self._plan.rules, outcome.details)
        squash.run(outcome.head, before, after, meta, merge_parents)
        return outcome.proposal(squash.commits, squash.objects)

    def _replay(
        self, outcome: Outcome, sources: Sequence[Commit], merge_parent: ObjId | None = None
    ) -> Proposal:
        plan = self._plan
        replay = Replay(self._persist, plan.rules, plan.replay_meta, outcome.details)
        replay.run(outcome.head, sources, merge_parent)
        return outcome.proposal(replay.commits, replay.objects)


def is_small(*commits: Commit) -> bool:
    """Whether the operations of the commits can be applied within milliseconds."""
    return sum(len(commit.incremental) for commit in commits) <= _FEW_OPERATIONS_BYTES


def is_small_difference(before: Commit, after: Commit) -> bool:
    """Whether the commits differ in few keys: in those of their incremental indexes alone."""
    return (
        before.reference_index == after.reference_index
        and before.stripes == after.stripes
        and is_small(before, after)
    )


class Outcome:
    """Collects the result. `ancestor` is the merge base, if there is one."""

    def __init__(self, plan: MergePlan, head: Commit | None, ancestor: Commit | None) -> None:
        self.details: dict[ContentKey, MergedKey] = {}
        self.head = head
        self._plan = plan
        self._ancestor = ancestor

    def proposal(
        self, commits: list[Commit], objects: list[Obj], *, is_merged: bool = False
    ) -> Proposal:
        """Nothing is written for a dry run, after a conflict, or when there is nothing to do.

        Conflicts are an error, unless the client requested them as a result.
        """
        at = NO_ANCESTOR if self.head is None else self.head.id
        expected = self._plan.expected
        failed = any(detail.conflict for detail in self.details.values())
        # If the source was already merged, even a dry run knows the resulting hash.
        has_no_hash = failed or (self._plan.dry_run and not is_merged)
        if has_no_hash:
            commits, objects = [], []
        new_head = commits[-1].id if commits else at
        result = MergeResult(
            was_applied=bool(commits),
            was_successful=not failed,
            resultant_target_hash=None if has_no_hash else new_head.hex(),
            common_ancestor=None if self._ancestor is None else self._ancestor.id.hex(),
            target_branch=self._plan.branch,
            effective_target_hash=at.hex(),
            expected_hash=None if expected is None else expected.hex(),
            details=tuple(sorted(self.details.values(), key=lambda detail: detail.key.sort_key)),
        )
        if failed and not self._plan.conflicts_as_result:
            raise merge_conflict(result.details)
        return Proposal(tuple(commits), objects, result)
