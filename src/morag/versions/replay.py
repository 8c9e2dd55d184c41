"""Applies commits again on top of another head, one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from morag.format.commit_headers import meta_of
from morag.format.index_entries import exists
from morag.index.layered import index_of
from morag.logic import history
from morag.versions.merge_rules import MergeRules, SourceChanges, check_target_namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.format.objects import Commit, Obj
    from morag.format.records import ObjId
    from morag.index.diff import Difference
    from morag.model.keys import ContentKey
    from morag.model.merging import MergedKey
    from morag.model.meta import CommitMeta
    from morag.persist.persist import Persist


class Replay:
    """Collects the new commits. A commit that ends up empty is left out."""

    def __init__(
        self,
        persist: Persist,
        rules: MergeRules,
        meta: Callable[[CommitMeta], CommitMeta],
        details: dict[ContentKey, MergedKey],
    ) -> None:
        self._persist = persist
        self._rules = rules
        self._meta = meta
        self._details = details
        self.commits: list[Commit] = []
        self.objects: list[Obj] = []

    def run(
        self, head: Commit | None, sources: Sequence[Commit], merge_parent: ObjId | None = None
    ) -> None:
        """Apply the sources, oldest first. The last commit may get a merge parent."""
        self._rules.check()
        try:
            for source in sources:
                head = self._apply(head, source)
        finally:
            self._persist.unstage(self.objects)
        if merge_parent is not None and self.commits:
            # The last commit is known only now. Merge parents are not part of its id.
            last = msgspec.structs.replace(self.commits[-1], merge_parents=(merge_parent,))
            self.commits[-1] = self.objects[-1] = last

    def _apply(self, head: Commit | None, source: Commit) -> Commit | None:
        target = index_of(self._persist, head)
        check_target_namespaces(self._persist, target, index_of(self._persist, source).operations())
        changes = SourceChanges(
            self._persist,
            self._operations(source),
            self._rules,
            self._details,
            drop_always=False,
        )
        built = changes.build(head, self._meta(meta_of(source)))
        if not built.changes:
            return head
        objects = [*changes.values, *built.indexes, built.commit]
        self._persist.stage(objects)  # The next commit builds on these.
        self.commits.append(built.commit)
        self.objects += objects
        return built.commit

    def _operations(self, source: Commit) -> Iterator[Difference]:
        """The commit's own operations, each with the previous entry of its key."""
        parent = history.head_commit(self._persist, source.parent)
        operations = list(index_of(self._persist, source).operations())
        before = index_of(self._persist, parent).get_all([key for key, _ in operations])
        for key, op in operations:
            yield key, before.get(key), op if exists(op) else None
