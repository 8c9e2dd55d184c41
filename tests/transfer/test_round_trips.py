"""A repository that is exported and imported is the same, in every format and on every store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.backend.urls import open_backend
from morag.config import Settings
from morag.errors import BadRequest, ReferenceNotFound
from morag.format.object_codec import decode
from morag.format.objects import Commit
from morag.format.proof import is_proven
from morag.model.keys import ContentKey
from morag.model.operations import Put
from morag.versions.maintenance.checking import WholeCheck
from morag.versions.maintenance.rewriting import cut
from morag.versions.repository import Repository
from morag.versions.transfer import lines
from morag.versions.transfer.archive import ArchiveReader
from morag.versions.transfer.archive_writing import new_archive
from morag.versions.transfer.catalog_source import CatalogSource, PullOptions
from morag.versions.transfer.exporting import ExportOptions, export
from morag.versions.transfer.importing import Importer, ImportOptions
from morag.versions.world import World
from tests.rules.operations import put
from tests.safety.full_repository import SMALL, fill
from tests.transfer import nessie_files
from tests.transfer.copies import (
    assert_intact,
    assert_same,
    export_to,
    import_from,
    imported_copy,
    rows,
    state,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def repo(backend: MemoryBackend) -> Repository:
    """A repository with every kind of object and all kinds of changes."""
    repo = Repository(backend, SMALL, World())
    fill(repo)
    return repo


@pytest.mark.parametrize(
    ("name", "version", "max_file_bytes"),
    [("files", 3, None), ("files.zip", 3, 1000), ("files", 2, 1000), ("files.zip", 2, None)],
)
def test_an_imported_repository_is_the_same(
    repo: Repository,
    backend: MemoryBackend,
    tmp_path: Path,
    name: str,
    version: int,
    max_file_bytes: int | None,
) -> None:
    path = tmp_path / name
    written = export_to(path, backend, SMALL, version=version, max_file_bytes=max_file_bytes)
    copy = MemoryBackend()
    report = import_from(path, copy, SMALL)
    assert (report.commits, report.references) == (written.commits, written.references)
    assert (written.unproven, report.unfit, report.found) == (1, 0, 0)
    found = Repository(copy, SMALL, World())
    assert_same(repo, found)
    assert_intact(found)


def test_imported_rows_are_those_that_commits_wrote(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    """Also indexes and tails; only seals, records of references and of the repository differ."""
    export_to(tmp_path / "files", backend, SMALL)
    copy = MemoryBackend()
    import_from(tmp_path / "files", copy, SMALL)
    before, after = rows(backend), rows(copy)
    internal = {id for id, row in before.items() if row.kind == "c" and _is_internal(repo, id)}
    lost = {row.kind for id, row in before.items() if id not in after and id not in internal}
    assert lost <= {"r", "s", "i", "I"}  # Records, the description, and indexes of `int/refs`.
    for id, row in before.items():
        if row.kind == "c" and id in after:
            commit, found = decode(row), decode(after[id])
            assert isinstance(commit, Commit) and isinstance(found, Commit)
            assert found == replace(commit, sealed=found.sealed)
            is_config = commit.message.startswith("Update config")  # Carried as it is.
            assert found.sealed or is_config or not (is_proven(commit) or commit.sealed)
        elif id in after:
            assert after[id] == row
    assert all(row.kind not in "vu" for id, row in before.items() if id not in after)


def _is_internal(repo: Repository, id: object) -> bool:
    return repo._persist.fetch(Commit, id).kind.name == "INTERNAL"  # type: ignore[arg-type]


@pytest.mark.parametrize("target", ["sqlite:{}/store", "rocksdb:{}/store"])
def test_stores_on_disk_are_exported_and_imported(tmp_path: Path, target: str) -> None:
    url = target.format(tmp_path / "a") + "?sync=off"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with open_backend_of(url) as repo:
        fill(repo)
        expected = state(repo)
    backend = open_backend(url, read_only=True)
    export_to(tmp_path / "files.zip", backend, SMALL)
    backend.close()
    copy = target.format(tmp_path / "b") + "?sync=off"
    other = open_backend(copy)
    import_from(tmp_path / "files.zip", other, SMALL)
    other.close()
    with open_backend_of(copy) as found:
        assert state(found) == expected
        assert_intact(found)
        found.commit("main", [put("after", "the import")], "goes on")


def open_backend_of(url: str) -> Repository:
    return Repository(open_backend(url), SMALL, World())


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("name", ["files", "files.zip"])
def test_files_in_the_order_of_nessie_are_imported_by_two_passes(
    repo: Repository, backend: MemoryBackend, tmp_path: Path, version: int, name: str
) -> None:
    """Newest first, without content ids of deletes, and without `morag-extra`."""
    export_to(tmp_path / "ours", backend, SMALL)
    path = tmp_path / name
    nessie_files.rewrite(tmp_path / "ours", path, version=version, max_file_bytes=2000)
    copy = MemoryBackend()
    report = import_from(path, copy, SMALL)
    assert (report.unfit, report.found) == (0, 0)
    found = Repository(copy, SMALL, World())
    expected = state(repo, with_moves=False)
    expected["notes"] = dict.fromkeys(expected["notes"])
    expected["config"] = None
    assert state(found, with_moves=False) == expected
    assert_intact(found)


def test_new_content_ids_are_claimed_again(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    """Files of version 2 have no claims: they are made from the commits."""
    export_to(tmp_path / "files", backend, SMALL, version=2)
    copy = MemoryBackend()
    import_from(tmp_path / "files", copy, SMALL)
    claims = {id for id, row in rows(backend).items() if row.kind == "u"}
    assert claims == {id for id, row in rows(copy).items() if row.kind == "u"}


def test_times_and_properties_of_the_repository_are_kept(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    export_to(tmp_path / "files", backend, SMALL)
    before, after = repo.describe(), imported_copy(tmp_path / "files").describe()
    millis = before.oldest_possible_commit_time[:23]
    assert after.oldest_possible_commit_time.startswith(millis)
    assert after.repository_imported_time is not None
    assert (after.default_branch_name, after.properties) == ("main", {})


def test_creation_times_of_references_are_kept(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    export_to(tmp_path / "files", backend, SMALL)
    copy = MemoryBackend()
    import_from(tmp_path / "files", copy, SMALL)
    names = ["refs/heads/main", "refs/heads/dev", "refs/tags/v1", "nessie/configs"]
    before, after = backend.read_refs("", names), copy.read_refs("", names)
    assert {n: after[n].identity for n in names} == {n: before[n].identity for n in names}


def test_patterns_choose_references(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    report = export_to(tmp_path / "files", backend, SMALL, references=("s*", "refs/tags/v1"))
    found = imported_copy(tmp_path / "files", SMALL)
    assert [ref.name for ref in found.references.list()] == ["side", "v1"]
    assert (report.references, found.default_branch) == (2, "side")
    assert {move.reference.name for move in found.references.moves(100).items} == {"side", "v1"}
    with pytest.raises(BadRequest, match="No reference matches"):
        export_to(tmp_path / "none", backend, SMALL, references=("nothing",))
    with pytest.raises(BadRequest, match="needs one"):
        export_to(tmp_path / "tags", backend, SMALL, references=("v*",))
    assert list((tmp_path / "tags").iterdir()) == []  # That was found before the history was read.


def test_progress_counts_the_commits_of_a_long_line(
    backend: MemoryBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "_COMMITS_AT_ONCE", 1)
    repo = Repository(backend, Settings(parents_per_commit=2), World())
    for number in range(6):
        repo.commit("main", [put(str(number), "x")], "one more")
    shown: list[int] = []

    def show(stage: str, done: int) -> None:
        if stage == "commits":
            shown.append(done)

    with new_archive(tmp_path / "files") as archive:
        export(backend, Settings(), World(), archive, ExportOptions(), "1", show)
    assert shown == sorted(set(shown)) and len(shown) > 2 and shown[-1] == 6


def test_merged_branches_are_exported_although_they_were_deleted(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    repo.references.delete("dev")
    export_to(tmp_path / "files", backend, SMALL)
    found = imported_copy(tmp_path / "files", SMALL)
    assert_same(repo, found)
    merge = next(entry for entry in found.history.log("main") if len(entry.meta.parents) > 1)
    assert list(found.history.log(f"@{merge.meta.parents[1]}"))


@pytest.mark.parametrize("is_pulled", [False, True])
def test_contents_from_before_a_cut_are_kept(
    repo: Repository, backend: MemoryBackend, tmp_path: Path, is_pulled: bool
) -> None:
    middle = [entry.meta.hash or "" for entry in repo.history.log("main")][5]
    cut(backend, SMALL, World(), middle, dry_run=False)
    repo, copy = Repository(backend, SMALL, World()), MemoryBackend()
    inherited = len(list(repo.contents.keys(f"@{middle}")))
    assert inherited > 5
    if is_pulled:
        with CatalogSource(repo, PullOptions(), time.sleep) as source:
            Importer(copy, SMALL, World(), ImportOptions()).run(source)
    else:
        export_to(tmp_path / "files", backend, SMALL)
        import_from(tmp_path / "files", copy, SMALL)
    found = Repository(copy, SMALL, World())
    for at in ("main", "dev", f"@{middle}"):
        expected = list(repo.contents.entries(at, with_content=True))
        assert list(found.contents.entries(at, with_content=True)) == expected
    (first,) = list(found.history.log(f"@{middle}", with_operations=True))
    assert len(first.operations or ()) >= inherited
    assert list(WholeCheck(copy, SMALL, World()).findings()) == []


def test_the_current_contents_of_a_branch_get_a_short_history(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    many = [put(f"extra-{n:03}", "x") for n in range(220)]
    repo.commit("main", many, "many")
    report = export_to(tmp_path / "files", backend, SMALL, current="main")
    copy = MemoryBackend()
    assert import_from(tmp_path / "files", copy, SMALL).unfit == 0
    found = Repository(copy, SMALL, World())
    entries = list(repo.contents.entries("main", with_content=True))
    assert list(found.contents.entries("main", with_content=True)) == entries
    log = list(found.history.log("main"))
    assert len(log) == report.commits == -(-len(entries) // 100)
    assert log[-1].meta.message == "Single branch export from 'main', part 1"
    assert log[-1].meta.commit_time is not None
    assert [ref.name for ref in found.references.list()] == ["main"]
    assert found.repository_config() == repo.repository_config()
    assert_intact(found)
    with pytest.raises(ReferenceNotFound):
        export_to(tmp_path / "none", backend, SMALL, current="nothing")


def test_an_empty_repository_is_exported_and_imported(tmp_path: Path) -> None:
    backend = MemoryBackend()
    repo = Repository(backend, Settings(default_branch="trunk"), World())
    export_to(tmp_path / "files", backend)
    found = imported_copy(tmp_path / "files")
    assert_same(repo, found)
    assert found.default_branch == "trunk"


def test_another_repository_of_the_store_is_left_alone(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    export_to(tmp_path / "files", backend, SMALL)
    before = rows(backend)
    other = replace(SMALL, repository_id="other")
    import_from(tmp_path / "files", backend, other)
    assert rows(backend) == before
    assert_same(repo, Repository(backend, other, World()))


def test_metadata_names_the_version_of_nessie_and_all_files(
    repo: Repository, backend: MemoryBackend, tmp_path: Path
) -> None:
    export_to(tmp_path / "files", backend, SMALL, max_file_bytes=3000)
    with ArchiveReader(tmp_path / "files") as archive:
        meta = archive.meta
    assert meta.nessie_version == "0.99.0 (morag 1.2.3)"
    listed = {*meta.commit_files, *meta.reference_files, *meta.generic_files}
    fixed = {"export-metadata", "heads-and-forks", "repository-description", "morag-extra"}
    assert {path.name for path in (tmp_path / "files").iterdir()} == listed | fixed
    assert len(meta.commit_files) > 2
    assert meta.commit_files[0] == "commits-00000001"


def test_many_references_take_few_commits(tmp_path: Path) -> None:
    backend = MemoryBackend()
    repo = Repository(backend, Settings(), World())
    repo.commit("main", [Put(ContentKey.of("t"), put("t", "x").content)], "one")
    for number in range(1200):
        repo.references.create_branch(f"b{number:04}", "main")
    export_to(tmp_path / "files", backend)
    copy = MemoryBackend()
    import_from(tmp_path / "files", copy)
    found = Repository(copy, Settings(), World())
    assert_same(repo, found)
    assert sum(1 for _ in copy.scan_rows("", frozenset("c"))) < 10
