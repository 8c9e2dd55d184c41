"""The history of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from morag.index.keys import content_key
from morag.index.layered import index_of
from morag.index.ops import exists, value_of
from morag.logic import history
from morag.logic.consistency import check_commit
from morag.model.listed import LogEntry
from morag.model.names import check_hash
from morag.model.operations import Delete, Put
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import Value
from morag.versions.contents import content_of_value
from morag.versions.listing import Listing
from morag.versions.metas import meta_of
from morag.versions.resolve import object_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.backend.base import ObjId
    from morag.logic.consistency import CommitStatus
    from morag.model.refspecs import RefSpec
    from morag.persist.objects import Commit
    from morag.persist.persist import Persist
    from morag.versions.resolve import At, Resolver

_T = TypeVar("_T")


class History:
    """Commits and how they follow each other."""

    def __init__(self, persist: Persist, resolver: Resolver) -> None:
        self._persist = persist
        self._resolver = resolver

    def log(
        self,
        at: At,
        *,
        until: str | None = None,
        with_operations: bool = False,
        token: str | None = None,
    ) -> Listing[LogEntry]:
        """The commit and its first parents, newest first, down to the hash `until`, inclusive."""
        start, last = self._start(at, token), _hash(until)

        def entries() -> Iterator[LogEntry]:
            commits = history.log(self._persist, start)
            return (self._entry(commit, with_operations) for commit in commits)

        listing = Listing(entries, lambda entry: entry.meta.hash or "")
        return listing if last is None else listing.through(lambda e: e.meta.hash == last)

    def hashes(self, at: At, *, until: str | None = None, token: str | None = None) -> Listing[str]:
        """Only the hashes, at a twentieth of the reads."""
        start, last = self._start(at, token), _hash(until)

        def hashes() -> Iterator[str]:
            return (id.hex() for id in history.log_ids(self._persist, start))

        listing = Listing(hashes, str)
        return listing if last is None else listing.through(lambda found: found == last)

    def merge_base(self, one: At, other: At) -> str | None:
        """The hash of the best common ancestor over all parents."""
        left, right = self._resolver.resolve(one).commit, self._resolver.resolve(other).commit
        if left is None or right is None:
            return None
        base = history.merge_base(self._persist, left, right)
        return None if base is None else base.id.hex()

    def check(self, at: str | RefSpec) -> CommitStatus:
        """Verify everything that the commit needs, and name what is missing or damaged."""
        return check_commit(self._persist, self._resolver.locate(at))

    def _start(self, at: At, token: str | None) -> ObjId:
        if token:
            commit = history.find_commit(self._persist, object_id(check_hash(token)))
            return NO_ANCESTOR if commit is None else commit.id
        return self._resolver.resolve(at).id

    def _entry(self, commit: Commit, with_operations: bool) -> LogEntry:
        operations = tuple(self._operations(commit)) if with_operations else None
        return LogEntry(meta_of(commit), commit.parent.hex(), operations)

    def _operations(self, commit: Commit) -> Iterator[Put | Delete]:
        done = list(index_of(self._persist, commit).operations())
        values = iter(
            self._persist.fetch_all(Value, [value_of(op) for _, op in done if exists(op)])
        )
        for raw, op in done:
            key = content_key(raw)
            content = content_of_value(next(values)) if exists(op) else None
            if key is not None:
                yield Delete(key) if content is None else Put(key, content)


def _hash(text: str | None) -> str | None:
    return None if text is None else check_hash(text)
