"""One directory, two servers: what either of them writes, the other reads, and goes on from."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from msgspec import Struct
from msgspec.structs import replace

import morag
from morag import TagNote
from morag.backend.base import Ref, RefSwap
from morag.backend.rocksdb import RocksDBBackend
from morag.config import Settings
from morag.errors import ReferenceNotFound
from morag.model.keys import ContentKey
from morag.model.meta import CommitMeta
from morag.model.operations import Put
from tests.original.catalogs import InProcess, OverRest, Seen, names, verdicts
from tests.original.server import Refused, Server
from tests.original.work import Work, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.original.catalogs import Catalog

pytestmark = pytest.mark.original

NOTE: Final = TagNote("für 1.0", {"Signer": ("Ann", "Bob"), "b": ("",), "a": ("x",)}, b"\x00\xff")


class Sizes(Struct, frozen=True):
    """How soon indexes spill, on either side, and how much work it takes to see it."""

    theirs: Mapping[str, int]
    ours: Settings
    commits: int
    bulk: int


SIZES: Final = {
    "small": Sizes(
        theirs={
            "max-incremental-index-size": 1300,
            "max-serialized-index-size": 2600,
            "max-reference-stripes-per-commit": 2,
            "parents-per-commit": 8,
        },
        ours=Settings(
            max_incremental_index_bytes=1300,
            min_index_segment_bytes=500,
            max_index_segment_bytes=2600,
            max_inlined_stripes=2,
            parents_per_commit=5,
        ),
        commits=80,
        bulk=40,
    ),
    "default": Sizes(theirs={}, ours=Settings(), commits=30, bulk=450),
}


class Place:
    """A directory that is opened by one after the other."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.data = path / "data"
        self._starts = 0

    @contextmanager
    def original(self, settings: Mapping[str, object] | None = None) -> Iterator[OverRest]:
        self._starts += 1
        log = self._path / f"original-{self._starts}.log"
        with Server(self.data, log, settings or {}) as server:
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
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_we_go_on_from_the_original_and_it_goes_on_from_us(place: Place, sizes: Sizes) -> None:
    with place.original(sizes.theirs) as original:
        Work(original, "them").do(sizes.commits, sizes.bulk)
        original.configure("P30D")
        shown, recent = original.seen(), original.recent("main")
    spilled = place.count("i")
    assert spilled > 0
    with place.morag(sizes.ours) as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert ours.damage() == []
        Work(ours, "us").do(sizes.commits, sizes.bulk)
        assert ours.damage() == []
        shown, recent = ours.seen(), ours.recent("main")
    assert place.count("i") > spilled
    with place.original(sizes.theirs) as original:
        assert_same(original, shown)
        assert original.recent("main") == recent
        assert original.damage() == []
        assert original.policy() == "P30D"
        Work(original, "them-again").do(commits=10, bulk=10)
        shown, recent = original.seen(), original.recent("main")
    with place.morag(sizes.ours) as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert verdicts(recent) == {"COMMIT_CONSISTENT"}
        assert ours.damage() == []


def test_the_original_goes_on_from_nothing_but_us(place: Place) -> None:
    """And neither side needs the other to have stopped in peace."""
    shown = work_and_die(place, Settings(repository_id="lake"))
    with place.original({"repository-id": "lake"}) as original:
        assert_same(original, shown)
        assert original.damage() == []
        Work(original, "them").do(commits=10, bulk=10)
        shown = original.seen()
        original.kill()
    with place.morag(Settings(repository_id="lake")) as ours:
        assert_same(ours, shown)
        assert ours.damage() == []


def test_a_note_on_a_tag_survives_the_original_which_does_not_show_it(place: Place) -> None:
    with place.morag() as ours:
        commit_table(ours, "main", 0)
        commit_table(ours, "main", 1)
        for name in ("noted", "moved", "dropped"):
            ours.repo.references.create_tag(name, "main", NOTE)
        shown = ours.seen()
        first = ours.hashes("main")[-1]
    with place.original() as original:
        assert_same(original, shown)
        assert original.damage() == []
        original.assign("moved", first)
        original.delete("dropped")
        shown = original.seen()
    with place.morag() as ours:
        assert_same(ours, shown)
        headers = {"Signer": ("Ann", "Bob"), "b": ("",), "a": ("x",)}
        assert ours.repo.references.note("noted") == replace(NOTE, headers=headers)
        assert ours.repo.references.note("moved") == replace(NOTE, headers=headers)
        with pytest.raises(ReferenceNotFound):
            ours.repo.references.note("dropped")


def test_the_original_mends_references_that_we_left_half_done(place: Place) -> None:
    with place.morag() as ours:
        create_branches(ours)
        for name in ("lost-tag", "lost-tag-listed"):
            ours.repo.references.create_tag(name, "main", NOTE)
        kept = ours.head("main")
    lost = ("heads/lost", "heads/lost-listed", "tags/lost-tag", "tags/lost-tag-listed")
    was = interrupt(place, lost)
    with place.original() as original:
        assert_mended(original, ("lost", "lost-tag"), kept)
        shown = original.seen()
    with place.rows() as rows:
        found = rows.read_refs("", list(was))
        assert {name: ref.identity for name, ref in found.items()} == {
            name: was[name].identity for name in (f"refs/{name}" for name in lost)
        }
    with place.morag() as ours:
        assert_same(ours, shown)
        assert ours.repo.references.note("lost-tag") == NOTE
        assert ours.repo.references.note("lost-tag-listed") == NOTE


def test_we_mend_references_that_the_original_left_half_done(place: Place) -> None:
    with place.original() as original:
        create_branches(original)
        kept = original.head("main")
    lost = ("heads/lost", "heads/lost-listed")
    was = interrupt(place, lost)
    with place.morag() as ours:
        assert_mended(ours, ("lost",), kept)
        shown = ours.seen()
    with place.rows() as rows:
        found = rows.read_refs("", list(was))
        assert {name: ref.identity for name, ref in found.items()} == {
            name: was[name].identity for name in (f"refs/{name}" for name in lost)
        }
    with place.original() as original:
        assert_same(original, shown)
        for name in ("lost", "marked", "unpurged"):
            if name != "lost":
                original.create("BRANCH", name, kept)
            commit_table(original, name, 9)
        shown = original.seen()
    with place.morag() as ours:
        assert_same(ours, shown)


def assert_same(catalog: Catalog, shown: Seen) -> None:
    assert catalog.seen().differences(shown) == []


def work_and_die(place: Place, settings: Settings) -> Seen:
    """Work in a process that never closes its store. What it saw last comes back in a file."""
    spawn = multiprocessing.get_context("spawn")
    seen = place.data.with_name("seen.json")
    process = spawn.Process(target=_work_and_die, args=(place.data, settings, seen))
    process.start()
    process.join()
    assert process.exitcode == 0
    return msgspec.json.decode(seen.read_bytes(), type=Seen)


def _work_and_die(data: Path, settings: Settings, seen: Path) -> None:
    ours = InProcess(morag.open(f"rocksdb:{data}", settings))
    Work(ours, "us").do(commits=60, bulk=60)
    head = ours.head("main")
    ours.create("BRANCH", "one-by-one", head)
    for i in range(3):
        commit_table(ours, "one-by-one", i)
    commit_table(ours, "main", 7)
    ours.repo.merge("one-by-one", "main", squash=False)
    seen.write_bytes(msgspec.json.encode(ours.seen()))
    os._exit(0)


def create_branches(catalog: Catalog) -> None:
    commit_table(catalog, "main", 0)
    head = catalog.head("main")
    for state in ("lost", "marked", "unpurged"):
        catalog.create("BRANCH", state, head)
        catalog.create("BRANCH", f"{state}-listed", head)
    for name in ("unpurged", "unpurged-listed"):
        catalog.delete(name)


def interrupt(place: Place, lost: tuple[str, ...]) -> dict[str, Ref]:
    """Make the states between the steps of creating and of deleting a reference.

    Returns all rows of references that have one at some time, as they were in peace.
    """
    with place.rows() as rows:
        gone = [f"refs/{name}" for name in lost]
        marked = ["refs/heads/marked", "refs/heads/marked-listed"]
        was = rows.read_refs("", [*gone, *marked])
        assert len(was) == len(gone) + len(marked)
        for name in gone:  # Created, but the row was never inserted.
            assert rows.swap_ref("", RefSwap(name, was[name], None))
        for name in marked:  # The first step of a deletion.
            assert rows.swap_ref("", RefSwap(name, was[name], replace(was[name], deleted=True)))
        for name in ("refs/heads/unpurged", "refs/heads/unpurged-listed"):  # All but the last step.
            was[name] = replace(was[marked[0]], name=name)
            assert rows.swap_ref("", RefSwap(name, None, replace(was[name], deleted=True)))
    return was


def assert_mended(catalog: Catalog, lost: tuple[str, ...], head: str) -> None:
    """Ask for some by name, for the others by listing them.

    The original leaves a lost row alone while it mends another reference: the next listing has it.
    """
    for name in lost:
        assert catalog.head(name) == head
    for name in ("marked", "unpurged"):
        with pytest.raises((ReferenceNotFound, Refused), match="not found"):
            catalog.head(name)
    catalog.seen()
    found = names(catalog.seen())
    assert {*lost, *(f"{name}-listed" for name in lost)} <= {*found}
    assert not any(name.startswith(("marked", "unpurged")) for name in found)


def commit_table(catalog: Catalog, branch: str, number: int) -> None:
    put = Put(ContentKey.of(f"t{number}"), table(number))
    catalog.commit(branch, [put], CommitMeta(message=f"table {number}"))
