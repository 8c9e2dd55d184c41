"""Copies a repository from one store into another: rows in parts, then the references.

Until everything is copied, the target is marked as an import under way, so that servers refuse it.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.base import KeepsRefLog, Limits, RefSwap
from morag.backend.splitting import fitting
from morag.errors import BadRequest, RepositoryCorrupt, RepositoryExists, ServiceUnavailable
from morag.format.records import Row
from morag.index.keys import key_text
from morag.logic.copied_parts import KIND, part_id, part_row
from morag.logic.import_marker import (
    COPY,
    ImportMarker,
    check_not_importing,
    marked,
    marker_of,
)
from morag.logic.internal_refs import REFS, REPOSITORY, missing
from morag.logic.needed_objects import NeededObjects
from morag.logic.reference_reader import ReferenceReader
from morag.logic.repository import (
    check_exists,
    initialize_for_import,
    is_unused,
    read_description,
)
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.backend.base import Backend, Slice
    from morag.config import Settings
    from morag.format.records import ObjId, Ref
    from morag.versions.world import World

_CACHE_BYTES: Final = 32 << 20
_REFS_AT_ONCE: Final = 500
_AT_ONCE: Final = Limits(rows_at_once=500, bytes_at_once=8 << 20, row_bytes=1 << 30)
_LINES_AT_ONCE: Final = 1000
_ATTEMPTS: Final = 20


class CopySource:
    """The repository to copy. It is only read, and servers may go on.

    The references are read once, at the start, before any row is copied: so the rows that they lead
    to are there. Later commits are not part of the copy.
    """

    def __init__(self, backend: Backend, settings: Settings, world: World) -> None:
        self._backend, self._repo = backend, settings.repository_id
        persist = Persist(backend, ObjectCache(_CACHE_BYTES), settings, world.clock_nanos)
        check_exists(persist)
        self.description = read_description(persist)
        check_not_importing(self.description)
        self.internal, self.refs = _read_refs(persist)

    @property
    def state(self) -> str:
        """Changes whenever a reference does."""
        refs = sorted([*self.internal.values(), *self.refs], key=lambda ref: ref.name)
        return sha256(repr([ref.identity for ref in refs]).encode()).hexdigest()[:32]

    def rows(self, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        return self._backend.read_rows(self._repo, ids)

    def copy_log(self, target: Backend, repo: str) -> int:
        """Copy the ref-log, if both stores keep one."""
        if not isinstance(self._backend, KeepsRefLog) or not isinstance(target, KeepsRefLog):
            return 0
        count, before = 0, None
        while lines := self._backend.read_log(self._repo, before, _LINES_AT_ONCE):
            target.append_log(repo, lines)
            count, before = count + len(lines), lines[-1].key
        return count


class CopyTarget:
    """The store that gets the copy: an empty one, or one with an unfinished copy of the source."""

    def __init__(
        self, backend: Backend, settings: Settings, world: World, source: CopySource, parts: int
    ) -> None:
        self._backend, self._repo = backend, settings.repository_id
        self._source, self._world = source, world
        self._persist = Persist(backend, ObjectCache(_CACHE_BYTES), settings, world.clock_nanos)
        self.parts = self._begin(parts)

    def missing_parts(self) -> list[int]:
        """The parts that were not copied yet, or before a reference changed."""
        ids = [part_id(index) for index in range(self.parts)]
        stored = self._backend.read_rows(self._repo, ids)
        state = self._source.state
        stale = [id for id, row in stored.items() if row.version != state]
        self._backend.delete_rows(self._repo, stale)
        fresh = stored.keys() - set(stale)
        return [index for index, id in enumerate(ids) if id not in fresh]

    def replace(self, rows: Sequence[Row]) -> None:
        """Store rows over those with the same ids."""
        stored = self._backend.read_rows(self._repo, [row.id for row in rows])
        for row in rows:
            if row.id in stored:
                self._backend.swap_row(self._repo, stored[row.id], row)

    def finish(self) -> None:
        """Write the references. `int/repo` comes last: until then servers refuse the repository."""
        markers = self._marker_objects()
        # The first commit of `int/refs` has the id of the source's, but another creation time.
        shared = self._source.rows(markers)
        self.replace(list(shared.values()))
        self._drop_former()
        # The names first, so that the next attempt finds the refs that this one wrote.
        self._write(self._source.internal[REFS])
        for ref in self._source.refs:
            self._write(ref)
        self._backend.delete_rows(self._repo, [part_id(index) for index in range(self.parts)])
        self._write(self._source.internal[REPOSITORY])
        self._backend.delete_rows(self._repo, [id for id in markers if id not in shared])

    def _begin(self, parts: int) -> int:
        """Mark the repository as unfinished; return the number of parts of the copy."""
        source = f"{COPY} of {self._source.description.repository_created_time}"
        if self._persist.ref(REPOSITORY) is None:
            if not is_unused(self._backend.scan_rows(self._repo)):
                raise RepositoryExists(
                    "The target has objects, but no repository; erase it, or name another one"
                )
            now_micros = self._persist.now_micros()
            marker = ImportMarker(f"{source} in {parts} parts", now_micros)
            initialize_for_import(self._persist, marked(self._source.description, marker))
        found = marker_of(read_description(self._persist))
        if found is None:
            raise RepositoryExists(
                "The target has a repository already; erase it, or name another one"
            )
        of, _, count = found.source.partition(" in ")
        if of != source:
            raise RepositoryExists(
                f"The target has an unfinished import of something else ({found.source}); end it, "
                "or erase it"
            )
        # An earlier attempt may have ended before `int/refs` existed.
        initialize_for_import(self._persist, read_description(self._persist))
        return int(count.partition(" ")[0])

    def _marker_objects(self) -> list[ObjId]:
        """The objects with which the copy began, which the source may have, too."""
        heads = self._backend.read_refs(self._repo, [REFS, REPOSITORY])
        rows = self._backend.read_rows(self._repo, [ref.pointer for ref in heads.values()])
        needs = NeededObjects()
        for row in rows.values():
            needs.add(row)
        return [*rows, *needs.follow]

    def _drop_former(self) -> None:
        """Drop the refs of an interrupted attempt that the source no longer has."""
        names = ReferenceReader(self._persist).names(self._persist.ref(REFS)).items()
        kept = {ref.name for ref in self._source.refs}
        former = (name for key, _ in names if (name := key_text(key)) not in kept)
        while some := list(islice(former, _REFS_AT_ONCE)):
            for ref in self._persist.refs(some).values():
                self._backend.swap_ref(self._repo, RefSwap(ref.name, ref, None))

    def _write(self, ref: Ref) -> None:
        for _ in range(_ATTEMPTS):
            stored = self._backend.read_refs(self._repo, [ref.name]).get(ref.name)
            if stored == ref or self._backend.swap_ref(self._repo, RefSwap(ref.name, stored, ref)):
                return
        raise ServiceUnavailable(f"Another process changes '{ref.name}' in the target; stop it")


class CopiedPart(Struct, frozen=True, array_like=True):
    """`changed` are rows that the target has in another version."""

    rows: int
    size_bytes: int
    changed: tuple[Row, ...] = ()


def copy_part(
    source: Backend,
    source_repo: str,
    target: Backend,
    target_repo: str,
    part: Slice,
) -> CopiedPart:
    """Copy the rows of the part, with their times and versions. May be repeated."""
    count, size_bytes = 0, 0
    changed: list[Row] = []
    for rows in fitting(_copied(source.scan_rows(source_repo, part=part)), _AT_ONCE):
        new = target.insert_rows(target_repo, rows)
        versioned = {row.id: row for row in rows if row.version is not None and row.id not in new}
        stored = target.read_rows(target_repo, list(versioned)) if versioned else {}
        changed += [row for id, row in versioned.items() if stored.get(id) != row]
        count += len(rows)
        size_bytes += sum(len(row.data) for row in rows)
    return CopiedPart(count, size_bytes, tuple(changed))


def note_copied(target: Backend, repo: str, part: Slice, state: str, now_micros: int) -> None:
    target.insert_rows(repo, [part_row(part.index, state, now_micros)])


def check_different(source: str, target: str) -> None:
    if source == target:
        raise BadRequest("Source and target are the same store; name another target")


def _copied(rows: Iterator[Row]) -> Iterator[Row]:
    """The rows without the marks of another copy."""
    for row in rows:
        if not row.kind:  # A scan gives rows without a kind if they cannot be decoded.
            raise RepositoryCorrupt.object(
                row.id, "is damaged and cannot be copied; `morag admin check` shows what needs it"
            )
        if row.kind != KIND:
            yield row


def _read_refs(persist: Persist) -> tuple[dict[str, Ref], list[Ref]]:
    """The internal refs, and all others: read again until no name was added or removed."""
    reader = ReferenceReader(persist)
    for _ in range(_ATTEMPTS):
        internal = persist.refs([REFS, REPOSITORY])
        for name in (REFS, REPOSITORY):
            if name not in internal:
                raise missing(name)
        refs: list[Ref] = []
        entries = reader.names(internal[REFS]).items()
        while some := [key_text(key) for key, _ in islice(entries, _REFS_AT_ONCE)]:
            refs += persist.refs(some).values()
        if persist.refs([REFS, REPOSITORY]) == internal:
            return internal, refs
    raise ServiceUnavailable(
        "References of the source are created and deleted all the time; try again later"
    )
