"""Checks commits against the store, and names missing and damaged objects."""

from __future__ import annotations

from collections.abc import Generator
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from uuid import UUID

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import content_id_of, has_content_id, payload_of, value_of
from morag.format.objects import Commit, Index, Value
from morag.format.records import ObjId
from morag.index.diff import diff_with_pauses
from morag.index.directory import segment_of
from morag.index.layered import CommitIndex, index_of
from morag.logic.findings import Finding
from morag.logic.refutation import is_cut_point, refutes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.format.objects import Obj
    from morag.format.records import Ref
    from morag.persist.persist import Persist

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work that may take long: the caller can pause or stop it after each step."""

_MOST_VALUES: Final = 100
_MANY_BYTES: Final = 1024 * 1024  # Size of values read together: the next ones may be as large.
_ORDERS_TRIED: Final = 5_000


class Consistency(Enum):
    """From good to bad; the worst of several commits is the result for all."""

    NOT_CHECKED = "NOT_CHECKED"
    COMMIT_CONSISTENT = "COMMIT_CONSISTENT"
    COMMIT_CONTENT_INCONSISTENT = "COMMIT_CONTENT_INCONSISTENT"
    """The commit and its index are intact, but content is missing or damaged."""
    COMMIT_INCONSISTENT = "COMMIT_INCONSISTENT"
    """The commit itself, or its index, is missing or damaged."""

    @property
    def rank(self) -> int:
        return list(Consistency).index(self)


class CommitStatus(Struct, frozen=True):
    id: ObjId
    commit: Commit | None
    consistency: Consistency
    findings: tuple[Finding, ...] = ()


def check_reference(persist: Persist, ref: Ref) -> Steps[list[CommitStatus]]:
    """The head, then the previous heads, newest first."""
    pointers = [ref.pointer, *(previous.pointer for previous in ref.previous)]
    return (yield from _check_all(persist, pointers))


def check_log(persist: Persist, start: CommitStatus, commits: int) -> Steps[Consistency]:
    """The worst verdict on up to `commits` commits below `start`, with their merge parents."""
    worst, current = start.consistency, start.commit
    for _ in range(commits):
        if current is None or worst is Consistency.COMMIT_INCONSISTENT:
            break
        below = yield from _check_all(persist, current.parents)
        worst = max((worst, *(status.consistency for status in below)), key=lambda c: c.rank)
        current = None if current.parent == NO_ANCESTOR else below[0].commit
    return worst


def check_commit(persist: Persist, id: ObjId) -> CommitStatus:
    """Read everything that the commit needs from the store, past the cache, and verify it.

    Ids are recomputed, so that a flipped bit is found as reliably as a missing row. Values are
    checked last: if only they fail, the commit can still be listed.
    """
    steps = check_in_steps(persist, id)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            status: CommitStatus = end.value
            return status


def check_in_steps(persist: Persist, id: ObjId) -> Steps[CommitStatus]:
    """Like `check_commit`, in steps of a few milliseconds each."""
    if id == NO_ANCESTOR:
        return CommitStatus(id, None, Consistency.COMMIT_CONSISTENT)
    checker = _Checker(persist)
    commit = checker.commit(id)
    if commit is None:
        return CommitStatus(id, None, Consistency.COMMIT_INCONSISTENT, checker.found)
    index = yield from checker.index(commit)
    if index is not None:
        yield from checker.against_parent(commit, index)
    if checker.findings:
        return CommitStatus(id, commit, Consistency.COMMIT_INCONSISTENT, checker.found)
    assert index is not None, "an index that cannot be read is a finding"
    yield from checker.values(index)
    verdict = (
        Consistency.COMMIT_CONTENT_INCONSISTENT
        if checker.findings
        else Consistency.COMMIT_CONSISTENT
    )
    return CommitStatus(id, commit, verdict, checker.found)


def _check_all(persist: Persist, ids: Iterable[ObjId]) -> Steps[list[CommitStatus]]:
    found = []
    for id in ids:
        status = yield from check_in_steps(persist, id)
        found.append(status)
    return found


class _Checker:
    """Collects findings. Objects are read from the store and not shared with the cache."""

    def __init__(self, persist: Persist) -> None:
        self.persist = persist.with_empty_cache()
        self.findings: list[Finding] = []

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(self.findings)

    def commit(self, id: ObjId) -> Commit | None:
        commit = self._read(id)
        if not isinstance(commit, Commit):
            return None
        if commit.incomplete:
            self._note(id, "the commit is incomplete: its import was cut short")
        return commit

    def index(self, commit: Commit) -> Steps[CommitIndex | None]:
        """The commit's index, after reading all of it; None if a part cannot be read."""
        before = len(self.findings)
        if commit.reference_index is not None:
            self._read(commit.reference_index)
        if len(self.findings) > before:
            return None
        try:
            index = index_of(self.persist, commit)
            index.incremental.check_order()
        except (RepositoryCorrupt, ValueError) as damage:
            self._note(commit.id, str(damage))
            return None
        for stripe in index.directory.stripes:
            yield
            obj = self._read(stripe.segment)
            if isinstance(obj, Index):
                keys = segment_of(obj).keys
                if not keys or (keys[0], keys[-1]) != (stripe.first, stripe.last):
                    self._note(stripe.segment, "the segment does not span the keys of its stripe")
        return None if len(self.findings) > before else index

    def against_parent(self, commit: Commit, index: CommitIndex) -> Steps[None]:
        """Check what the id does not cover: the position in history, and all inherited entries."""
        if is_cut_point(self.persist, commit):
            if refutes(self.persist, commit, _ORDERS_TRIED):
                self._note(commit.id, "the commit does not hash to its id")
            return  # The commits that it inherited from, and that its `seq` counts, are gone.
        parent = None
        operations = list(index.operations())
        if commit.parent != NO_ANCESTOR:
            parent = self._parent(commit.parent)
            if parent is None:
                # A damaged or missing parent is found when the parent itself is checked. But its id
                # in this commit may be the damaged part.
                if refutes(self.persist, commit, _ORDERS_TRIED):
                    self._note(
                        commit.id,
                        "the commit does not hash to its id, and its parent cannot be read",
                    )
                return
        if commit.seq != (1 if parent is None else parent.seq + 1):
            self._note(commit.id, "seq does not follow the parent's")
        inherited = () if parent is None else parent.tail
        # While a history is being cut, the parent's tail may already be shorter.
        if commit.tail[1 : len(inherited) + 1] != inherited[: len(commit.tail) - 1]:
            self._note(commit.id, "the tail is not that of the parent")
        try:
            before = index_of(self.persist, parent)
            changed = set()
            for found in diff_with_pauses(before, index):
                if found is None:
                    yield
                else:
                    changed.add(found[0])
            if changed - {key for key, _ in operations}:
                self._note(commit.id, "the index has changes that are not the commit's operations")
            if refutes(self.persist, commit, _ORDERS_TRIED):
                self._note(commit.id, "the commit does not hash to its id")
        except RepositoryCorrupt:
            return  # The parent's index cannot be read, which is found when the parent is checked.

    def _parent(self, id: ObjId) -> Commit | None:
        try:
            return self.persist.fetch(Commit, id)
        except RepositoryCorrupt:
            return None

    def values(self, index: CommitIndex) -> Steps[None]:
        entries, tried = index.items(), 1
        while batch := list(islice(entries, tried)):
            wanted = {value_of(op): op for _, op in batch}
            size = 0
            for id, obj in self._read_all(list(wanted)):
                if not isinstance(obj, Value):
                    continue
                size += len(obj.data)
                if obj.payload != payload_of(wanted[id]):
                    self._note(id, "the value's type is not that of its index entry")
                if _other_content(obj, wanted[id]):
                    self._note(id, "the value's content id is not that of its index entry")
            tried = 1 if size > _MANY_BYTES else min(2 * tried, _MOST_VALUES)
            yield

    def _read(self, id: ObjId) -> Obj | None:
        return next((obj for _, obj in self._read_all([id])), None)

    def _read_all(self, wanted: list[ObjId]) -> Iterator[tuple[ObjId, Obj]]:
        rows = self.persist.find(wanted)
        for id in wanted:
            row = rows.get(id)
            if row is None:
                self._note(id, "the object is missing")
                continue
            try:
                obj = codec.decode(row)
                if isinstance(obj, Index):
                    segment_of(obj).check_order()
            except (RepositoryCorrupt, ValueError) as damage:
                self._note(id, str(damage))
            else:
                yield id, obj

    def _note(self, id: ObjId, problem: str) -> None:
        self.findings.append(Finding(id, problem))


def _other_content(value: Value, op: bytes) -> bool:
    """An entry without a content id matches any."""
    return has_content_id(op) and str(UUID(bytes=content_id_of(op))) != value.content_id
