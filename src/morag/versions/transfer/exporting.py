"""Writes a repository to export files, while servers may go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import ReferenceNotFound, RepositoryCorrupt
from morag.format.carried_rows import EXPORTED_CUSTOM_KINDS, related_of_row
from morag.format.export_messages import (
    EXPORTED_DESCRIPTION,
    EXPORTED_REF,
    HEADS_AND_FORKS,
    RELATED_OBJ,
    ExportedDescription,
    ExportedRef,
    ExportMeta,
    ExportVersion,
    HeadsAndForks,
    sized,
    sized_messages,
)
from morag.format.ids import NO_ANCESTOR
from morag.format.records import ObjId
from morag.logic.commit_graph import CommitGraph
from morag.logic.cut_points import unchecked_cuts
from morag.logic.import_marker import check_not_importing
from morag.logic.reference_reader import ReferenceReader, short_name
from morag.logic.refutation import fits
from morag.logic.repository import check_exists, read_description
from morag.model.names import full_name
from morag.model.times import parse_instant
from morag.persist.cache import ObjectCache
from morag.persist.fitting import fitted_settings
from morag.persist.persist import Persist
from morag.versions.configs import CONFIGS
from morag.versions.transfer import file_names
from morag.versions.transfer.exported_commits import exported, exported_content_id
from morag.versions.transfer.extra_file import extra_line, extras_of
from morag.versions.transfer.id_set import IdSet
from morag.versions.transfer.lines import Lines
from morag.versions.transfer.reference_choice import chosen_names, default_branch_among
from morag.versions.transfer.single_branch import made_up_commits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from morag.backend.base import Backend
    from morag.config import Settings
    from morag.format.export_transcoding import StoredCommit
    from morag.format.records import Ref
    from morag.versions.transfer.archive_writing import ArchiveWriter, DataFiles
    from morag.versions.world import World

NESSIE_VERSION: Final = "0.99.0"
"""The version of Nessie that Morag is tested with."""

_CACHE_BYTES: Final = 16 * 1024 * 1024
_ROOT: Final = "refs/"
_LINE_IN_MEMORY_BYTES: Final = 8 * 1024 * 1024
_MOST_READS_OF_REFERENCES: Final = 5
_SHOWN_IDS: Final = 20


class ExportOptions(Struct, frozen=True, kw_only=True):
    """`references` are patterns of names; without any, all references are exported.

    With `current`, only the contents of that branch are exported, without their history.
    With `check`, ids that do not follow from their rows are also compared with the parents; with
    `strict`, one that does not fit ends the export.
    """

    version: int = ExportVersion.V3
    references: tuple[str, ...] = ()
    current: str | None = None
    check: bool = False
    strict: bool = False


class ExportReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The numbers of an export. `unproven` counts ids that could not be verified."""

    references: int
    commits: int
    objects: int
    unproven: int
    unproven_ids: tuple[str, ...] = ()


class WrittenHistory(Struct, frozen=True, kw_only=True):
    """The data files of an export with commits and objects, and what they hold."""

    heads: HeadsAndForks
    commits: int
    commit_files: tuple[str, ...]
    objects: int = 0
    object_files: tuple[str, ...] = ()
    unproven: int = 0
    unproven_ids: tuple[ObjId, ...] = ()


Show: TypeAlias = Callable[[str, int], None]
"""Called with a stage, and how much of it is done."""


def export(
    backend: Backend,
    settings: Settings,
    world: World,
    archive: ArchiveWriter,
    options: ExportOptions,
    morag_version: str,
    show: Show = lambda stage, done: None,
) -> ExportReport:
    """Export the repository of these settings. The backend may be open for reading only."""
    settings = fitted_settings(settings, backend)
    persist = Persist(backend, ObjectCache(_CACHE_BYTES), settings, world.clock_nanos)
    return Exporter(persist, backend, archive, options, morag_version, show).run()


class Exporter:
    """Exports one repository, of which only rows are read: no server needs to stop."""

    def __init__(
        self,
        persist: Persist,
        backend: Backend,
        archive: ArchiveWriter,
        options: ExportOptions,
        morag_version: str,
        show: Show = lambda stage, done: None,
    ) -> None:
        self._persist = persist
        self._backend = backend
        self._archive = archive
        self._options = options
        self._morag_version = morag_version
        self._show = show
        self._unproven: list[ObjId] = []
        self._unproven_count = 0
        self._commits_read = 0
        self._commits = archive.data_files(file_names.COMMITS)
        self._content_ids = IdSet()

    def run(
        self, write_history: Callable[[Sequence[ObjId]], WrittenHistory] | None = None
    ) -> ExportReport:
        """Export everything.

        If `write_history` is given, it writes the data files with the commits that these ones lead
        to, and with their objects.
        """
        check_exists(self._persist)
        check_not_importing(read_description(self._persist))
        started_nanos = self._persist.clock_nanos()
        # References first: commits that are made later are not exported, and do no harm.
        references = consistent_references(self._persist)
        hidden = [ref for ref in references if ref.name == CONFIGS]
        shown = self._chosen([ref for ref in references if ref.name.startswith(_ROOT)])
        description = self._description(shown)
        with closing(self._content_ids):
            if write_history is not None:
                # It waits for others most of the time. The ref-log may be as long as the history.
                with ThreadPoolExecutor(1) as pool:
                    extras = pool.submit(self._write_extras, hidden, shown, started_nanos)
                    history = write_history([ref.pointer for ref in shown])
                    extras.result()
            else:
                if self._options.current is None:
                    heads = self._write_history(shown)
                else:
                    shown, heads = self._write_current(shown[0], started_nanos)
                history = self._written_history(heads)
                self._write_extras(hidden, shown, started_nanos)
        heads = replace(history.heads, scan_started_micros=started_nanos // 1000)
        self._archive.write(file_names.HEADS_AND_FORKS, HEADS_AND_FORKS.encode(heads))
        named = self._write_references(shown)
        self._archive.write(file_names.DESCRIPTION, EXPORTED_DESCRIPTION.encode(description))
        self._archive.finish(self._meta(started_nanos, named, history))
        return ExportReport(
            references=named.count,
            commits=history.commits,
            objects=history.objects,
            unproven=history.unproven,
            unproven_ids=tuple(id.hex() for id in history.unproven_ids),
        )

    def _written_history(self, heads: HeadsAndForks) -> WrittenHistory:
        self._commits.close()
        objects = self._write_objects()
        return WrittenHistory(
            heads=heads,
            commits=self._commits.count,
            commit_files=tuple(self._commits.names),
            objects=objects.count,
            object_files=tuple(objects.names),
            unproven=self._unproven_count,
            unproven_ids=tuple(self._unproven),
        )

    def _write_history(self, references: list[Ref]) -> HeadsAndForks:
        with CommitGraph() as graph:
            self._write_commits(graph, [ref.pointer for ref in references])
            return HeadsAndForks(tuple(graph.heads()), tuple(graph.forks()))

    def _write_current(self, branch: Ref, now_nanos: int) -> tuple[list[Ref], HeadsAndForks]:
        """Write the contents of a branch; returns the branch as it points to them."""
        head = NO_ANCESTOR
        for made in made_up_commits(
            self._persist, short_name(branch.name), branch.pointer, now_nanos
        ):
            head = made.id
            self._commits.add(made.message)
            self._content_ids.add(made.content_ids)
            self._show("commits", self._commits.count)
        heads = () if head == NO_ANCESTOR else (head,)
        return [replace(branch, pointer=head)], HeadsAndForks(heads)

    def _chosen(self, references: list[Ref]) -> list[Ref]:
        if self._options.current is not None:
            wanted = full_name("BRANCH", self._options.current)
            found = [ref for ref in references if ref.name == wanted]
            if not found:
                raise ReferenceNotFound.named(self._options.current)
            return found
        names = {*chosen_names([ref.name for ref in references], self._options.references)}
        return [ref for ref in references if ref.name in names]

    def _description(self, references: list[Ref]) -> ExportedDescription:
        stored = read_description(self._persist)
        default = default_branch_among([ref.name for ref in references], stored.default_branch_name)
        return ExportedDescription(
            properties=unchecked_cuts(stored.properties),
            repository_id=self._persist.settings.repository_id,
            oldest_commit_millis=parse_instant(stored.oldest_possible_commit_time) // 1_000_000,
            created_millis=parse_instant(stored.repository_created_time) // 1_000_000,
            default_branch=default,
        )

    def _write_commits(self, graph: CommitGraph, heads: Sequence[ObjId]) -> None:
        lines = Lines(self._persist, graph)
        for head in heads:
            self._write_line(lines.of(head))
        # Merged branches, which may have been deleted, and what was merged into them.
        while merged := list(graph.missing_parents()):
            for head in merged:
                self._write_line(lines.of(head))

    def _write_line(self, line: Iterator[list[StoredCommit]]) -> None:
        """Write a line oldest first, which is read newest first."""
        parts: list[tuple[int, int]] = []
        with SpooledTemporaryFile(_LINE_IN_MEMORY_BYTES) as spool:
            for commits in line:
                part = b"".join(map(sized, self._messages(commits[::-1])))
                parts.append((spool.tell(), len(part)))
                spool.write(part)
            for start, size in reversed(parts):
                spool.seek(start)
                for _, message in sized_messages(BytesIO(spool.read(size)), "spool"):
                    self._commits.add(message)

    def _messages(self, commits: list[StoredCommit]) -> list[bytes]:
        found = exported(commits, self._persist.find)
        unproven = found.unproven
        if unproven and (self._options.check or self._options.strict):
            by_id = {commit.id: commit for commit in commits}
            unproven = [id for id in unproven if not fits(self._persist, by_id[id].decoded())]
            if unproven and self._options.strict:
                raise RepositoryCorrupt(
                    f"The id of commit {unproven[0].hex()} does not follow from what is stored; "
                    "export without --check=strict to keep it as it is"
                )
        self._unproven_count += len(unproven)
        self._unproven += unproven[: _SHOWN_IDS - len(self._unproven)]
        self._content_ids.add(found.content_ids)
        self._commits_read += len(commits)
        self._show("commits", self._commits_read)
        return found.messages

    def _write_objects(self) -> DataFiles:
        """Claims on content ids, and custom objects. Files of version 2 have neither."""
        files = self._archive.data_files(file_names.GENERIC)
        if self._options.version >= ExportVersion.V3:
            for content_id in self._content_ids:
                files.add(exported_content_id(content_id))
            repository = self._persist.settings.repository_id
            for row in self._backend.scan_rows(repository, EXPORTED_CUSTOM_KINDS):
                files.add(RELATED_OBJ.encode(related_of_row(row)))
            files.close()
            self._show("objects", files.count)
        return files

    def _write_references(self, references: list[Ref]) -> DataFiles:
        files = self._archive.data_files(file_names.REFERENCES)
        for ref in references:
            message = ExportedRef(ref.name, ref.pointer, ref.extended_info, ref.created_micros)
            files.add(EXPORTED_REF.encode(message))
        files.close()
        self._show("references", files.count)
        return files

    def _write_extras(self, hidden: list[Ref], shown: list[Ref], started_nanos: int) -> None:
        names: set[str] | None = None
        if self._options.current is not None:
            names = set()  # The ref-log is about commits that are not exported.
        elif self._options.references:
            names = {ref.name for ref in shown}
        extras = extras_of(
            self._persist,
            hidden,
            shown,
            started_nanos,
            None if names is None else names.__contains__,
        )
        with self._archive.create(file_names.EXTRA) as file:
            for extra in extras:
                file.write(extra_line(extra))

    def _meta(
        self, started_nanos: int, references: DataFiles, history: WrittenHistory
    ) -> ExportMeta:
        has_generic = self._options.version >= ExportVersion.V3
        return ExportMeta(
            created_millis=started_nanos // 1_000_000,
            version=self._options.version,
            reference_count=references.count,
            commit_count=history.commits,
            reference_files=tuple(references.names),
            commit_files=history.commit_files,
            nessie_version=f"{NESSIE_VERSION} (morag {self._morag_version})",
            generic_count=history.objects if has_generic else None,
            generic_files=history.object_files,
        )


def consistent_references(persist: Persist) -> list[Ref]:
    """All references by name, read again until none moved in between, a few times at most.

    If servers keep moving them, each is as it was at some moment of the last reading.
    """
    reader = ReferenceReader(persist)
    found: list[Ref] = []
    for _ in range(_MOST_READS_OF_REFERENCES):
        before, found = found, list(reader.list())
        if before == found:
            break
    return found
