"""A check of a whole store names exactly the damaged and the missing objects."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from morag import MergeBehavior, MoragError, Settings
from morag.backend.base import Ref, RefSwap, Row
from morag.backend.memory import MemoryBackend
from morag.backend.urls import open_backend
from morag.errors import RepositoryMissing
from morag.format import object_codec as codec
from morag.format.objects import Commit, RefObj
from morag.format.records import ObjId
from morag.logic.import_marker import ImportMarker, marked
from morag.logic.repository import update_description
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.maintenance.checking import WholeCheck
from morag.versions.repository import Repository
from morag.versions.world import World
from morag.versions.writers import Writers
from tests.format import golden
from tests.format.nessie_writer import cut_off, rewritten
from tests.maintenance.damaged_store import (
    filled,
    found,
    is_unnoticeable,
    names_only,
)
from tests.rules.operations import Store, create, delete, put
from tests.safety.full_repository import SMALL
from tests.transfer.copies import export_to, import_from

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from morag.backend.base import Backend

URLS = pytest.mark.parametrize("scheme", ["rocksdb", "sqlite"])


@pytest.fixture(scope="module")
def store() -> Backend:
    """Every test repairs what it damages."""
    return filled(MemoryBackend())


@pytest.fixture(scope="module")
def nessie() -> Backend:
    """A database that Nessie wrote."""
    backend = MemoryBackend()
    backend.insert_rows("", golden.rows())
    for name, ref in golden.refs().items():
        backend.swap_ref("", RefSwap(name, None, ref))
    return backend


def rows_of(backend: Backend) -> dict[ObjId, Row]:
    return {row.id: row for row in backend.scan_rows("")}


def replaced(backend: Backend, row: Row, data: bytes) -> Row:
    new = Row(row.id, row.kind, data, row.version, row.referenced_micros)
    assert backend.swap_row("", row, new)
    return new


# Intact stores


def test_a_store_with_every_kind_of_object_is_intact(store: Backend) -> None:
    assert {row.kind for row in store.scan_rows("")} == set("crviIstu")
    assert found(store) == []


def test_a_store_of_nessie_is_intact(nessie: Backend) -> None:
    assert found(nessie, Settings()) == []


@URLS
def test_stores_on_disk_are_intact(tmp_path: Path, scheme: str) -> None:
    backend = open_backend(f"{scheme}:{tmp_path / 'store'}")
    try:
        assert found(filled(backend)) == []
    finally:
        backend.close()


def test_a_new_repository_is_intact() -> None:
    assert found(Store().backend) == []


def test_a_store_without_a_repository_is_refused() -> None:
    with pytest.raises(RepositoryMissing):
        WholeCheck(MemoryBackend(), Settings(), World()).findings()


def test_totals_count_what_was_seen() -> None:
    store = Store()
    create(store.repo, "main", a="a", b="b")
    check = WholeCheck(store.backend, Settings(), World())
    assert list(check.findings()) == []
    assert check.totals.objects["VALUE"] == 2
    assert (check.totals.commits, check.totals.reachable, check.totals.references) == (4, 4, 1)


# Missing and damaged objects


def test_every_missing_object_is_named(store: Backend) -> None:
    """Claims on content ids are an exception: nothing points to them, and Nessie had none once."""
    for id, row in rows_of(store).items():
        store.delete_rows("", [id])
        named = {finding.id for finding in found(store)}
        store.insert_rows("", [row])
        assert named == (set() if row.kind == "u" else {id}), row.kind
    assert found(store) == []


def test_a_missing_object_comes_with_one_that_needs_it(store: Backend) -> None:
    rows = rows_of(store)
    value = next(row for row in rows.values() if row.kind == "v")
    store.delete_rows("", [value.id])
    (finding,) = found(store)
    store.insert_rows("", [value])
    assert (finding.kind, finding.problem, finding.role) == (
        "VALUE",
        "the object is missing",
        "value",
    )
    assert rows[ObjId(bytes.fromhex(finding.needed_by))].kind == "c"


@settings(max_examples=100)
@given(data=st.data())
def test_a_flipped_bit_is_found_wherever_it_is(store: Backend, data: st.DataObject) -> None:
    check_flipped_bit(store, SMALL, data)


@settings(max_examples=15)
@given(data=st.data())
def test_a_flipped_bit_in_a_store_of_nessie_names_nothing_else(
    nessie: Backend, data: st.DataObject
) -> None:
    """Some damage to Nessie's commits cannot be noticed, but nothing intact is named."""
    check_flipped_bit(nessie, Settings(), data, may_miss=True)


@pytest.mark.long
@settings(max_examples=3000)
@given(data=st.data())
def test_many_flipped_bits_are_found_wherever_they_are(store: Backend, data: st.DataObject) -> None:
    check_flipped_bit(store, SMALL, data)


def check_flipped_bit(
    backend: Backend, settings: Settings, data: st.DataObject, may_miss: bool = False
) -> None:
    rows = rows_of(backend)
    kind = data.draw(st.sampled_from(sorted({row.kind for row in rows.values()})))
    row = data.draw(st.sampled_from([row for row in rows.values() if row.kind == kind]))
    at = data.draw(st.integers(0, len(row.data) - 1))
    flipped = bytearray(row.data)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = replaced(backend, row, bytes(flipped))
    findings = found(backend, settings)
    replaced(backend, damaged, row.data)
    event(f"{kind} {'named' if findings else 'not noticed'}")
    if findings:
        assert names_only(findings, row)
    else:
        assert may_miss or is_unnoticeable(row, damaged)


@settings(max_examples=25)
@given(data=st.data())
def test_of_several_damaged_objects_only_these_are_named(
    store: Backend, data: st.DataObject
) -> None:
    rows = sorted(rows_of(store).values(), key=lambda row: row.id)
    chosen = data.draw(st.lists(st.sampled_from(rows), min_size=2, max_size=6, unique=True))
    store.delete_rows("", [row.id for row in chosen])
    findings = found(store)
    store.insert_rows("", chosen)
    assert {finding.id for finding in findings} <= {row.id for row in chosen}
    assert findings or all(row.kind == "u" for row in chosen)


@URLS
def test_rows_that_cannot_be_decoded_are_named(tmp_path: Path, scheme: str) -> None:
    backend = filled(open_backend(f"{scheme}:{tmp_path / 'store'}"))
    try:
        value = next(row for row in backend.scan_rows("") if row.kind == "v")
        damaged = bytes([value.data[0], 0xFF]) + value.data[2:]
        replaced(backend, value, damaged)
        assert [finding.id for finding in found(backend)] == [value.id]
    finally:
        backend.close()


# Garbage


@pytest.fixture
def with_garbage() -> tuple[Store, list[ObjId], list[ObjId]]:
    """A store with commits of a deleted branch, and the ids of these and of their values."""
    store = Store()
    create(store.repo, "main", a="a")
    store.repo.references.create_branch("dev", "main")
    before = set(store.rows())
    hashes = [store.repo.commit("dev", [put(f"t{n}", "t")], "t").hash for n in range(5)]
    store.repo.references.delete("dev")
    values = [row.id for row in store.rows().values() if row.kind == "v" and row.id not in before]
    return store, [ObjId(bytes.fromhex(hash)) for hash in hashes], values


def test_pointers_of_unreachable_commits_do_not_count(
    with_garbage: tuple[Store, list[ObjId], list[ObjId]],
) -> None:
    """A purge that was interrupted leaves commits without their parents and values."""
    store, commits, values = with_garbage
    store.backend.delete_rows("", [commits[0], commits[2], *values])
    assert found(store.backend, Settings()) == []


def test_damaged_garbage_is_named(
    with_garbage: tuple[Store, list[ObjId], list[ObjId]],
) -> None:
    store, commits, values = with_garbage
    for id in (commits[3], values[1]):
        data = store.rows()[id].data
        store.replace(id, data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    named = {finding.id for finding in found(store.backend, Settings())}
    assert named == {commits[3], values[1]}


def test_custom_kinds_are_left_alone(store: Backend) -> None:
    custom = Row(ObjId(b"\x01" * 32), "task-result", b"J\x02\x0a\x00", "1")
    store.insert_rows("", [custom])
    assert found(store) == []
    store.delete_rows("", [custom.id])


# History


def commits_of(store: Store) -> list[Commit]:
    ids = [ObjId(bytes.fromhex(e.meta.hash or "")) for e in store.repo.history.log("main")]
    return store.persist.fetch_all(Commit, ids)


@pytest.fixture
def line() -> Store:
    store = Store(SMALL)
    for number in range(12):
        store.repo.commit("main", [put(f"t{number:02}", f"location {number}")], f"c{number}")
    store.repo.commit("main", [delete("t03"), put("t03", "anew")], "added again")
    return store


CHANGES: dict[str, Callable[[Commit], dict[str, object]]] = {
    "seq": lambda commit: {"seq": commit.seq + 80},
    "tail": lambda commit: {"tail": (commit.parent, ObjId(b"\x05" * 32))},
    "incomplete": lambda _: {"incomplete": True},
    "message": lambda _: {"message": "another"},
    "parent": lambda commit: {"tail": (ObjId(b"\x05" * 32), *commit.tail[1:])},
}


@pytest.mark.parametrize("field", CHANGES)
@pytest.mark.parametrize("distance", [0, 1, 5])
def test_only_the_commit_with_a_wrong_field_is_named(
    line: Store, field: str, distance: int
) -> None:
    commit = commits_of(line)[distance]
    wrong = msgspec.structs.replace(commit, **CHANGES[field](commit))
    line.replace(commit.id, codec.encode(wrong).data)
    assert {finding.id for finding in found(line.backend)} == {commit.id}


def test_two_damaged_neighbours_are_both_named(line: Store) -> None:
    commits = commits_of(line)
    for wrong_by, commit in enumerate(commits[4:6], 7):
        wrong = msgspec.structs.replace(commit, seq=commit.seq + wrong_by)
        line.replace(commit.id, codec.encode(wrong).data)
    assert {finding.id for finding in found(line.backend)} == {c.id for c in commits[4:6]}


def test_a_change_of_an_inherited_entry_is_found_at_the_commit_that_has_it(line: Store) -> None:
    commit = commits_of(line)[3]
    at = commit.incremental.index(b"\0\0a")
    wrong = bytearray(commit.incremental)
    wrong[at + 40] ^= 1
    line.replace(
        commit.id, codec.encode(msgspec.structs.replace(commit, incremental=bytes(wrong))).data
    )
    (finding,) = found(line.backend)
    assert (finding.id, finding.problem) == (
        commit.id,
        "the index has changes that are not the commit's operations",
    )


def test_an_intact_child_that_replaced_content_of_a_missing_parent_is_not_named(
    line: Store,
) -> None:
    newest, parent, *_ = commits_of(line)
    line.backend.delete_rows("", [parent.id])
    assert {finding.id for finding in found(line.backend)} == {parent.id}, newest.message


def test_what_lies_below_a_missing_commit_is_still_checked(line: Store) -> None:
    commits = commits_of(line)
    below = commits[8]
    line.backend.delete_rows("", [commits[5].id])
    line.replace(below.id, codec.encode(msgspec.structs.replace(below, seq=1)).data)
    assert {finding.id for finding in found(line.backend)} == {commits[5].id, below.id}


def test_a_history_that_nessie_cut_is_intact(line: Store) -> None:
    *above, cut, below = commits_of(line)[:5]
    for commit in above:
        line.replace(commit.id, codec.encode(rewritten(commit, cut.id)).data)
    line.replace(cut.id, codec.encode(cut_off(cut)).data)
    line.backend.delete_rows("", [below.id])
    assert found(line.backend) == []


# References


def test_a_lost_ref_is_named(store: Backend) -> None:
    (ref,) = store.read_refs("", ["refs/heads/dev"]).values()
    store.swap_ref("", RefSwap(ref.name, ref, None))
    (finding,) = found(store)
    store.swap_ref("", RefSwap(ref.name, None, ref))
    assert (finding.kind, finding.needed_by) == ("REFERENCE", "refs/heads/dev")
    assert "its name is committed, but it has no ref" in finding.problem


def test_a_ref_with_another_time_than_its_record_is_named(store: Backend) -> None:
    (ref,) = store.read_refs("", ["refs/heads/dev"]).values()
    other = msgspec.structs.replace(ref, created_micros=5)
    store.swap_ref("", RefSwap(ref.name, ref, other))
    (finding,) = found(store)
    store.swap_ref("", RefSwap(ref.name, other, ref))
    assert "another time or tag note" in finding.problem


def test_an_import_that_has_not_ended_is_a_finding() -> None:
    backend = filled(MemoryBackend())
    persist = Persist(backend, ObjectCache(1 << 20), SMALL, lambda: 0)
    mark = ImportMarker("files", 1)
    update_description(
        persist, Writers.of(persist, SMALL, World()).retries, lambda was: marked(was, mark)
    )
    (finding,) = found(backend)
    assert "has not ended" in finding.problem


def test_damage_to_an_imported_commit_is_found(tmp_path: Path) -> None:
    """Its id was verified by the import, which sealed it."""
    store, copy = Store(), MemoryBackend()
    create(store.repo, "main", a="a")
    create(store.repo, "main", b="b")
    export_to(tmp_path / "files", store.backend)
    import_from(tmp_path / "files", copy)
    row = rows_of(copy)[commits_of(store)[0].id]
    damaged = msgspec.structs.replace(codec.decode(row), message="another")
    replaced(copy, row, codec.encode(damaged).data)
    assert [finding.id for finding in found(copy, Settings())] == [row.id]


def test_a_ref_whose_name_is_not_committed_is_named() -> None:
    store = Store()
    create(store.repo, "main", a="a")
    main = store.refs()["refs/heads/main"]
    record = RefObj("refs/heads/lost", main.pointer, 7)
    store.backend.insert_rows("", [codec.encode(record)])
    assert found(store.backend, Settings()) == [], "the record of a former reference"
    lost = Ref("refs/heads/lost", main.pointer, False, 7)
    store.backend.swap_ref("", RefSwap(lost.name, None, lost))
    (finding,) = found(store.backend, Settings())
    assert (finding.kind, finding.needed_by) == ("REFERENCE", "refs/heads/lost")


def test_an_interrupted_deletion_is_not_a_problem() -> None:
    store = Store()
    store.repo.references.create_branch("dev", "main")
    ref = store.refs()["refs/heads/dev"]
    marked = Ref(ref.name, ref.pointer, True, ref.created_micros)
    assert store.backend.swap_ref("", RefSwap(ref.name, ref, marked))
    assert found(store.backend, Settings()) == []


@pytest.mark.parametrize("name", ["int/refs", "int/repo"])
def test_a_lost_internal_reference_is_named(store: Backend, name: str) -> None:
    (ref,) = store.read_refs("", [name]).values()
    store.swap_ref("", RefSwap(name, ref, None))
    findings = found(store)
    store.swap_ref("", RefSwap(name, None, ref))
    assert [(finding.kind, finding.needed_by) for finding in findings] == [("REFERENCE", name)]


def test_a_head_that_is_missing_comes_with_its_reference() -> None:
    store = Store()
    create(store.repo, "main", a="a")
    ref = store.refs()["refs/heads/main"]
    lost = Ref(ref.name, ObjId(b"\x07" * 32), False, ref.created_micros)
    assert store.backend.swap_ref("", RefSwap(ref.name, ref, lost))
    (finding,) = found(store.backend, Settings())
    assert (finding.id, finding.role, finding.needed_by) == (lost.pointer, "head", lost.name)


# Random histories


@settings(max_examples=15)
@given(data=st.data())
def test_random_histories_are_intact(data: st.DataObject) -> None:
    check_random_history(data)


@pytest.mark.long
@settings(max_examples=300)
@given(data=st.data())
def test_many_random_histories_are_intact(data: st.DataObject) -> None:
    check_random_history(data)


def check_random_history(data: st.DataObject) -> None:
    small = msgspec.structs.replace(
        SMALL,
        max_incremental_index_bytes=data.draw(st.sampled_from([200, 600, 6000])),
        parents_per_commit=data.draw(st.sampled_from([1, 3, 20])),
    )
    backend = MemoryBackend()
    repo = Repository(backend, small, World())
    branches = ["main"]
    keys = [f"k{n}" for n in range(12)]
    for number in range(data.draw(st.integers(1, 25))):
        branch = data.draw(st.sampled_from(branches))
        existing = {str(key) for key in repo.contents.keys(branch)}
        match data.draw(st.sampled_from(["put", "put", "readd", "delete", "branch", "merge"])):
            case "branch" if len(branches) < 4:
                repo.references.create_branch(f"b{number}", branch)
                branches.append(f"b{number}")
            case "delete" if existing:
                repo.commit(branch, [delete(data.draw(st.sampled_from(sorted(existing))))], "d")
            case "readd" if existing:
                key = data.draw(st.sampled_from(sorted(existing)))
                repo.commit(branch, [delete(key), put(key, f"anew {number}")], "r")
            case "merge" if len(branches) > 1:
                source = data.draw(st.sampled_from([b for b in branches if b != branch]))
                merge_by_force(repo, source, branch)
            case _:
                chosen = data.draw(st.sets(st.sampled_from(keys), max_size=8)) - existing
                if chosen:
                    repo.commit(branch, [put(key, f"{key} {number}") for key in chosen], "p")
    assert found(backend, small) == []


def merge_by_force(repo: Repository, source: str, target: str) -> None:
    with suppress(MoragError):  # For example if there is nothing to merge.
        repo.merge(source, target, default=MergeBehavior.FORCE)
