"""Checking commits against what is really stored, and naming what is missing or damaged."""

from __future__ import annotations

from enum import Enum
from itertools import combinations, islice, permutations
from typing import TYPE_CHECKING, Final
from uuid import UUID

from msgspec import Struct

from morag.backend.base import ObjId
from morag.errors import RepositoryCorrupt
from morag.index.diff import diff
from morag.index.directory import Directory, segment_of
from morag.index.layered import CommitIndex, index_of
from morag.index.ops import content_id_of, exists, has_content_id, payload_of, value_of
from morag.persist import codec, ids
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import Commit, Index, IndexSegments, Value
from morag.persist.order import key_to_utf8

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.backend.base import Ref
    from morag.index.segment import Entry, Segment
    from morag.persist.objects import Obj
    from morag.persist.persist import Persist

_VALUES_AT_ONCE: Final = 500
_ORDERS_TRIED: Final = 5_000


class Consistency(Enum):
    """From good to bad; the worst of several commits speaks for all."""

    NOT_CHECKED = "NOT_CHECKED"
    COMMIT_CONSISTENT = "COMMIT_CONSISTENT"
    COMMIT_CONTENT_INCONSISTENT = "COMMIT_CONTENT_INCONSISTENT"
    """The commit and its index are sound, but content is missing or damaged."""
    COMMIT_INCONSISTENT = "COMMIT_INCONSISTENT"
    """The commit itself, or its index, is missing or damaged."""

    @property
    def rank(self) -> int:
        return list(Consistency).index(self)


class Finding(Struct, frozen=True):
    """One thing that is wrong, and with which object."""

    id: ObjId
    problem: str


class CommitStatus(Struct, frozen=True):
    id: ObjId
    commit: Commit | None
    consistency: Consistency
    findings: tuple[Finding, ...] = ()


def check_reference(persist: Persist, ref: Ref) -> list[CommitStatus]:
    """The head, then the heads before it, newest first."""
    pointers = [ref.pointer, *(previous.pointer for previous in ref.previous)]
    return [check_commit(persist, pointer) for pointer in pointers]


def check_log(persist: Persist, start: CommitStatus, commits: int) -> Consistency:
    """The worst verdict on up to `commits` commits below `start`, with their merge parents."""
    worst, current = start.consistency, start.commit
    for _ in range(commits):
        if current is None or worst is Consistency.COMMIT_INCONSISTENT:
            break
        below = [check_commit(persist, parent) for parent in current.parents]
        worst = max((worst, *(status.consistency for status in below)), key=lambda c: c.rank)
        current = None if current.parent == NO_ANCESTOR else below[0].commit
    return worst


def check_commit(persist: Persist, id: ObjId) -> CommitStatus:
    """Read everything that the commit needs from the store, past the cache, and verify it.

    Ids are recomputed, so that a flipped bit shows as surely as a missing row. The values come
    last: where only those fail, the commit can still be listed.
    """
    if id == NO_ANCESTOR:
        return CommitStatus(id, None, Consistency.COMMIT_CONSISTENT)
    checker = _Checker(persist)
    commit = checker.commit(id)
    if commit is None:
        return CommitStatus(id, None, Consistency.COMMIT_INCONSISTENT, checker.found)
    index = checker.index(commit)
    if index is not None:
        checker.against_parent(commit, index)
    if checker.findings:
        return CommitStatus(id, commit, Consistency.COMMIT_INCONSISTENT, checker.found)
    assert index is not None, "an index that cannot be read is a finding"
    checker.values(index)
    verdict = (
        Consistency.COMMIT_CONTENT_INCONSISTENT
        if checker.findings
        else Consistency.COMMIT_CONSISTENT
    )
    return CommitStatus(id, commit, verdict, checker.found)


class _Checker:
    """Collects findings. Objects come straight from the store and are shared with nobody."""

    def __init__(self, persist: Persist) -> None:
        self.persist = persist.afresh()
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

    def index(self, commit: Commit) -> CommitIndex | None:
        """The commit's index, after reading all of it; None if a part cannot be read."""
        before = len(self.findings)
        if commit.reference_index is not None:
            self._read(commit.reference_index)
        if len(self.findings) > before:
            return None
        try:
            index = index_of(self.persist, commit)
            _check_order(index.incremental)
        except (RepositoryCorrupt, ValueError, IndexError) as damage:
            self._note(commit.id, str(damage))
            return None
        for stripe in index.directory.stripes:
            obj = self._read(stripe.segment)
            if isinstance(obj, Index):
                keys = segment_of(obj).keys
                if not keys or (keys[0], keys[-1]) != (stripe.first, stripe.last):
                    self._note(stripe.segment, "the segment does not span the keys of its stripe")
        return None if len(self.findings) > before else index

    def against_parent(self, commit: Commit, index: CommitIndex) -> None:
        """What the id does not cover: place in history, and all that was inherited."""
        parent = None
        operations = list(index.operations())
        if commit.parent != NO_ANCESTOR:
            parent = self._parent(commit.parent)
            if parent is None:
                # That is the parent's trouble, and shows when the parent is checked. Unless it is
                # not the parent that is damaged, but its id in here.
                if _id_differs(commit, operations, index_of(self.persist, None)):
                    self._note(commit.id, "the commit does not hash to its id, its parent unread")
                return
        if commit.seq != (1 if parent is None else parent.seq + 1):
            self._note(commit.id, "seq does not follow the parent's")
        inherited = () if parent is None else parent.tail
        if commit.tail[1:] != inherited[: len(commit.tail) - 1]:
            self._note(commit.id, "the tail is not that of the parent")
        try:
            before = index_of(self.persist, parent)
            changed = {key for key, _, _ in diff(before, index)}
            if changed - {key for key, _ in operations}:
                self._note(commit.id, "the index has changes that are not the commit's operations")
            if _id_differs(commit, operations, before):
                self._note(commit.id, "the commit does not hash to its id")
        except RepositoryCorrupt:
            return  # The parent's index cannot be read: again the parent's trouble.

    def _parent(self, id: ObjId) -> Commit | None:
        try:
            return self.persist.fetch(Commit, id)
        except RepositoryCorrupt:
            return None

    def values(self, index: CommitIndex) -> None:
        entries = index.items()
        while batch := list(islice(entries, _VALUES_AT_ONCE)):
            wanted = {value_of(op): op for _, op in batch}
            for id, obj in self._read_all(list(wanted)):
                if isinstance(obj, Value) and obj.payload != payload_of(wanted[id]):
                    self._note(id, "the value's type is not that of its index entry")
                if isinstance(obj, Value) and _other_content(obj, wanted[id]):
                    self._note(id, "the value's content id is not that of its index entry")

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
                actual = _actual_id(obj)
            except (RepositoryCorrupt, ValueError, IndexError) as damage:
                self._note(id, str(damage))
                continue
            if actual != id:
                self._note(id, f"the {type(obj).__name__} does not hash to its id")
            else:
                yield id, obj

    def _note(self, id: ObjId, problem: str) -> None:
        self.findings.append(Finding(id, problem))


def _actual_id(obj: Obj) -> ObjId:
    """The id computed from what was read. A commit's needs its parent, see `_id_differs`."""
    if isinstance(obj, IndexSegments):
        return Directory(codec.decode_stripes(obj.encoded)).as_object().id
    if isinstance(obj, Index):
        _check_order(segment_of(obj))
    return obj.id


def _other_content(value: Value, op: bytes) -> bool:
    """An entry without a content id says nothing about it."""
    return has_content_id(op) and str(UUID(bytes=content_id_of(op))) != value.content_id


def _check_order(segment: Segment) -> None:
    if any(a >= b for a, b in zip(segment.keys, segment.keys[1:], strict=False)):
        raise ValueError("the keys of an index are out of order")


def _id_differs(commit: Commit, operations: list[Entry], parent: CommitIndex) -> bool:
    """Whether the id is certainly not that of the commit.

    We hash operations in key order, but the original takes them as its client sent them, and the
    row does not keep that order. A key that was removed and added again has its remove hashed, but
    not stored; one that a merge took from its source by force has none. So orders and re-adds are
    tried, as far as there are not too many of them.
    """
    removes = [e for e in operations if not exists(e[1])]
    adds = [e for e in operations if exists(e[1])]
    readded = [
        (key, old)
        for key, op in adds
        if (old := parent.get(key)) is not None and content_id_of(old) != content_id_of(op)
    ]
    hashed_adds = [
        ids.hashed_add(key_to_utf8(k), payload_of(op), value_of(op), content_id_of(op))
        for k, op in adds
    ]
    head = (commit.parent, commit.message, commit.headers)
    in_key_order = ((one, hashed_adds) for one in _hashed_removes(removes, readded))
    in_any_order = (
        (one, other)
        for some in _hashed_removes(removes, readded)
        for one in permutations(some)
        for other in permutations(hashed_adds)
    )
    for tried in (in_key_order, in_any_order):
        for one, other in islice(tried, _ORDERS_TRIED):
            if ids.commit_id(*head, one, other) == commit.id:
                return False
    return next(in_any_order, None) is None


def _hashed_removes(removes: list[Entry], readded: list[Entry]) -> Iterator[list[bytes]]:
    """In key order: with the removes of all keys that were added again, of none, and of some."""
    count = len(readded)
    for size in (count, *range(count)):
        for some in combinations(readded, size):
            yield [
                ids.hashed_remove(key_to_utf8(k), payload_of(op), content_id_of(op))
                for k, op in sorted((*removes, *some))
            ]
