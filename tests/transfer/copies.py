"""Exports, imports, and comparisons of whole catalogs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.logic.consistency import Consistency
from morag.versions.repository import Repository
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.exporting import ExportOptions, export
from morag.versions.transfer.importing import Importer, ImportOptions
from morag.versions.transfer.sources import ArchiveSource
from morag.versions.world import World

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.base import Backend, Row
    from morag.format.records import ObjId
    from morag.versions.transfer.archive_writing import ArchiveFormat
    from morag.versions.transfer.exporting import ExportReport
    from morag.versions.transfer.importing import ImportReport


def export_to(
    path: Path,
    backend: Backend,
    settings: Settings | None = None,
    *,
    format: ArchiveFormat | None = None,
    max_file_bytes: int | None = None,
    **options: Any,
) -> ExportReport:
    with new_archive(path, format, max_file_bytes) as archive:
        chosen = ExportOptions(**options)
        return export(backend, settings or Settings(), World(), archive, chosen, "1.2.3")


def import_from(
    path: Path, backend: Backend, settings: Settings | None = None, **options: Any
) -> ImportReport:
    with ArchiveReader(path) as archive:
        importer = Importer(backend, settings or Settings(), World(), ImportOptions(**options))
        return importer.run(ArchiveSource(archive))


def imported_copy(path: Path, settings: Settings | None = None) -> Repository:
    """A repository in memory with what the export has."""
    backend = MemoryBackend()
    import_from(path, backend, settings)
    return Repository(backend, settings or Settings(), World())


def state(repo: Repository, *, with_moves: bool = True) -> dict[str, Any]:
    """Everything that users can see, without the recent heads of references."""
    references = list(repo.references.list())
    return {
        "references": references,
        "notes": {
            r.name: repo.references.note(r.name or "") for r in references if r.type == "TAG"
        },
        "logs": {
            r.hash: list(repo.history.log(r.name or "", with_operations=True)) for r in references
        },
        "entries": {
            r.hash: list(repo.contents.entries(r.name or "", with_content=True)) for r in references
        },
        "config": repo.repository_config(),
        "moves": repo.references.moves(1000).items if with_moves else None,
        "default": repo.default_branch,
    }


def assert_same(one: Repository, other: Repository, *, with_moves: bool = True) -> None:
    left, right = state(one, with_moves=with_moves), state(other, with_moves=with_moves)
    for name, value in left.items():
        assert right[name] == value, name


def assert_intact(repo: Repository, most: int = 100) -> None:
    """Every commit has all that it needs, and its index is what its history says."""
    for reference in repo.references.list():
        for entry in islice(repo.history.log(reference.name or ""), most):
            status = repo.history.check(f"@{entry.meta.hash}")
            assert status.consistency is Consistency.COMMIT_CONSISTENT, status


def rows(backend: Backend, repository: str = "") -> dict[ObjId, Row]:
    """All rows without the times when they were written."""
    return {row.id: replace(row, referenced_micros=0) for row in backend.scan_rows(repository)}
