"""Repositories that exist are not overwritten, and those that are half imported are not used."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

import morag
from morag.backend.base import RefSwap
from morag.backend.memory import MemoryBackend
from morag.backend.urls import open_backend
from morag.errors import ArchiveInvalid, ImportUnderWay, RepositoryExists, RepositoryMissing
from morag.format.export_messages import EXPORTED_COMMIT, sized
from morag.format.objects import Commit
from morag.format.proof import is_proven
from morag.versions.repository import Repository
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.file_names import COMMITS, DESCRIPTION
from morag.versions.world import World
from tests.rules.operations import put
from tests.safety.full_repository import SMALL, fill
from tests.transfer.copies import assert_intact, assert_same, export_to, import_from, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def backend() -> MemoryBackend:
    backend = MemoryBackend()
    fill(Repository(backend, SMALL, World()))
    return backend


@pytest.fixture
def export(backend: MemoryBackend, tmp_path: Path) -> Path:
    export_to(tmp_path / "files", backend, SMALL)
    return tmp_path / "files"


@pytest.fixture
def cut(export: Path) -> Path:
    """An export whose references are missing: its import stops after the commits."""
    (export / "named-refs-00000001").rename(export / "later")
    return export


def test_an_existing_repository_is_left_alone(backend: MemoryBackend, export: Path) -> None:
    before = rows(backend)
    for options in ({}, {"resume": True}):
        with pytest.raises(RepositoryExists, match="has this repository already"):
            import_from(export, backend, SMALL, **options)
    assert rows(backend) == before


def test_what_an_interrupted_erase_left_is_not_imported_into(
    backend: MemoryBackend, export: Path
) -> None:
    for name in [*backend._repos[""].refs]:  # An erase removes the refs first.
        (ref,) = backend.read_refs("", [name]).values()
        backend.swap_ref("", RefSwap(name, ref, None))
    for resume in (False, True):
        with pytest.raises(RepositoryExists, match="not erased completely"):
            import_from(export, backend, SMALL, resume=resume)
    import_from(export, backend, SMALL, erase=True)


def test_a_repository_is_replaced_if_it_is_erased(backend: MemoryBackend, export: Path) -> None:
    with Repository(backend, SMALL, World()) as repo:
        repo.commit("main", [put("more", "x")], "more")
        repo.references.create_branch("more", "main")
    import_from(export, backend, SMALL, erase=True)
    repo = Repository(backend, SMALL, World())
    assert [ref.name for ref in repo.references.list()] == ["dev", "main", "side", "v1", "v2"]


def test_a_half_imported_repository_is_not_served(cut: Path) -> None:
    copy = MemoryBackend()
    with pytest.raises(ArchiveInvalid):
        import_from(cut, copy, SMALL)
    with pytest.raises(ImportUnderWay, match="--resume"):
        Repository(copy, SMALL, World())
    with pytest.raises(ImportUnderWay):
        export_to(cut.parent / "again", copy, SMALL)


def test_servers_refuse_a_half_imported_store(cut: Path, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/store"
    backend = open_backend(url)
    with pytest.raises(ArchiveInvalid):
        import_from(cut, backend)
    backend.close()
    for read_only in (False, True):
        with pytest.raises(ImportUnderWay):
            morag.open(url, read_only=read_only)
    command = [sys.executable, "-m", "morag", "serve", "--store", url, "--port", "0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1
    assert "An import into this repository has not ended" in refused.stderr


def test_an_import_goes_on_only_if_that_is_wanted(
    backend: MemoryBackend, cut: Path, tmp_path: Path
) -> None:
    copy = MemoryBackend()
    with pytest.raises(ArchiveInvalid):
        import_from(cut, copy, SMALL)
    (cut / "later").rename(cut / "named-refs-00000001")
    with pytest.raises(RepositoryExists, match="add --resume"):
        import_from(cut, copy, SMALL)
    export_to(tmp_path / "other", backend, SMALL, references=("main",))
    with pytest.raises(RepositoryExists, match="another source"):
        import_from(tmp_path / "other", copy, SMALL, resume=True)
    report = import_from(cut, copy, SMALL, resume=True)
    assert report.found == report.commits
    assert_same(Repository(backend, SMALL, World()), Repository(copy, SMALL, World()))


def test_an_import_that_did_not_end_can_be_started_again(cut: Path, backend: MemoryBackend) -> None:
    copy = MemoryBackend()
    with pytest.raises(ArchiveInvalid):
        import_from(cut, copy, SMALL)
    (cut / "later").rename(cut / "named-refs-00000001")
    import_from(cut, copy, SMALL, erase=True)
    assert_same(Repository(backend, SMALL, World()), Repository(copy, SMALL, World()))


def test_a_store_without_a_repository_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(RepositoryMissing):
        export_to(tmp_path / "files", MemoryBackend(), SMALL)


@pytest.fixture
def foreign(export: Path, tmp_path: Path) -> Path:
    """An export of a commit whose id was computed in an unknown way."""
    with ArchiveReader(export) as source, new_archive(tmp_path / "foreign") as target:
        name = source.meta.commit_files[0]
        message = next(message for _, message in source.messages(name))
        commits = target.data_files(COMMITS)
        commits.add(
            EXPORTED_COMMIT.encode(replace(EXPORTED_COMMIT.decode(message), message="changed"))
        )
        commits.close()
        with source.open(DESCRIPTION) as file:
            target.write(DESCRIPTION, file.read())
        target.finish(
            replace(
                source.meta,
                commit_count=1,
                reference_count=0,
                reference_files=(),
                generic_count=0,
                generic_files=(),
            )
        )
    return tmp_path / "foreign"


def test_an_id_that_does_not_fit_is_kept_and_counted(foreign: Path) -> None:
    """Later readers accept it, also after their cache is gone."""
    copy = MemoryBackend()
    report = import_from(foreign, copy, SMALL)
    assert (report.commits, report.unfit, len(report.unfit_ids)) == (1, 1, 1)
    repo = Repository(copy, SMALL, World())
    (entry,) = repo.history.log(f"@{report.unfit_ids[0]}")
    assert entry.meta.message == "changed"
    commit = repo._persist.fetch(Commit, repo.resolve(f"@{report.unfit_ids[0]}").id)
    assert not is_proven(commit)
    assert not commit.sealed


def test_a_strict_import_refuses_an_id_that_does_not_fit(foreign: Path) -> None:
    copy = MemoryBackend()
    with pytest.raises(ArchiveInvalid, match="does not follow from its content"):
        import_from(foreign, copy, SMALL, strict=True)
    with pytest.raises(ImportUnderWay):
        Repository(copy, SMALL, World())


def test_a_strict_export_refuses_an_id_that_does_not_fit(foreign: Path, tmp_path: Path) -> None:
    copy = MemoryBackend()
    (id,) = import_from(foreign, copy, SMALL).unfit_ids
    repo = Repository(copy, SMALL, World())
    repo.references.create_branch("foreign", f"@{id}")
    assert_intact(repo)
    assert export_to(tmp_path / "kept", copy, SMALL, check=True).unproven == 1
    with pytest.raises(morag.RepositoryCorrupt, match=id):
        export_to(tmp_path / "strict", copy, SMALL, strict=True)


def test_a_commit_of_the_future_with_a_foreign_id_is_accepted_later(
    foreign: Path, tmp_path: Path
) -> None:
    """The clock of the machine that made it was years ahead."""
    name = "commits-00000001"
    with ArchiveReader(foreign) as source:
        ((_, message),) = source.messages(name)
    commit = EXPORTED_COMMIT.decode(message)
    late = replace(commit, created_micros=commit.created_micros + 10**15)
    encoded = EXPORTED_COMMIT.encode(late)
    (foreign / name).write_bytes(sized(encoded))
    copy = MemoryBackend()
    (id,) = import_from(foreign, copy, SMALL).unfit_ids
    repo = Repository(copy, SMALL, World())
    assert [entry.meta.message for entry in repo.history.log(f"@{id}")] == ["changed"]
