"""Nessie and Morag read and continue the repositories of each other in one directory."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from msgspec.structs import replace

import morag
from morag import TagNote
from morag.backend.base import Ref, RefSwap
from morag.backend.rocksdb.backend import RocksDBBackend
from morag.config import Settings
from morag.errors import ReferenceAlreadyExists, ReferenceNotFound
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Delete, Put
from tests.nessie.catalogs import InProcess, OverRest, Seen, assert_same, names, verdicts
from tests.nessie.server import Refused, Server, rocksdb
from tests.nessie.work import SIZES, Sizes, Work, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.nessie.catalogs import Catalog

pytestmark = pytest.mark.nessie

NOTE: Final = TagNote("für 1.0", {"Signer": ("Ann", "Bob"), "b": ("",), "a": ("x",)}, b"\x00\xff")
NOTED: Final = ("noted", "moved", "dropped")
LAKE: Final = Settings(repository_id="lake")
_DIED: Final = 42


class Directory:
    """A store directory that Nessie and Morag open in turn."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.data = path / "data"
        self._starts = 0

    @contextmanager
    def nessie(self, settings: Mapping[str, object] | None = None) -> Iterator[OverRest]:
        self._starts += 1
        log = self._path / f"nessie-{self._starts}.log"
        with Server(rocksdb(self.data), log, settings or {}) as server:
            yield OverRest(server)

    @contextmanager
    def morag(self, settings: Settings | None = None) -> Iterator[InProcess]:
        with morag.open(f"rocksdb:{self.data}", settings) as repo:
            yield InProcess(repo)

    @contextmanager
    def rows(self) -> Iterator[RocksDBBackend]:
        backend = RocksDBBackend(self.data)
        try:
            yield backend
        finally:
            backend.close()

    def count(self, kind: str) -> int:
        with self.rows() as backend:
            return sum(1 for _ in backend.scan_rows("", frozenset({kind})))


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_a_forced_merge_of_nessie_does_not_count_as_damaged(directory: Directory) -> None:
    """Both branches replaced one table, and the target deleted the other. Nessie hashes deletes of
    the merge base's content, which are not stored in any row."""
    kept, dropped = ContentKey.of("kept"), ContentKey.of("dropped")
    meta = CommitMeta(message="changed")
    with directory.nessie() as nessie:
        nessie.commit("main", [Put(kept, table(1)), Put(dropped, table(2))], meta)
        nessie.create("BRANCH", "dev", nessie.head("main"))
        for branch, again in (("dev", [kept, dropped]), ("main", [kept])):
            gone = [Delete(key) for key in (kept, dropped)]
            nessie.commit(branch, [*gone, *(Put(key, table(3)) for key in again)], meta)
        nessie.merge("dev", "main", force=True)
        shown, recent = nessie.seen(), nessie.recent("main")
    with directory.morag() as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert ours.damage() == []


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_both_servers_continue_each_others_repositories(directory: Directory, sizes: Sizes) -> None:
    with directory.nessie(sizes.theirs) as nessie:
        Work(nessie, "them").do(sizes.commits, sizes.their_bulk)
        nessie.configure("P30D")
        shown, recent = nessie.seen(), nessie.recent("main")
    spilled = directory.count("i")
    assert spilled > 0
    with directory.morag(sizes.ours) as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert ours.damage() == []
        Work(ours, "us").do(sizes.commits, sizes.our_bulk)
        assert ours.damage() == []
        shown, recent = ours.seen(), ours.recent("main")
    assert directory.count("i") > spilled
    with directory.nessie(sizes.theirs) as nessie:
        assert_same(nessie, shown)
        assert nessie.recent("main") == recent
        assert nessie.damage() == []
        assert nessie.policy() == "P30D"
        Work(nessie, "them-again").do(commits=10, bulk=10)
        shown, recent = nessie.seen(), nessie.recent("main")
    with directory.morag(sizes.ours) as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert verdicts(recent) == {"COMMIT_CONSISTENT"}
        assert ours.damage() == []


def test_nessie_continues_a_repository_that_we_created(directory: Directory) -> None:
    """Morag initializes the repository, and neither server closes its store."""
    shown = work_and_die(directory, LAKE)
    with directory.nessie({"repository-id": "lake"}) as nessie:
        assert_same(nessie, shown)
        assert nessie.damage() == []
        Work(nessie, "them").do(commits=10, bulk=10)
        # Nessie does not show the note of a tag, but keeps it, also when the tag moves.
        nessie.assign("moved", nessie.hashes("main")[-1])
        nessie.delete("dropped")
        nessie.create("TAG", "dropped", nessie.head("main"))
        shown = nessie.seen()
        nessie.kill()
    with directory.morag(LAKE) as ours:
        assert_same(ours, shown)
        assert ours.damage() == []
        notes = {name: ours.repo.references.note(name) for name in NOTED}
        assert notes == {"noted": NOTE, "moved": NOTE, "dropped": None}


def test_both_servers_show_and_complete_half_finished_changes_of_references(
    directory: Directory,
) -> None:
    with directory.morag() as ours:
        commit_table(ours, "main", 0)
        head = ours.head("main")
        create_references(ours, "our", head)
        ours.repo.references.create_tag("our-lost-noted", "main", NOTE)
    was = interrupt(directory, "our", "tags/our-lost-noted")
    with directory.nessie() as nessie:
        assert_shown_as_completed(nessie, "our", head)
        # A deletion without its last step is completed only when the name is needed again.
        with pytest.raises(Refused, match="already exists"):
            nessie.create("BRANCH", "our-unpurged", head)
        nessie.create("BRANCH", "our-unpurged", head)
        commit_table(nessie, "our-unpurged", 1)
        create_references(nessie, "their", head)
        shown = nessie.seen()
    assert_rows(directory, was)
    with directory.morag() as ours:
        assert_same(ours, shown)
        assert ours.repo.references.note("our-lost-noted") == NOTE
    was = interrupt(directory, "their")
    with directory.morag() as ours:
        assert_shown_as_completed(ours, "their", head)
        complete_by_changes(ours, "their", head)
        ours.create("BRANCH", "their-unpurged", head)
        commit_table(ours, "their-unpurged", 2)
        shown = ours.seen()
    assert_rows(directory, was)
    with directory.nessie() as nessie:
        assert_same(nessie, shown)
        assert nessie.damage() == []


# A killed process


def work_and_die(directory: Directory, settings: Settings) -> Seen:
    """Work in a process that never closes its store; returns the catalog at its end."""
    seen = directory.data.with_name("seen.json")
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_work_and_die, args=(directory.data, settings, seen))
    process.start()
    process.join()
    assert process.exitcode == _DIED
    return msgspec.json.decode(seen.read_bytes(), type=Seen)


def _work_and_die(data: Path, settings: Settings, seen: Path) -> None:
    ours = InProcess(morag.open(f"rocksdb:{data}", settings))
    Work(ours, "us").do(commits=60, bulk=60)
    ours.create("BRANCH", "one-by-one", ours.head("main"))
    for i in range(3):
        commit_table(ours, "one-by-one", i)
    commit_table(ours, "main", 7)
    ours.repo.merge("one-by-one", "main", squash=False)
    for name in NOTED:
        ours.repo.references.create_tag(name, "main", NOTE)
    seen.write_bytes(msgspec.json.encode(ours.seen()))
    os._exit(_DIED)


# Interrupted changes


def create_references(catalog: Catalog, whose: str, head: str) -> None:
    for name in ("lost", "lost-too", "marked", "marked-too", "unpurged"):
        catalog.create("BRANCH", f"{whose}-{name}", head)
    catalog.create("TAG", f"{whose}-lost-tag", head)
    catalog.delete(f"{whose}-unpurged")


def interrupt(directory: Directory, whose: str, *more: str) -> dict[str, Ref]:
    """Put references between the steps of their creation or deletion.

    Returns the rows that are missing now, as they were and as they should become again.
    """
    names = (f"heads/{whose}-lost", f"heads/{whose}-lost-too", f"tags/{whose}-lost-tag", *more)
    lost = [f"refs/{name}" for name in names]
    marked = [f"refs/heads/{whose}-marked", f"refs/heads/{whose}-marked-too"]
    unpurged = f"refs/heads/{whose}-unpurged"
    with directory.rows() as rows:
        was = rows.read_refs("", [*lost, *marked])
        for name in lost:  # The name is committed, the row is not inserted.
            assert rows.swap_ref("", RefSwap(name, was[name], None))
        for name in marked:  # The row is marked, the name is still committed.
            assert rows.swap_ref("", RefSwap(name, was[name], replace(was[name], deleted=True)))
        # The row is marked and its name is gone, but the row is not.
        left = replace(was[marked[0]], name=unpurged, deleted=True)
        assert rows.swap_ref("", RefSwap(unpurged, None, left))
    return {name: was[name] for name in lost}


def assert_shown_as_completed(catalog: Catalog, whose: str, head: str) -> None:
    """Some references are read by name, the others by a listing."""
    assert catalog.head(f"{whose}-lost") == head
    for name in ("marked", "unpurged"):
        with pytest.raises((ReferenceNotFound, Refused), match="not found"):
            catalog.head(f"{whose}-{name}")
    catalog.seen()  # Nessie restores a lost ref only after it has finished a deletion.
    found = [name for name in names(catalog.seen()) if name.startswith(whose)]
    assert {f"{whose}-lost", f"{whose}-lost-too", f"{whose}-lost-tag"} <= {*found}
    assert not any("marked" in name or "unpurged" in name for name in found)


def complete_by_changes(catalog: Catalog, whose: str, head: str) -> None:
    """Our reads write nothing: a change of the reference completes what was interrupted."""
    for kind, name in (("BRANCH", "lost"), ("BRANCH", "lost-too"), ("TAG", "lost-tag")):
        with pytest.raises(ReferenceAlreadyExists):
            catalog.create(kind, f"{whose}-{name}", head)
    for name in ("marked", "marked-too"):
        catalog.create("BRANCH", f"{whose}-{name}", head)
        catalog.delete(f"{whose}-{name}")


def assert_rows(directory: Directory, was: dict[str, Ref]) -> None:
    """The lost rows are what they were, and the marked ones are gone."""
    with directory.rows() as rows:
        found = rows.read_refs("", list(was))
        assert {name: ref.identity for name, ref in found.items()} == {
            name: ref.identity for name, ref in was.items()
        }
        marked = [name.replace("-lost", "-marked") for name in was]
        assert rows.read_refs("", marked) == {}


def commit_table(catalog: Catalog, branch: str, number: int) -> None:
    put = Put(ContentKey.of(f"t{number}"), table(number))
    catalog.commit(branch, [put], CommitMeta(message=f"table {number}"))
