"""Checks the commits of a line of history against each other: ids, `seq`, tails and indexes.

The id of a commit covers its parent, metadata and operations. Everything else in it follows from
its parent: `seq`, the tail, and all inherited entries of the index. So each commit is compared with
what its parent and its own operations give.

A difference has one cause, and only that commit is named. After a damaged commit, its child is
compared with what the damaged commit should have been. If that is unknown, because the commit is
missing or its id does not fit, the child starts anew: all entries of its index count as its own.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.damage import UNREADABLE
from morag.format.ids import ID_BYTES, NO_ANCESTOR
from morag.format.index_entries import exists, value_of
from morag.format.key_order import key_from_utf8
from morag.format.objects import Commit
from morag.format.proof import is_proven, own_operations
from morag.format.records import ObjId
from morag.index.expected import ExpectedIndex
from morag.logic.findings import Finding, kind_name
from morag.logic.pointer_checks import Pointer, Role, entry_detail, span_detail
from morag.logic.refutation import is_cut_point, refutes
from morag.logic.store_check import check_pointers_of, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.format.records import Row
    from morag.index.segment import Entry
    from morag.persist.persist import Persist

Found: TypeAlias = Finding | Pointer

ORDERS_TRIED: Final = 5_000
_MOST_ANCESTORS: Final = 64  # Of a tail, more than any writer stores by default.
_MOST_BACK: Final = 100  # Commits before the line that are read to find the cause of a difference.
_HELD_BYTES: Final = 32 * 1024 * 1024
_READ_AT_ONCE: Final = 100
_CONTENT_KEY: Final = b"M\0"

_KIND: Final = kind_name(Commit.kind_letter)
_WRONG_ID: Final = "the commit does not hash to its id"
_WRONG_SEQ: Final = "seq does not follow the parent's"
_WRONG_TAIL: Final = "the tail is not that of the parent"
_WRONG_INDEX: Final = "the index has changes that are not the commit's operations"
_INCOMPLETE: Final = "the commit is incomplete: its import was cut short"


class LineToCheck(Struct, frozen=True, gc=False):
    """Up to `count` commits, named by the newest. The oldest `reachable` of them have pointers."""

    newest: ObjId
    count: int
    reachable: int


class _Before(Struct, frozen=True):
    """A commit as a child inherits it. `ancestors` starts with the commit itself."""

    seq: int
    ancestors: tuple[ObjId, ...]
    index: ExpectedIndex


def check_line(persist: Persist, line: LineToCheck) -> Iterator[Found]:
    """The findings about these commits, and the pointers of those that are reachable."""
    checker = _LineChecker(persist)
    for position, commit in enumerate(_commits_of(persist, line)):
        yield from checker.step(commit, reachable=position < line.reachable)


def _commits_of(persist: Persist, line: LineToCheck) -> Iterator[Commit]:
    """The commits of the line, oldest first. A commit that cannot be read ends the line."""
    held: dict[ObjId, Commit] = {}
    ids: list[ObjId] = []
    size_bytes, next = 0, line.newest
    ahead: dict[ObjId, Commit] = {}
    wanted: Sequence[ObjId] = [line.newest]
    while len(ids) < line.count and next != NO_ANCESTOR:
        if next not in ahead:
            ahead = readable_commits(persist, [next, *wanted])
            if next not in ahead:
                break
        commit = ahead.pop(next)
        ids.append(next)
        if size_bytes < _HELD_BYTES:
            held[next] = commit
            size_bytes += len(commit.incremental)
        wanted = [id for id in commit.tail if id != NO_ANCESTOR][: line.count - len(ids)]
        next = commit.parent
    ids.reverse()
    for at, id in enumerate(ids):
        if id not in held:
            held |= readable_commits(persist, ids[at : at + _READ_AT_ONCE])
        yield held.pop(id)


def readable_commits(persist: Persist, ids: Sequence[ObjId]) -> dict[ObjId, Commit]:
    """The commits that can be decoded; their ids are not checked."""
    found = {}
    for id, row in readable_rows(persist, list(dict.fromkeys(ids))).items():
        with suppress(RepositoryCorrupt, *UNREADABLE):
            commit = codec.decode(row)
            if isinstance(commit, Commit):
                check_pointers_of(commit)
                found[id] = commit
    return found


def readable_rows(persist: Persist, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
    """The rows that are there and can be read."""
    try:
        return persist.find(ids)
    except RepositoryCorrupt:
        if len(ids) == 1:
            return {}
    return {id: row for one in ids for id, row in readable_rows(persist, [one]).items()}


class _LineChecker:
    """`_before` is what the next commit may inherit: nothing known, or one or two possibilities.

    `back` counts the commits before the line that were read to verify the ones after them.
    """

    def __init__(self, persist: Persist, back: int = 0) -> None:
        self._persist = persist
        self._back = back
        self._before: list[_Before] = []
        self._parent: Commit | None = None
        self._verified = False

    def step(self, commit: Commit, *, reachable: bool) -> Iterator[Found]:
        self._move_before(commit)
        problems: list[str] = []
        operations, is_proven = _operations(commit)
        starts_anew = not self._before
        is_refuted = not is_proven and self._is_refuted(commit, reachable)
        if is_refuted:
            problems, before = [_WRONG_ID], []
        else:
            if commit.incomplete and reachable:
                problems.append(_INCOMPLETE)
            before = self._compared(commit, operations, problems)
        yield from [Finding(commit.id, problem, _KIND) for problem in problems]
        if reachable and not is_refuted:
            yield from self._pointers(commit, operations, starts_anew)
        self._before, self._parent, self._verified = before, commit, True

    def _move_before(self, commit: Commit) -> None:
        """Make `_before` that of the commit's parent, if the last step was not the parent."""
        if self._parent is not None and commit.parent == self._parent.id:
            return
        self._parent, self._before, self._verified = None, [], True
        if commit.parent == NO_ANCESTOR:
            if not self._is_cut(commit):
                self._before = [_Before(0, (NO_ANCESTOR,), ExpectedIndex.empty(self._persist))]
            return
        parent = readable_commits(self._persist, [commit.parent]).get(commit.parent)
        if parent is None or parent.incomplete:
            return
        if not is_proven(parent) and self._is_refuted(parent, reachable=True):
            return
        try:
            self._before = [self._stored(parent, parent.seq, parent.tail)]
        except UNREADABLE:
            return
        self._parent, self._verified = parent, False

    def _compared(
        self, commit: Commit, operations: Sequence[Entry], problems: list[str]
    ) -> list[_Before]:
        """The states that a child may inherit. Adds the differences to `problems`."""
        if not self._before:
            return self._read_anew(commit, problems)
        best = self._best(commit, operations)
        if best[0] and not self._verified:
            self._verify_parent()
            if not self._before:
                return self._read_anew(commit, problems)
            best = self._best(commit, operations)
        found, after = best
        problems += found
        return after

    def _best(self, commit: Commit, operations: Sequence[Entry]) -> tuple[list[str], list[_Before]]:
        tried = [self._against(before, commit, operations) for before in self._before]
        return min(tried, key=lambda each: len(each[0]))

    def _against(
        self, before: _Before, commit: Commit, operations: Sequence[Entry]
    ) -> tuple[list[str], list[_Before]]:
        problems = []
        seq = before.seq + 1
        if commit.seq != seq:
            problems.append(_WRONG_SEQ)
        if not _is_tail(commit.tail, before.ancestors):
            problems.append(_WRONG_TAIL)
        ancestors = (commit.id, *before.ancestors)[:_MOST_ANCESTORS]
        index = before.index.grown(operations)
        if not commit.incomplete:
            try:
                stored = index.as_stored_in(commit)
                if stored is None:
                    problems.append(_WRONG_INDEX)
                index = stored or index
            except UNREADABLE as damage:
                problems.append(short(commit.id, damage))
        after = [_Before(seq, ancestors, index)]
        if problems:
            # A later commit may have inherited the difference, if a writer made it.
            with suppress(*UNREADABLE):
                after.append(self._stored(commit, commit.seq, ancestors[1:]))
        return problems, after

    def _read_anew(self, commit: Commit, problems: list[str]) -> list[_Before]:
        """For a commit whose parent is unknown, or was cut off."""
        if not self._follows_tail(commit):
            problems.append(_WRONG_SEQ)
        if commit.incomplete:
            return []
        try:
            before = self._stored(commit, commit.seq, commit.tail)
            before.index.incremental.check_order()
        except UNREADABLE as damage:
            problems.append(short(commit.id, damage))
            return []
        return [before]

    def _follows_tail(self, commit: Commit) -> bool:
        """Whether `seq` fits that of the nearest ancestor that can be read."""
        beyond = [id for id in commit.tail[1:] if id != NO_ANCESTOR]
        known = readable_commits(self._persist, beyond) if beyond else {}
        for distance, id in enumerate(commit.tail[1:], 2):
            ancestor = known.get(id)
            if ancestor is not None and is_proven(ancestor):
                return commit.seq == ancestor.seq + distance
        return True

    def _verify_parent(self) -> None:
        """Compare the parent, which is not part of the line, with its own parent.

        Otherwise a child would be named for the fault of its parent.
        """
        assert self._parent is not None, "it was read"
        if self._back < _MOST_BACK:
            earlier = _LineChecker(self._persist, self._back + 1)
            for _ in earlier.step(self._parent, reachable=False):
                pass  # The parent is named where its own line is checked.
            self._before = earlier._before
        self._verified = True

    def _is_refuted(self, commit: Commit, reachable: bool) -> bool:
        """Whether a commit whose id does not follow from its row is damaged."""
        if commit.parent == NO_ANCESTOR or _is_stored(self._persist, commit.parent):
            return refutes(self._persist, commit, ORDERS_TRIED)
        if not reachable:
            return False  # A purge may have left it, and its parent not.
        # With the parent, the entries are missing that the commit may have replaced. Those of the
        # parent's parent are mostly the same.
        beyond = commit.tail[1:2]
        if commit.seq == 1 or beyond == (NO_ANCESTOR,):
            return refutes(self._persist, commit, ORDERS_TRIED, trusts_parent=True)
        for ancestor in readable_commits(self._persist, beyond).values():
            stand_in = replace(ancestor, id=commit.parent)
            self._persist.stage([stand_in])
            try:
                return refutes(self._persist, commit, ORDERS_TRIED, trusts_parent=True)
            finally:
                self._persist.unstage([stand_in])
        return False

    def _is_cut(self, commit: Commit) -> bool:
        try:
            return is_cut_point(self._persist, commit)
        except RepositoryCorrupt:
            return not is_proven(commit)

    def _stored(self, commit: Commit, seq: int, tail: Sequence[ObjId]) -> _Before:
        ancestors = (commit.id, *tail)[:_MOST_ANCESTORS]
        return _Before(seq, ancestors, ExpectedIndex.of(self._persist, commit))

    def _pointers(
        self, commit: Commit, operations: Sequence[Entry], starts_anew: bool
    ) -> Iterator[Found]:
        id = commit.id
        if commit.parent != NO_ANCESTOR and self._parent is None:  # Otherwise it was read.
            yield Pointer(commit.parent, id, Role.PARENT)
        for parent in commit.merge_parents:
            yield Pointer(parent, id, Role.MERGE_PARENT)
        if starts_anew or not any(b.index.has_stripes_of(commit) for b in self._before):
            yield from self._stripe_pointers(commit)
        entries: Sequence[Entry] | Iterator[Entry] = operations
        if starts_anew and not commit.incomplete:
            entries = ExpectedIndex.of(self._persist, commit).readable_entries()
        for key, op in entries:
            if exists(op):
                yield _value_pointer(id, key, op)

    def _stripe_pointers(self, commit: Commit) -> Iterator[Pointer]:
        """Pointers to stripes that the parent does not have."""
        source = commit.reference_index or commit.id
        if commit.reference_index is not None:
            yield Pointer(commit.reference_index, commit.id, Role.REFERENCE_INDEX)
        known = {each for b in self._before for each in b.index.readable_stripes()}
        for stripe in ExpectedIndex.of(self._persist, commit).readable_stripes():
            if stripe not in known and stripe.segment != commit.reference_index:
                span = span_detail(stripe.first, stripe.last)
                yield Pointer(stripe.segment, source, Role.STRIPE, span)


def _is_stored(persist: Persist, id: ObjId) -> bool:
    try:
        return bool(persist.find([id]))
    except RepositoryCorrupt:
        return True


def _value_pointer(commit: ObjId, key: bytes, op: bytes) -> Found:
    value = value_of(op)
    if len(value) != ID_BYTES:
        return Finding(commit, f"an entry points to a value with {len(value)} bytes", _KIND)
    if key.startswith(_CONTENT_KEY):
        return Pointer(value, commit, Role.VALUE, entry_detail(op))
    return Pointer(value, commit, Role.RECORD)


def _operations(commit: Commit) -> tuple[list[Entry], bool]:
    """The commit's own operations, and whether its id follows from them."""
    try:
        own, is_proven = own_operations(commit)
    except RepositoryCorrupt:
        return [], False
    return [(key_from_utf8(key), op) for key, op in own], is_proven


def _is_tail(tail: Sequence[ObjId], ancestors: Sequence[ObjId]) -> bool:
    """Whether the tail has the ancestors as far as both reach. A tail may be cut anywhere."""
    both = min(len(tail), len(ancestors))
    if tail[:both] != ancestors[:both]:
        return False
    return len(tail) <= len(ancestors) or ancestors[-1] != NO_ANCESTOR
