"""Undamaged commits whose ids do not follow from their rows, and damage that is still found."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from morag import Repository
from morag.backend.memory import MemoryBackend
from morag.errors import RepositoryCorrupt
from morag.format import ids
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR, NO_CONTENT_ID
from morag.format.index_entries import ADD, make_op, payload_of, value_of
from morag.format.objects import Commit, CommitKind, StringObj
from morag.format.proof import FEW_OPERATIONS, is_proven
from morag.format.records import ObjId
from morag.index.keys import content_key
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.logic.commits import Add, Draft, build_commit
from morag.logic.refutation import refutes
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from morag.versions.world import World
from tests.format.nessie_writer import NessieWriter, ordered_headers, rewritten
from tests.format.test_proof import few, head, loaded, many
from tests.rules.operations import Store, create, delete, put
from tests.safety.full_repository import SMALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.format.records import Row

replace = msgspec.structs.replace


@pytest.mark.parametrize("before_jdk_19", [False, True])
@pytest.mark.parametrize("rewrites", [1, 2])
def test_headers_may_have_been_reordered_by_a_rewrite(before_jdk_19: bool, rewrites: int) -> None:
    """Names in one bucket of Java's map change their order at each copy. If an earlier JDK wrote
    the commit, all names may change their order."""
    store = Store()
    parent = few(store)
    for names in combinations([f"h{n}" for n in range(16)], 6):
        headers = ordered_headers(names, before_jdk_19=before_jdk_19)
        written = commit = replace(
            parent,
            tail=(parent.id,),
            headers=headers,
            incremental=b"\x02\x00",
            id=ids.commit_id(parent.id, parent.message, headers, ()),
        )
        for _ in range(rewrites):
            written = rewritten(written)
        assert not refutes(store.persist, written)
        if written.headers != commit.headers:
            break
    else:
        assert (before_jdk_19, rewrites) == (False, 2), "only two rewrites restore the order"
        return
    assert not is_proven(written)
    assert refutes(store.persist, replace(written, message="?"))


def test_imported_commits_keep_their_ids() -> None:
    store = Store()
    commit = few(store)
    imported = replace(commit, id=ObjId(b"\x07" * 32), created_micros=1)
    assert not refutes(store.persist, imported)
    assert refutes(store.persist, replace(imported, created_micros=commit.created_micros))


def test_a_commit_older_than_the_end_of_an_import_counts_as_imported() -> None:
    """Clocks differ: exported commits may have later times than the repository."""
    store = Store()
    commit = few(store)
    imported = replace(commit, id=ObjId(b"\x07" * 32))
    assert refutes(store.persist, imported)
    describe(store, b"2023-11-14T22:13:21Z")
    assert not refutes(store.persist, imported)
    assert refutes(store.persist, replace(imported, created_micros=2 * commit.created_micros))


def test_no_commit_is_refused_if_imports_are_unknown() -> None:
    store = Store()
    imported = replace(few(store), id=ObjId(b"\x07" * 32))
    assert refutes(store.persist, imported)
    describe(store, b'" or not')
    assert not refutes(store.persist, imported)


def describe(store: Store, imported: bytes) -> None:
    """Replace the description of the repository."""
    text = next(obj for row in store.rows().values()
                if isinstance(obj := codec.decode(row), StringObj))  # fmt: skip
    described = StringObj(
        text.content_type,
        text.text.replace(
            b'"repositoryImportedTime":null', b'"repositoryImportedTime":"%b"' % imported
        ),
    )
    assert described != text
    store.persist.store([described])
    repo = store.persist.ref("int/repo")
    assert repo is not None
    parent = store.persist.fetch(Commit, repo.pointer)
    ((key, op),) = index_of(store.persist, parent).items()
    built = build_commit(
        store.persist,
        parent,
        Draft(
            message="described",
            adds=[Add(key, payload_of(op), described.id, expected=value_of(op))],
            kind=CommitKind.INTERNAL,
        ),
    )
    assert store.persist.publish([built.commit], repo, built.commit.id) is not None


def test_the_commit_at_which_nessie_truncated_a_history_keeps_its_id() -> None:
    store = Store()
    commit = few(store)
    message = f"{commit.message} [updated to remove parents on 2026-01-02T03:04:05.678Z]"
    cut = replace(commit, id=ObjId(b"\x07" * 32), tail=(NO_ANCESTOR,), message=message)
    assert not refutes(store.persist, cut)
    assert refutes(store.persist, replace(cut, message=commit.message))
    assert refutes(store.persist, replace(cut, tail=(ObjId(b"\x01" * 32),)))


@pytest.mark.parametrize("target", ["replaced", "deleted", "as it was"])
def test_a_merge_of_nessie_may_hash_removes_of_keys_of_the_merge_base(target: str) -> None:
    store = Store()
    create(store.repo, "main", t="A")
    base = head(store)
    store.repo.references.create_branch("dev", "main")
    store.repo.commit("dev", [delete("t"), put("t", "B")], "replaced on dev")
    if target == "replaced":
        store.repo.commit("main", [delete("t"), put("t", "C")], "replaced on main")
    elif target == "deleted":
        store.repo.commit("main", [delete("t")], "deleted on main")
    writer = NessieWriter(store.persist)
    forced = writer.merge(head(store), "merged by force", base, head(store, "dev"))
    assert forced is not None
    assert not is_proven(forced)
    assert not refutes(store.persist, forced)
    assert loaded(store, forced.id) == forced


@pytest.mark.parametrize("tail", [b"\0\0A", b"\0\0R", b"\0\0A\x07", b"\0\0R\xff", b"\0\0A\0\0"])
def test_content_ids_may_hold_the_bytes_that_end_a_key(tail: bytes) -> None:
    store = Store()
    random = Random(3)
    world = World(
        clock_nanos=store.clock,
        random_bytes=random.randbytes,
        new_uuid=lambda: random.randbytes(16 - len(tail)) + tail,
    )
    repo = Repository(store.backend, store.settings, world)
    repo.commit("main", [put(f"t{n}", "x") for n in range(FEW_OPERATIONS + 1)], "luring")
    commit = head(store)
    assert commit.sealed
    assert is_proven(commit)
    assert loaded(store, commit.id) == commit


def test_a_content_id_of_zeros_is_hashed_but_stored_as_none() -> None:
    store = Store()
    parent = few(store)
    key, value = b"t\0\0", ObjId(b"v" * 32)
    hashed = ids.hashed_add(key[:-2], 1, value, NO_CONTENT_ID) + NO_CONTENT_ID
    commit = replace(
        parent,
        tail=(parent.id, *parent.tail),
        incremental=Segment.build([(key, make_op(ADD, 1, value, NO_CONTENT_ID))]).serialize(),
        id=ids.commit_id(parent.id, parent.message, parent.headers, [hashed]),
    )
    assert not is_proven(commit)
    assert not refutes(store.persist, commit)


class CountedReads(MemoryBackend):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def read_rows(self, repo: str, ids: Sequence[ObjId]) -> dict[ObjId, Row]:
        self.reads += len(ids)
        return super().read_rows(repo, ids)


def test_orders_of_many_re_added_keys_are_not_counted_and_no_parent_is_read() -> None:
    """Counting all orders of that many operations would take minutes."""
    store = Store()
    names = [f"t{n:05}" for n in range(20_000)]
    index = Segment.build(
        [(name.encode() + b"\0\0", make_op(ADD, 1, ObjId(b"v" * 32), name.encode()[:4] * 4))
         for name in names]
    ).serialize()  # fmt: skip
    parent = few(store)
    commit = replace(parent, id=ObjId(b"\x07" * 32), tail=(parent.id,), incremental=index)
    counted = CountedReads()
    persist = Persist(counted, ObjectCache(0), store.settings, store.clock)
    assert not refutes(persist, commit)
    assert not refutes(persist, commit, 5_000)
    assert counted.reads == 0


def striped_and_readded() -> tuple[Store, Commit, Commit]:
    """A parent with stripes, and a child that re-adds one of their keys."""
    store = Store(SMALL)
    for number in range(30):
        create(store.repo, "main", **{f"t{number:02}": "x"})
    parent = head(store)
    assert parent.stripes or parent.reference_index
    dotted = name_of(next(iter(index_of(store.persist, parent).directory.stripes)).first)
    store.repo.commit("main", [delete(dotted), put(dotted, "anew")], "again")
    child = head(store)
    assert not is_proven(child)
    return store, parent, child


def test_a_missing_stripe_of_the_parent_does_not_make_its_child_damaged() -> None:
    store, parent, child = striped_and_readded()
    assert loaded(store, child.id) == child
    assert refutes(store.persist, replace(child, message="?"))
    stripe = next(iter(index_of(store.persist, parent).directory.stripes))
    store.backend.delete_rows("", [stripe.segment])
    assert loaded(store, child.id) == child


def test_a_missing_parent_may_be_a_damaged_parent_id() -> None:
    store, parent, child = striped_and_readded()
    store.backend.delete_rows("", [parent.id])
    with pytest.raises(RepositoryCorrupt, match=child.id.hex()):
        loaded(store, child.id)


@pytest.mark.parametrize("make", [few, many])
def test_damage_to_the_parent_is_not_reported_for_its_child(make: object) -> None:
    store = Store()
    parent = make(store)  # type: ignore[operator]
    (key, op), *_ = index_of(store.persist, parent).items()
    dotted = name_of(key)
    store.repo.commit("main", [delete(dotted), put(dotted, "anew")], "again")
    child = head(store)
    wrong = parent.incremental.replace(op, op[:-1] + bytes([op[-1] ^ 1]))
    store.replace(parent.id, codec.encode(replace(parent, incremental=wrong)).data)
    assert loaded(store, child.id) == child
    with pytest.raises(RepositoryCorrupt, match=parent.id.hex()):
        loaded(store, parent.id)


def name_of(key: bytes) -> str:
    found = content_key(key)
    assert found is not None
    return str(found)
