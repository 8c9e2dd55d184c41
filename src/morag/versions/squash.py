"""Squashes commits: applies the difference between two states on top of a third."""

from __future__ import annotations

from typing import TYPE_CHECKING

from morag.index.diff import diff
from morag.index.keys import CONTENTS
from morag.index.layered import index_of
from morag.model.merging import MergeBehavior, MergedKey
from morag.versions.merge_rules import MergeRules, SourceChanges, check_target_namespaces

if TYPE_CHECKING:
    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId
    from morag.model.keys import ContentKey
    from morag.model.meta import CommitMeta
    from morag.persist.persist import Persist


class Squash:
    """Builds the new commit, or none if nothing changes."""

    def __init__(
        self, persist: Persist, rules: MergeRules, details: dict[ContentKey, MergedKey]
    ) -> None:
        self._persist = persist
        self._rules = rules
        self._details = details
        self.commits: list[Commit] = []
        self.objects: list[Obj] = []

    def run(
        self,
        head: Commit | None,
        before: Commit | None,
        after: Commit,
        meta: CommitMeta,
        merge_parents: tuple[ObjId, ...] = (),
    ) -> None:
        self._rules.check()
        persist = self._persist
        old, new = index_of(persist, before), index_of(persist, after)
        dropped = self._rules.dropped_keys(old, new)
        self._details.update((key, MergedKey(key, MergeBehavior.DROP)) for key in dropped)
        changes = SourceChanges(
            persist, diff(old, new, CONTENTS), self._rules, self._details, drop_always=True
        )
        built = changes.build(head, meta, merge_parents)
        operations = index_of(persist, built.commit).operations()
        persist.stage(changes.values)  # For a legacy entry, only the value has the type.
        try:
            check_target_namespaces(persist, index_of(persist, head), operations)
        finally:
            persist.unstage(changes.values)
        self._rules.check_used(changes.touched | dropped, changes.added)
        if built.changes:
            self.commits = [built.commit]
            self.objects = [*changes.values, *built.indexes, built.commit]
