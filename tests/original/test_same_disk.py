"""One directory, two servers: what either of them writes, the other reads, and goes on from."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from contextlib import contextmanager
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
from morag.model.operations import Delete, Put
from tests.original.catalogs import InProcess, OverRest, Seen, names, verdicts
from tests.original.server import Refused, Server, rocksdb
from tests.original.work import Work, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.original.catalogs import Catalog

pytestmark = pytest.mark.original

NOTE: Final = TagNote("für 1.0", {"Signer": ("Ann", "Bob"), "b": ("",), "a": ("x",)}, b"\x00\xff")
NOTED: Final = ("noted", "moved", "dropped")
LAKE: Final = Settings(repository_id="lake")
_DIED: Final = 42


class Sizes(Struct, frozen=True):
    """How soon indexes spill, on either side, and how much work it takes to see it."""

    theirs: Mapping[str, int]
    ours: Settings
    commits: int
    their_bulk: int
    our_bulk: int


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
        commits=70,
        their_bulk=40,
        our_bulk=40,
    ),
    "default": Sizes(theirs={}, ours=Settings(), commits=30, their_bulk=600, our_bulk=100),
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
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_merge_that_nessie_was_forced_to_make_is_not_taken_for_damaged(place: Place) -> None:
    """Both branches replaced one table, and the target deleted the other. Nessie hashes the removes
    of what the merge base had, of which no row has a trace."""
    kept, dropped = ContentKey.of("kept"), ContentKey.of("dropped")
    meta = CommitMeta(message="changed")
    with place.original() as original:
        original.commit("main", [Put(kept, table(1)), Put(dropped, table(2))], meta)
        original.create("BRANCH", "dev", original.head("main"))
        for branch, again in (("dev", [kept, dropped]), ("main", [kept])):
            gone = [Delete(key) for key in (kept, dropped)]
            original.commit(branch, [*gone, *(Put(key, table(3)) for key in again)], meta)
        original.merge("dev", "main", force=True)
        shown, recent = original.seen(), original.recent("main")
    with place.morag() as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert ours.damage() == []


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_we_go_on_from_the_original_and_it_goes_on_from_us(place: Place, sizes: Sizes) -> None:
    with place.original(sizes.theirs) as original:
        Work(original, "them").do(sizes.commits, sizes.their_bulk)
        original.configure("P30D")
        shown, recent = original.seen(), original.recent("main")
    spilled = place.count("i")
    assert spilled > 0
    with place.morag(sizes.ours) as ours:
        assert_same(ours, shown)
        assert ours.recent("main") == recent
        assert ours.damage() == []
        Work(ours, "us").do(sizes.commits, sizes.our_bulk)
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
    """Initialization is ours, too, and neither side waits for the other to close its store."""
    shown = work_and_die(place, LAKE)
    with place.original({"repository-id": "lake"}) as original:
        assert_same(original, shown)
        assert original.damage() == []
        Work(original, "them").do(commits=10, bulk=10)
        # It does not show what a tag says, but keeps it, also when the tag moves.
        original.assign("moved", original.hashes("main")[-1])
        original.delete("dropped")
        original.create("TAG", "dropped", original.head("main"))
        shown = original.seen()
        original.kill()
    with place.morag(LAKE) as ours:
        assert_same(ours, shown)
        assert ours.damage() == []
        notes = {name: ours.repo.references.note(name) for name in NOTED}
        assert notes == {"noted": NOTE, "moved": NOTE, "dropped": None}


def test_either_mends_references_that_were_left_half_done(place: Place) -> None:
    with place.morag() as ours:
        commit_table(ours, "main", 0)
        head = ours.head("main")
        create_references(ours, "our", head)
        ours.repo.references.create_tag("our-lost-noted", "main", NOTE)
    was = interrupt(place, "our", "tags/our-lost-noted")
    with place.original() as original:
        assert_mended(original, "our", head)
        # Only a deletion that lacks its last step is left as it is, until the name is wanted.
        with pytest.raises(Refused, match="already exists"):
            original.create("BRANCH", "our-unpurged", head)
        original.create("BRANCH", "our-unpurged", head)
        commit_table(original, "our-unpurged", 1)
        create_references(original, "their", head)
        shown = original.seen()
    assert_rows(place, was)
    with place.morag() as ours:
        assert_same(ours, shown)
        assert ours.repo.references.note("our-lost-noted") == NOTE
    was = interrupt(place, "their")
    with place.morag() as ours:
        assert_mended(ours, "their", head)
        ours.create("BRANCH", "their-unpurged", head)
        commit_table(ours, "their-unpurged", 2)
        shown = ours.seen()
    assert_rows(place, was)
    with place.original() as original:
        assert_same(original, shown)
        assert original.damage() == []


def assert_same(catalog: Catalog, shown: Seen) -> None:
    assert catalog.seen().differences(shown) == []


# Dying


def work_and_die(place: Place, settings: Settings) -> Seen:
    """Work in a process that never closes its store. What it saw last comes back in a file."""
    seen = place.data.with_name("seen.json")
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_work_and_die, args=(place.data, settings, seen))
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


# Half done


def create_references(catalog: Catalog, whose: str, head: str) -> None:
    for name in ("lost", "lost-too", "marked", "marked-too", "unpurged"):
        catalog.create("BRANCH", f"{whose}-{name}", head)
    catalog.create("TAG", f"{whose}-lost-tag", head)
    catalog.delete(f"{whose}-unpurged")


def interrupt(place: Place, whose: str, *more: str) -> dict[str, Ref]:
    """Put references between the steps of their creation or deletion.

    Returns the rows that are missing now, as they were and as they should become again.
    """
    names = (f"heads/{whose}-lost", f"heads/{whose}-lost-too", f"tags/{whose}-lost-tag", *more)
    lost = [f"refs/{name}" for name in names]
    marked = [f"refs/heads/{whose}-marked", f"refs/heads/{whose}-marked-too"]
    unpurged = f"refs/heads/{whose}-unpurged"
    with place.rows() as rows:
        was = rows.read_refs("", [*lost, *marked])
        for name in lost:  # The name is committed, the row is not inserted.
            assert rows.swap_ref("", RefSwap(name, was[name], None))
        for name in marked:  # The row is marked, the name is still committed.
            assert rows.swap_ref("", RefSwap(name, was[name], replace(was[name], deleted=True)))
        # The row is marked and its name is gone, but the row is not.
        left = replace(was[marked[0]], name=unpurged, deleted=True)
        assert rows.swap_ref("", RefSwap(unpurged, None, left))
    return {name: was[name] for name in lost}


def assert_mended(catalog: Catalog, whose: str, head: str) -> None:
    """Ask for some by name, for the others by listing them."""
    assert catalog.head(f"{whose}-lost") == head
    for name in ("marked", "unpurged"):
        with pytest.raises((ReferenceNotFound, Refused), match="not found"):
            catalog.head(f"{whose}-{name}")
    catalog.seen()  # A lost row may have to wait while a deletion is finished.
    found = [name for name in names(catalog.seen()) if name.startswith(whose)]
    assert {f"{whose}-lost", f"{whose}-lost-too", f"{whose}-lost-tag"} <= {*found}
    assert not any("marked" in name or "unpurged" in name for name in found)


def assert_rows(place: Place, was: dict[str, Ref]) -> None:
    """The lost rows are what they were, and the marked ones are gone."""
    with place.rows() as rows:
        found = rows.read_refs("", list(was))
        assert {name: ref.identity for name, ref in found.items()} == {
            name: ref.identity for name, ref in was.items()
        }
        marked = [name.replace("-lost", "-marked") for name in was]
        assert rows.read_refs("", marked) == {}


def commit_table(catalog: Catalog, branch: str, number: int) -> None:
    put = Put(ContentKey.of(f"t{number}"), table(number))
    catalog.commit(branch, [put], CommitMeta(message=f"table {number}"))
