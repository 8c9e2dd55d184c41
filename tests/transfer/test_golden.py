"""A store that Nessie wrote is exported and imported without a loss that matters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format import object_codec as codec
from morag.format.index_bytes import own_entries
from morag.format.objects import Commit, CommitKind
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.format import golden
from tests.transfer import nessie_files
from tests.transfer.copies import assert_intact, assert_same, export_to, import_from, rows

if TYPE_CHECKING:
    from pathlib import Path

    from morag.format.records import ObjId, Row

NESSIES: Final = Settings(
    max_incremental_index_bytes=1300,
    min_index_segment_bytes=1300,
    max_index_segment_bytes=2600,
    max_inlined_stripes=2,
    parents_per_commit=8,
)


def reachable(backend: MemoryBackend) -> set[ObjId]:
    """The commits of all references and their parents."""
    names = [name for name in golden.refs() if not name.startswith("int/")]
    todo = [ref.pointer for ref in backend.read_refs("", names).values()]
    commits = golden.of_kind(Commit)
    seen: set[ObjId] = set()
    while todo:
        id = todo.pop()
        if id in commits and id not in seen:
            seen.add(id)
            todo += commits[id].parents
    return seen


def without_index(row: Row) -> object:
    """A commit without its tail, its index and its seal, but with its own operations."""
    commit = codec.decode(row)
    assert isinstance(commit, Commit)
    assert commit.kind is CommitKind.NORMAL
    own = list(own_entries(commit.incremental))
    bare = replace(
        commit,
        tail=commit.tail[:1],
        incremental=b"",
        reference_index=None,
        stripes=(),
        sealed=False,
    )
    return bare, own


def test_rows_of_nessie_are_the_same_after_an_import(tmp_path: Path) -> None:
    """But for tails and indexes, which a writer chooses, and for seals."""
    source = golden.store(NESSIES)._backend
    assert isinstance(source, MemoryBackend)
    report = export_to(tmp_path / "files", source, NESSIES, check=True)
    assert report.unproven == 0
    copy = MemoryBackend()
    assert import_from(tmp_path / "files", copy, NESSIES, strict=True).unfit == 0
    before, after = rows(source), rows(copy)
    commits = reachable(source)
    assert len(commits) > 200
    for id in commits:
        assert without_index(after[id]) == without_index(before[id])
    values = {id for id, row in after.items() if row.kind in "vu"}
    assert len(values) > 400
    assert all(after[id] == before[id] for id in values)
    assert_intact(Repository(copy, NESSIES, World()), 2)


def test_a_catalog_of_nessie_shows_the_same_after_an_import(tmp_path: Path) -> None:
    source = golden.store(NESSIES)._backend
    export_to(tmp_path / "files.zip", source, NESSIES)
    nessie_files.rewrite(tmp_path / "files.zip", tmp_path / "newest-first", version=3)
    original = Repository(source, NESSIES, World())
    for path in (tmp_path / "files.zip", tmp_path / "newest-first"):
        copy = MemoryBackend()
        import_from(path, copy, Settings())
        found = Repository(copy, Settings(), World())
        if path.suffix == ".zip":
            assert_same(original, found)
        else:
            assert list(found.references.list()) == list(original.references.list())
