"""The parts of a purge that read or delete many rows, which Spark can do in parallel."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.format.records import ObjId
from morag.logic.needed_objects import NeededObjects
from morag.logic.row_facts import RowFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.backend.base import Backend, Slice
    from morag.format.records import Row

SCAN_AT_ONCE: Final = 1000


class Expansion(Struct, frozen=True, array_like=True):
    """The needs of some objects (`NeededObjects`), and which of them are missing or damaged."""

    follow: tuple[ObjId, ...]
    leaves: tuple[ObjId, ...]
    missing: tuple[ObjId, ...] = ()
    damage: str = ""


class Removal(Struct, frozen=True, array_like=True):
    """The rows that were deleted, and those that stay because they were written again.

    Rows that are in neither were gone before.
    """

    deleted: tuple[ObjId, ...] = ()
    written_again: tuple[ObjId, ...] = ()


class PurgeWork(Protocol):
    def facts(self) -> Iterator[Sequence[RowFacts]]:
        """All rows of the store, in batches."""
        ...

    def expand(self, batches: Iterable[Sequence[ObjId]]) -> Iterator[Expansion]:
        """The needs of the objects of each batch."""
        ...

    def remove(self, doomed: Sequence[RowFacts]) -> Removal:
        """Write rows to the journal, then delete those that were not written again."""
        ...


class LocalWork:
    """Everything in this process."""

    def __init__(
        self, backend: Backend, repo: str, write_journal: Callable[[Sequence[Row]], None] | None
    ) -> None:
        self._backend, self._repo, self._write_journal = backend, repo, write_journal

    def facts(self) -> Iterator[Sequence[RowFacts]]:
        return scan_facts(self._backend, self._repo)

    def expand(self, batches: Iterable[Sequence[ObjId]]) -> Iterator[Expansion]:
        for ids in batches:
            yield expand(self._backend, self._repo, ids)

    def remove(self, doomed: Sequence[RowFacts]) -> Removal:
        assert self._write_journal is not None, "a dry run removes nothing"
        return remove(self._backend, self._repo, doomed, self._write_journal)


def scan_facts(
    backend: Backend, repo: str, part: Slice | None = None
) -> Iterator[Sequence[RowFacts]]:
    rows = backend.scan_rows(repo) if part is None else backend.scan_rows(repo, part=part)
    while some := [RowFacts.of(row) for row in islice(rows, SCAN_AT_ONCE)]:
        yield some


def expand(backend: Backend, repo: str, ids: Sequence[ObjId]) -> Expansion:
    rows = backend.read_rows(repo, ids)
    return expand_rows(rows.values(), [id for id in ids if id not in rows])


def expand_rows(rows: Iterable[Row], missing: Sequence[ObjId] = ()) -> Expansion:
    needs, damage = NeededObjects(), ""
    for row in rows:
        try:
            needs.add(row)
        except RepositoryCorrupt as error:
            damage = str(error)
    return Expansion(tuple(needs.follow), tuple(needs.leaves), tuple(missing), damage)


def remove(
    backend: Backend,
    repo: str,
    doomed: Sequence[RowFacts],
    write_journal: Callable[[Sequence[Row]], None],
) -> Removal:
    stored = backend.read_rows(repo, [row.id for row in doomed])
    unchanged = [
        row
        for facts in doomed
        if (row := stored.get(facts.id)) is not None
        and row.referenced_micros == facts.referenced_micros
    ]
    deleted: frozenset[ObjId] = frozenset()
    if unchanged:
        write_journal(unchanged)
        deleted = backend.delete_unreferenced(repo, unchanged)
    return Removal(tuple(deleted), tuple(id for id in stored if id not in deleted))
