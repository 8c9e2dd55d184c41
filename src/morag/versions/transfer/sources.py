"""The sources of imports: their protocol, and export files as a source."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from typing import IO, TYPE_CHECKING, Final, Protocol

from morag.errors import ArchiveInvalid
from morag.format.export_messages import (
    EXPORTED_REF,
    NAMED_REFERENCE,
    RELATED_OBJ,
    ExportedRef,
    ExportVersion,
    NamedReference,
    ReferenceKind,
    RelatedObj,
    read_message,
    sized_message_at,
)
from morag.logic.commit_graph import CommitGraph, GraphCommit
from morag.model.names import full_name
from morag.versions.transfer.extra_file import read_extras
from morag.versions.transfer.file_names import file_problems
from morag.versions.transfer.imported_commits import read_commit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from morag.format.export_messages import ExportedCommit, ExportedDescription
    from morag.versions.transfer.archive import ArchiveReader
    from morag.versions.transfer.extra_file import Extra

_LINE_COMMITS: Final = 1000
_OFFSET_BITS: Final = 44
_COPY_BYTES: Final = 1024 * 1024


class ImportSource(Protocol):
    """A repository to import. Every method may be called again, after an import was resumed."""

    @property
    def identity(self) -> str:
        """Differs between sources: an import is resumed only with the same one."""
        ...

    @property
    def commit_count(self) -> int | None:
        """How many commits there are, if that is known."""
        ...

    def description(self) -> ExportedDescription | None: ...

    def objects(self) -> Iterator[RelatedObj]:
        """Claims on content ids, and custom objects."""
        ...

    def commits(self, *, ordered: bool) -> Iterator[ExportedCommit]:
        """All commits, in the form of version 3.

        If they are `ordered`, each comes after its first parent. Otherwise the order is the one
        that takes the least work.
        """
        ...

    def references(self) -> Iterator[ExportedRef]:
        """References by their full names, without the hidden ones."""
        ...

    def extras(self) -> Iterator[Extra]: ...


class ArchiveSource:
    """Export files. They are checked for completeness while they are read."""

    def __init__(self, archive: ArchiveReader) -> None:
        self._archive = archive
        self._meta = archive.meta

    @property
    def identity(self) -> str:
        meta = self._meta
        counts = f"{meta.commit_count} commits, {meta.reference_count} references"
        return f"version {meta.version}, created {meta.created_millis}, {counts}"

    @property
    def commit_count(self) -> int | None:
        return self._meta.commit_count

    def description(self) -> ExportedDescription | None:
        found = self._archive.description()
        if found is None and self._meta.version != ExportVersion.V1:
            raise ArchiveInvalid(
                f"'{self._archive.path}' has no description of the repository: a part of the "
                "export is missing"
            )
        return found

    def objects(self) -> Iterator[RelatedObj]:
        found = 0
        for name in self._meta.generic_files:
            for _, message in self._archive.messages(name):
                yield read_message(RELATED_OBJ, message, f"An object in '{name}'")
                found += 1
        self._check_count("objects", found, self._meta.generic_count or 0)

    def commits(self, *, ordered: bool) -> Iterator[ExportedCommit]:
        if ordered:
            yield from self._ordered_commits()
            return
        found = 0
        for name in self._meta.commit_files:
            for _, message in self._archive.messages(name):
                yield read_commit(message, self._meta.version)
                found += 1
        self._check_count("commits", found, self._meta.commit_count)

    def references(self) -> Iterator[ExportedRef]:
        found = 0
        for name in self._meta.reference_files:
            for _, message in self._archive.messages(name):
                yield self._reference(message, name)
                found += 1
        self._check_count("references", found, self._meta.reference_count)

    def extras(self) -> Iterator[Extra]:
        return read_extras(self._archive.extra_lines())

    def _ordered_commits(self) -> Iterator[ExportedCommit]:
        """Files in any order: first the place of each commit is noted, then they are read again."""
        with CommitGraph() as graph, ExitStack() as stack:
            graph.add(self._places())
            files = [stack.enter_context(self._seekable(name)) for name in self._meta.commit_files]
            for line in graph.lines(_LINE_COMMITS):
                for commit in line.commits:
                    number, offset = divmod(commit.place, 1 << _OFFSET_BITS)
                    message = sized_message_at(files[number], offset)
                    yield read_commit(message, self._meta.version)

    def _places(self) -> Iterator[GraphCommit]:
        found = 0
        for number, name in enumerate(self._meta.commit_files):
            for offset, message in self._archive.messages(name):
                commit = read_commit(message, self._meta.version)
                place = (number << _OFFSET_BITS) + offset
                yield GraphCommit(commit.id, commit.parent, commit.seq, place=place)
                found += 1
        self._check_count("commits", found, self._meta.commit_count)

    def _seekable(self, name: str) -> IO[bytes]:
        """The file; an entry of a ZIP file is decompressed into a temporary file."""
        file = self._archive.open(name)
        if not self._archive.is_zip:
            return file
        copy = tempfile.TemporaryFile()  # noqa: SIM115 - The caller closes it.
        with file, file_problems(self._archive.path):
            shutil.copyfileobj(file, copy, _COPY_BYTES)
        return copy

    def _reference(self, message: bytes, name: str) -> ExportedRef:
        what = f"A reference in '{name}'"
        if self._meta.version != ExportVersion.V1:
            return read_message(EXPORTED_REF, message, what)
        old: NamedReference = read_message(NAMED_REFERENCE, message, what)
        is_tag = old.kind == ReferenceKind.TAG
        return ExportedRef(full_name("TAG" if is_tag else "BRANCH", old.name), old.pointer)

    def _check_count(self, what: str, found: int, expected: int) -> None:
        if found != expected:
            raise ArchiveInvalid(
                f"'{self._archive.path}' has {found} {what}, and its metadata says {expected}: a "
                "part of the export is missing"
            )
