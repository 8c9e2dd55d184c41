"""Stores opened read-only: they work beside a writer and change nothing."""

from __future__ import annotations

import gc
import subprocess
import sys
from types import FunctionType, MethodType
from typing import TYPE_CHECKING

import msgspec
import pytest

import morag
from morag import ContentKey, IcebergTable, Put, StoreReadOnly
from morag.backend.base import LogRow, ObjId, Ref, RefSwap, Row
from morag.backend.read_only import ReadOnlyBackend
from morag.backend.urls import open_backend
from morag.errors import ReferenceNotFound, RepositoryCorrupt, StoreUrlInvalid
from morag.logic.references import References
from morag.logic.reflog import RefLogWriter
from morag.model.configs import GarbageCollectorConfig
from morag.versions.batches import BatchWriter
from morag.versions.known_heads import KnownHeads
from morag.versions.lanes import Lanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from morag import Repository
    from morag.backend.base import Backend

TABLE = IcebergTable(metadata_location="m", snapshot_id=1, schema_id=1, spec_id=1, sort_order_id=1)


@pytest.fixture(params=["rocksdb", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path / 'store'}"


@pytest.fixture
def repo(url: str) -> Iterator[Repository]:
    with morag.open(url) as repo:
        add(repo, "t")
        yield repo


def add(repo: Repository, name: str) -> str:
    return repo.commit("main", [Put(ContentKey.of(name), TABLE)], "m").hash


def test_a_reader_sees_the_commits_of_a_writer(url: str, repo: Repository) -> None:
    with morag.open(url, read_only=True) as reader:
        assert reader.references.get("main") == repo.references.get("main")
        assert reader.contents.get("main", ContentKey.of("t")).id is not None
        assert list(reader.history.hashes("main")) == list(repo.history.hashes("main"))
        assert reader.references.moves() == repo.references.moves()
    for name in ("u", "v"):
        head = add(repo, name)
        with morag.open(url, read_only=True) as reader:
            assert reader.references.get("main").hash == head


def test_a_reader_does_not_block_the_writer(url: str, repo: Repository) -> None:
    with morag.open(url, read_only=True) as reader:
        at = f"@{reader.references.get('main').hash}"
        for number in range(200):
            add(repo, f"more{number}")
        assert list(reader.contents.keys(at)) == [ContentKey.of("t")]
        assert len(list(repo.contents.keys("main"))) == 201


def test_several_readers_can_open_a_store_without_a_writer(url: str, repo: Repository) -> None:
    repo.close()
    with morag.open(url, read_only=True) as one, morag.open(url, read_only=True) as other:
        assert one.references.get("main") == other.references.get("main")
    with morag.open(url) as writer:
        add(writer, "u")


def test_another_process_can_read(url: str, repo: Repository) -> None:
    code = (
        "import sys, morag\n"
        "with morag.open(sys.argv[1], read_only=True) as reader:\n"
        "    print(reader.references.get('main').hash)\n"
    )
    command = [sys.executable, "-c", code, url]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert output.split() == [repo.references.get("main").hash]


def test_a_missing_store_is_not_created(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUrlInvalid, match="There is no"):
        morag.open(url, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_repository_is_refused(url: str, repo: Repository) -> None:
    other = morag.Settings(repository_id="other")
    with pytest.raises(StoreUrlInvalid, match="holds no such repository"):
        morag.open(url, other, read_only=True)


def test_the_files_of_another_program_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a database at all, whatever its name may say")
    with pytest.raises(StoreUrlInvalid):
        morag.open(f"sqlite:{tmp_path / 'file'}", read_only=True)
    (tmp_path / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises((StoreUrlInvalid, RepositoryCorrupt)):
        morag.open(f"rocksdb:{tmp_path}", read_only=True)


@pytest.mark.parametrize(
    "write",
    [
        lambda b: b.swap_ref("", RefSwap("n", None, Ref("n", ObjId(b"i")))),
        lambda b: b.insert_rows("", [Row(ObjId(b"i"), "v", b"d")]),
        lambda b: b.swap_row("", Row(ObjId(b"i"), "v", b"d"), None),
        lambda b: b.delete_rows("", [ObjId(b"i")]),
        lambda b: b.erase(""),
        lambda b: b.append_log("", [LogRow(b"k", b"d")]),
    ],
)
def test_every_write_of_the_backend_is_refused(
    url: str, repo: Repository, write: Callable[[Backend], object]
) -> None:
    backend = open_backend(url, read_only=True)
    assert isinstance(backend, ReadOnlyBackend)
    with pytest.raises(StoreReadOnly):
        write(backend)
    assert [row.id for row in backend.scan_rows("")] != []
    backend.close()


def test_interrupted_changes_are_shown_as_done_and_left_unchanged(
    url: str, repo: Repository
) -> None:
    """A creation without its row is shown as done, and so is a drop that was only started."""
    repo.references.create_branch("created", "main")
    repo.references.create_branch("dropped", "main")
    repo.close()
    backend = open_backend(url)
    created, dropped = (f"refs/heads/{name}" for name in ("created", "dropped"))
    rows = backend.read_refs("", [created, dropped])
    backend.swap_ref("", RefSwap(created, rows[created], None))
    marked = msgspec.structs.replace(rows[dropped], deleted=True)
    backend.swap_ref("", RefSwap(dropped, rows[dropped], marked))
    backend.close()
    with morag.open(url, read_only=True) as reader:
        assert [ref.name for ref in reader.references.list()] == ["created", "main"]
        assert reader.references.get("created").hash == reader.references.get("main").hash
        with pytest.raises(ReferenceNotFound):
            reader.references.get("dropped")
    backend = open_backend(url)
    assert backend.read_refs("", [created, dropped]) == {dropped: marked}
    backend.close()


def test_a_reader_has_no_objects_that_write(url: str, repo: Repository) -> None:
    writing = {Lanes, BatchWriter, KnownHeads, RefLogWriter, References}
    assert writing & _kinds_below(repo)
    with morag.open(url, read_only=True) as reader:
        assert not writing & _kinds_below(reader)


@pytest.mark.parametrize(
    "write",
    [
        lambda r: add(r, "u"),
        lambda r: r.merge("main", "main"),
        lambda r: r.transplant([r.references.get("main").hash], "main"),
        lambda r: r.references.create_branch("b", "main"),
        lambda r: r.references.create_tag("t", "main"),
        lambda r: r.references.assign("main", "main"),
        lambda r: r.references.delete("main"),
        lambda r: r.set_repository_config(GarbageCollectorConfig(default_cutoff_policy="NONE")),
    ],
)
def test_every_write_of_the_repository_is_refused_with_a_message(
    url: str, repo: Repository, write: Callable[[Repository], object]
) -> None:
    with (
        morag.open(url, read_only=True) as reader,
        pytest.raises(StoreReadOnly, match="opened read-only; open it without `read_only`"),
    ):
        write(reader)


def _kinds_below(repo: Repository) -> set[type]:
    """The types of all objects of Morag that are reachable from the repository."""
    found: dict[int, object] = {}
    waiting: list[object] = [repo]
    while waiting:
        each = waiting.pop()
        is_morags = type(each).__module__.startswith("morag")
        if id(each) in found or not (
            is_morags or isinstance(each, dict | MethodType | FunctionType)
        ):
            continue
        found[id(each)] = each
        if isinstance(each, FunctionType):  # Follow the closure of a lambda, not its module.
            waiting += [cell.cell_contents for cell in each.__closure__ or ()]
        else:
            waiting += gc.get_referents(each)
    return {type(each) for each in found.values()}
