"""Completes imported commits on top of their parents, and stores them, many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import ArchiveInvalid
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit
from morag.index.layered import index_of
from morag.logic.completion import commit_on
from morag.persist.persist import ObjectMissing
from morag.versions.transfer.imported_commits import (
    completed_removes,
    facts_of,
    imported,
    raw_operations,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.export_messages import ExportedCommit
    from morag.format.objects import Obj
    from morag.format.records import ObjId
    from morag.logic.retry import Retries
    from morag.persist.persist import Persist

COMMITS_AT_ONCE: Final = 500
SHOWN_IDS: Final = 20
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_OBJECT_BYTES: Final = 300  # About what a value or a claim takes.


class ParentMissing(Exception):
    """A commit came before its first parent."""


class CommitWriter:
    """Commits are given parents first. Objects not stored yet can be read through `persist`.

    `unfit` counts commits whose ids do not follow from their content; with `strict`, such a commit
    is refused.
    """

    def __init__(self, persist: Persist, retries: Retries, strict: bool) -> None:
        self.unfit = 0
        self.unfit_ids: list[ObjId] = []
        self._persist = persist
        self._retries = retries
        self._strict = strict
        self._commits: dict[ObjId, Commit] = {}
        self._objects: dict[ObjId, Obj] = {}
        self._bytes = 0

    def complete(self, exported: ExportedCommit) -> None:
        """Raises `ParentMissing` if the parent was neither given nor stored before."""
        found = imported(self._persist, self._parent(exported), exported)
        if not found.fits:
            if self._strict:
                raise ArchiveInvalid(
                    f"The id of commit {exported.id.hex()} does not follow from its content; "
                    "import without --check=strict to keep it as it is"
                )
            self.unfit += 1
            if len(self.unfit_ids) < SHOWN_IDS:
                self.unfit_ids.append(exported.id)
        self._add(found.commit, found.objects)

    def complete_raw(self, exported: ExportedCommit) -> None:
        """Like `complete`, for a commit whose values are the ids of stored objects."""
        parent = self._parent(exported)
        operations = completed_removes(raw_operations(exported), index_of(self._persist, parent))
        built = commit_on(self._persist, parent, facts_of(exported), operations.entries)
        self._add(built.commit, built.indexes)

    def flush(self) -> None:
        """Store what is pending: first the objects that commits need, then the commits.

        So a commit that is stored has all its objects, also after an interruption.
        """
        objects, commits = list(self._objects.values()), list(self._commits.values())
        if objects:
            self._retries.repeat("import", lambda: self._persist.store_and_keep(objects))
            self._persist.unstage(objects)
        if commits:
            self._retries.repeat("import", lambda: self._persist.store_and_keep(commits))
        self._commits, self._objects, self._bytes = {}, {}, 0

    def forget_unfit(self) -> None:
        """Count again from the start: all commits will be given again."""
        self.unfit = 0
        self.unfit_ids.clear()

    def _parent(self, exported: ExportedCommit) -> Commit | None:
        if exported.parent == NO_ANCESTOR:
            return None
        parent = self._commits.get(exported.parent)
        if parent is not None:
            return parent
        try:
            return self._persist.fetch(Commit, exported.parent)
        except ObjectMissing:
            raise ParentMissing(
                f"Commit {exported.parent.hex()}, the parent of {exported.id.hex()}, is not in the "
                "export"
            ) from None

    def _add(self, commit: Commit, objects: Sequence[Obj]) -> None:
        self._persist.stage(objects)  # The next commits may need its index.
        for obj in objects:
            self._objects[obj.id] = obj
        self._commits[commit.id] = commit
        self._bytes += len(commit.incremental) + _OBJECT_BYTES * len(objects)
        if len(self._commits) >= COMMITS_AT_ONCE or self._bytes >= _BYTES_AT_ONCE:
            self.flush()
