"""The index that a commit must have: that of its parent, with its own operations.

Writers put entries into stripes at different times, so an index is compared by its entries. But
mostly it has the same bytes as expected, and then nothing is decoded, and no stripe is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from morag.errors import RepositoryCorrupt
from morag.format.index_entries import exists
from morag.format.objects import Index, Stripe
from morag.format.records import ObjId
from morag.index.diff import diff
from morag.index.directory import EMPTY as NO_STRIPES
from morag.index.directory import Directory, directory_of, segment_of
from morag.index.layered import CommitIndex
from morag.index.segment import EMPTY, Segment
from morag.index.spill import aged

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.format.objects import Commit
    from morag.index.segment import Entry
    from morag.persist.persist import Persist

_FEW_OPERATIONS: Final = 16
_UNREAD: Final = Directory([Stripe(b"", b"", ObjId(b""))])
"""Stands for stripes that were not read."""


class ExpectedIndex:
    """The entries in `incremental`, on top of the stripes that the commit `striped` has."""

    __slots__ = ("_own", "_persist", "_striped", "incremental")

    def __init__(
        self,
        persist: Persist,
        incremental: Segment,
        striped: Commit | None,
        own: tuple[bytes, ...] | None = None,
    ) -> None:
        self._persist = persist
        self._striped = striped
        self._own = own
        self.incremental = incremental

    @classmethod
    def empty(cls, persist: Persist) -> ExpectedIndex:
        return cls(persist, EMPTY, None, ())

    @classmethod
    def of(cls, persist: Persist, commit: Commit) -> ExpectedIndex:
        """The index as it is stored. Raises the errors of `Segment.decode`."""
        return cls(persist, Segment.decode(commit.incremental), commit)

    def grown(self, operations: Sequence[Entry]) -> ExpectedIndex:
        """The index of a child with these operations, which come in key order."""
        stripes = _UNREAD if _stripes_of(self._striped) != _NONE else NO_STRIPES
        segment = aged(CommitIndex(self._persist, self.incremental, stripes, self._own))
        if len(operations) > _FEW_OPERATIONS:
            segment = segment.merged(Segment.build(operations))
        else:
            for key, op in operations:
                segment = segment.with_entry(key, op)
        own = tuple([key for key, _ in operations])
        return ExpectedIndex(self._persist, segment, self._striped, own)

    def as_stored_in(self, commit: Commit) -> ExpectedIndex | None:
        """This index in the form that the commit has; None if the commit has other entries.

        Raises the errors of `Segment.decode`. Stripes that cannot be read are not compared: those
        are found elsewhere.
        """
        if self.has_stripes_of(commit) and self.incremental.serialize() == commit.incremental:
            return self
        stored = ExpectedIndex.of(self._persist, commit)
        stored.incremental.check_order()
        return stored if self._equals(stored) else None

    def has_stripes_of(self, commit: Commit) -> bool:
        return _stripes_of(self._striped) == _stripes_of(commit)

    def readable_entries(self) -> Iterator[Entry]:
        """All entries that exist, without those in stripes that cannot be read."""
        yield from (entry for entry in self.incremental.items() if exists(entry[1]))
        for stripe in self.readable_stripes():
            try:
                segment = segment_of(self._persist.fetch(Index, stripe.segment))
            except RepositoryCorrupt:
                continue
            yield from (each for each in segment.items() if self.incremental.find(each[0]) is None)

    def readable_stripes(self) -> tuple[Stripe, ...]:
        """The stripes, or none if their list cannot be read."""
        try:
            return self._index().directory.stripes
        except RepositoryCorrupt:
            return ()

    def _equals(self, stored: ExpectedIndex) -> bool:
        ours, theirs = dict(self.incremental.items()), dict(stored.incremental.items())
        differing = sorted({key for key, _ in ours.items() ^ theirs.items()})
        if any(
            _facts(ours[key]) != _facts(theirs[key])
            for key in differing
            if key in ours and key in theirs
        ):
            return False
        try:
            before, after = self._index(), stored._index()
            found, expected = after.get_all(differing), before.get_all(differing)
            if {key: op[1:] for key, op in found.items()} != {
                key: op[1:] for key, op in expected.items()
            }:
                return False
            if stored._striped is None or self.has_stripes_of(stored._striped):
                return True
            return next(diff(before, after), None) is None
        except RepositoryCorrupt:
            return True

    def _index(self) -> CommitIndex:
        striped = self._striped
        directory = NO_STRIPES if striped is None else directory_of(self._persist, striped)
        return CommitIndex(self._persist, self.incremental, directory, self._own)


def _facts(op: bytes) -> tuple[bool, bytes]:
    """The parts that stay when an entry is inherited. No id covers the value of a removed one."""
    return exists(op), op[1:] if exists(op) else op[1:2] + op[-16:]


_NONE: Final[tuple[None, tuple[Stripe, ...]]] = (None, ())


def _stripes_of(commit: Commit | None) -> tuple[ObjId | None, tuple[Stripe, ...]]:
    return _NONE if commit is None else (commit.reference_index, commit.stripes)
