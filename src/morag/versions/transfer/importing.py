"""Fills an empty repository from a source: objects first, references last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from morag.errors import ArchiveInvalid, RepositoryExists
from morag.format.carried_rows import checked_row, row_of_related
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId, Ref
from morag.logic.import_marker import ImportMarker, marked, marker_of, unmarked
from morag.logic.internal_refs import REFS, REPOSITORY, pointer_of
from morag.logic.repository import (
    RepositoryDescription,
    initialize_for_import,
    is_unused,
    read_description,
    update_description,
)
from morag.logic.retry import Retries
from morag.model.names import full_name
from morag.model.times import MAX_NANOS, MIN_NANOS, instant_text
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.versions.transfer.commit_writer import (
    COMMITS_AT_ONCE,
    SHOWN_IDS,
    CommitWriter,
    ParentMissing,
)
from morag.versions.transfer.extra_file import (
    ExtraCommit,
    ExtraMove,
    ExtraObject,
    ExtraReference,
    log_rows,
    read_extra_commit,
)
from morag.versions.transfer.id_set import IdSet
from morag.versions.transfer.imported_references import create_all, drop_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.backend.base import Backend, Row
    from morag.config import Settings
    from morag.format.export_messages import ExportedCommit, ExportedDescription, RelatedObj
    from morag.versions.transfer.sources import ImportSource
    from morag.versions.world import World

_CACHE_BYTES: Final = 64 * 1024 * 1024
_ROWS_AT_ONCE: Final = 1000


class ImportOptions(Struct, frozen=True, kw_only=True):
    """With `strict`, a commit whose id does not fit ends the import."""

    resume: bool = False
    erase: bool = False
    strict: bool = False


class ImportReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The numbers of an import. `unfit` counts commits whose ids did not fit, and were kept.

    `found` counts commits that an interrupted import had stored.
    """

    references: int
    commits: int
    found: int
    objects: int
    unfit: int
    unfit_ids: tuple[str, ...] = ()


class StoredHistory(Struct, frozen=True):
    """The objects and commits of an import, as another program stored them: see `ImportReport`."""

    objects: int = 0
    commits: int = 0
    found: int = 0
    unfit: int = 0
    unfit_ids: tuple[ObjId, ...] = ()
    newest_micros: int = 0


class Importer:
    """One import into one repository, which nobody else changes meanwhile.

    A mark in the description keeps servers away until the end. Everything that is written can be
    written again, so an import that was interrupted at any moment can be resumed.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        world: World,
        options: ImportOptions,
        show: Callable[[str, int], None] = lambda stage, done: None,
    ) -> None:
        settings = fitted_settings(settings, backend)
        cache = ObjectCache(min(settings.cache_bytes, _CACHE_BYTES))
        # Ids are verified here, and not when a commit is read again.
        self._persist = Persist(backend, cache, settings, world.clock_nanos)
        self._backend = backend
        self._retries = Retries(settings, world.monotonic, world.sleep, world.random)
        self._options = options
        self._show = show
        self._writer = CommitWriter(self._persist, self._retries, options.strict)
        self._objects = self._commits = self._found = 0
        self._newest_micros = 0

    def run(
        self, source: ImportSource, store_history: Callable[[], StoredHistory] | None = None
    ) -> ImportReport:
        """Import the source. If `store_history` is given, it stores all objects and commits."""
        described = source.description()
        marker = self._begin(source, described)
        if store_history is None:
            self._store_history(source)
        else:
            self._take_over(store_history())
        hidden = self._store_extras(source)
        references = create_all(
            self._persist, self._retries, self._references(source, marker, hidden)
        )
        self._need_default_branch(described, marker)
        self._show("references", references)
        self._end(described)
        return ImportReport(
            references=references - len(hidden),
            commits=self._commits,
            found=self._found,
            objects=self._objects,
            unfit=self._writer.unfit,
            unfit_ids=tuple(id.hex() for id in self._writer.unfit_ids),
        )

    # Begin and end

    def _begin(self, source: ImportSource, described: ExportedDescription | None) -> ImportMarker:
        persist = self._persist
        if self._options.erase:
            self._backend.erase(persist.settings.repository_id)
        if pointer_of(persist, REPOSITORY) is not None:
            return self._resumed(source)
        if pointer_of(persist, REFS) is not None:
            raise RepositoryExists(
                "The store has the beginning of a repository, whose creation was interrupted; "
                "start a server on it once, or add --erase --confirm NAME to replace it"
            )
        if not is_unused(self._backend.scan_rows(persist.settings.repository_id)):
            raise RepositoryExists(
                "The store has objects of this repository, but no references: it was not erased "
                "completely; add --erase --confirm NAME to replace it"
            )
        now_nanos = persist.clock_nanos()
        marker = ImportMarker(source.identity, now_nanos // 1000)
        now = instant_text(now_nanos)
        description = _description(RepositoryDescription(now, now), described)
        initialize_for_import(persist, marked(description, marker))
        if marker_of(read_description(persist)) != marker:
            raise RepositoryExists("Another process created the repository at this moment")
        return marker

    def _resumed(self, source: ImportSource) -> ImportMarker:
        marker = marker_of(read_description(self._persist))
        if marker is None:
            raise RepositoryExists(
                "The store has this repository already; import into another store or under another "
                "repository id, or add --erase --confirm NAME to replace it"
            )
        if not self._options.resume:
            raise RepositoryExists(
                "An import into this repository has not ended; add --resume to go on, or "
                "--erase --confirm NAME to start again"
            )
        if marker.source != source.identity:
            raise RepositoryExists(
                f"The import that has not ended is of another source ({marker.source}); resume it "
                "with that one, or add --erase --confirm NAME to start again"
            )
        # The second step of the beginning may be missing.
        initialize_for_import(self._persist, read_description(self._persist))
        drop_all(self._persist)
        return marker

    def _end(self, described: ExportedDescription | None) -> None:
        """Remove the mark. Commits up to the time of the import may have ids that do not fit."""
        imported_nanos = max(self._persist.clock_nanos(), self._newest_micros * 1000)
        time = instant_text(min(imported_nanos, MAX_NANOS))

        def complete(before: RepositoryDescription) -> RepositoryDescription:
            after = unmarked(_description(before, described))
            return msgspec.structs.replace(after, repository_imported_time=time)

        update_description(self._persist, self._retries, complete)

    def _need_default_branch(
        self, described: ExportedDescription | None, marker: ImportMarker
    ) -> None:
        """Create the default branch, empty, if the source has none: servers need one."""
        name = full_name("BRANCH", _default_branch(described))
        if self._persist.ref(name) is None:
            branch = Ref(name, NO_ANCESTOR, created_micros=marker.started_micros)
            create_all(self._persist, self._retries, [branch])

    # Objects

    def _store_history(self, source: ImportSource) -> None:
        self._store_objects(source.objects())
        merge_parents = IdSet()
        try:
            self._store_all_commits(source, merge_parents)
            self._check_merge_parents(merge_parents)
        finally:
            merge_parents.close()

    def _take_over(self, stored: StoredHistory) -> None:
        self._objects, self._commits, self._found = stored.objects, stored.commits, stored.found
        self._writer.unfit, self._writer.unfit_ids = (
            stored.unfit,
            list(stored.unfit_ids[:SHOWN_IDS]),
        )
        self._newest_micros = stored.newest_micros

    def _store_objects(self, objects: Iterator[RelatedObj]) -> None:
        rows: list[Row] = []
        now = self._persist.now_micros()
        for related in objects:
            rows.append(row_of_related(related, now))
            self._objects += 1
            if len(rows) >= _ROWS_AT_ONCE:
                self._insert(rows)
                self._show("objects", self._objects)
                rows = []
        self._insert(rows)

    def _insert(self, rows: Sequence[Row]) -> None:
        if rows:
            repository = self._persist.settings.repository_id
            self._retries.repeat("import", lambda: self._backend.insert_rows(repository, rows))

    # Commits

    def _store_all_commits(self, source: ImportSource, merge_parents: IdSet) -> None:
        try:
            self._store_commits(source.commits(ordered=False), merge_parents, self._options.resume)
        except ParentMissing:
            self._writer.flush()
            self._writer.forget_unfit()
            self._commits = self._found = 0
            try:
                self._store_commits(source.commits(ordered=True), merge_parents, finds=True)
            except ParentMissing as problem:
                raise ArchiveInvalid(str(problem)) from None

    def _store_commits(
        self, commits: Iterator[ExportedCommit], merge_parents: IdSet, finds: bool
    ) -> None:
        """Complete and store commits. If it `finds`, commits that are stored are skipped."""
        batch: list[ExportedCommit] = []
        for commit in commits:
            batch.append(commit)
            if len(batch) >= COMMITS_AT_ONCE:
                self._store_batch(batch, merge_parents, finds)
                batch = []
        self._store_batch(batch, merge_parents, finds)
        self._writer.flush()

    def _store_batch(self, batch: list[ExportedCommit], merge_parents: IdSet, finds: bool) -> None:
        stored = self._persist.find([commit.id for commit in batch]) if finds and batch else {}
        merged = [id for commit in batch for id in commit.merge_parents]
        if merged:
            merge_parents.add(merged)
        for exported in batch:
            self._newest_micros = max(self._newest_micros, exported.created_micros)
            self._commits += 1
            if exported.id in stored:
                self._found += 1
            else:
                self._writer.complete(exported)
        self._show("commits", self._commits)

    def _check_merge_parents(self, ids: IdSet) -> None:
        some: list[ObjId] = []
        for id in ids:
            some.append(ObjId(id))
            if len(some) >= _ROWS_AT_ONCE:
                self._check_stored(some)
                some = []
        self._check_stored(some)

    def _check_stored(self, ids: list[ObjId]) -> None:
        stored = self._persist.find(ids) if ids else {}
        for id in ids:
            if id not in stored:
                raise ArchiveInvalid(f"Commit {id.hex()}, which was merged, is not in the export")

    # Extras

    def _store_extras(self, source: ImportSource) -> list[ExtraReference]:
        """Store what only Morag exports; returns the hidden references."""
        hidden: list[ExtraReference] = []
        moves: list[ExtraMove] = []
        now = self._persist.now_micros()
        for extra in source.extras():
            match extra:
                case ExtraObject():
                    self._insert([checked_row(extra.id, extra.kind, extra.data, now)])
                case ExtraCommit():
                    self._store_raw(read_extra_commit(extra))
                case ExtraReference():
                    hidden.append(extra)
                case ExtraMove():
                    moves.append(extra)
                    if len(moves) >= _ROWS_AT_ONCE:
                        self._persist.append_log(log_rows(moves))
                        moves = []
        self._persist.append_log(log_rows(moves))
        self._writer.flush()
        return hidden

    def _store_raw(self, commit: ExportedCommit) -> None:
        try:
            self._writer.complete_raw(commit)
        except ParentMissing as problem:
            raise ArchiveInvalid(str(problem)) from None

    def _references(
        self, source: ImportSource, marker: ImportMarker, hidden: list[ExtraReference]
    ) -> Iterator[Ref]:
        for ref in source.references():
            # Old files have no times. The time of the mark is the same when it is resumed.
            created = marker.started_micros if ref.created_micros is None else ref.created_micros
            yield Ref(ref.name, ref.pointer, False, created, ref.extended_info or None)
        for extra in hidden:
            yield Ref(extra.name, ObjId(extra.pointer), False, extra.created_micros)


def _description(
    description: RepositoryDescription, described: ExportedDescription | None
) -> RepositoryDescription:
    if described is None:
        return description
    oldest = description.oldest_possible_commit_time
    if described.oldest_commit_millis is not None:
        nanos = described.oldest_commit_millis * 1_000_000
        oldest = instant_text(max(MIN_NANOS, min(nanos, MAX_NANOS)))
    return msgspec.structs.replace(
        description,
        oldest_possible_commit_time=oldest,
        properties={**described.properties, **description.properties},
        default_branch_name=_default_branch(described),
    )


def _default_branch(described: ExportedDescription | None) -> str:
    return (described.default_branch if described is not None else None) or "main"
