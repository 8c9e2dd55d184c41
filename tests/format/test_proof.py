"""Ids reveal damaged commits of Morag and of Nessie, and no undamaged commit is refused."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest

from morag import MergeBehavior, Settings
from morag.errors import RepositoryCorrupt
from morag.format import ids
from morag.format import object_codec as codec
from morag.format.index_entries import ADD, content_id_of, make_op, payload_of, value_of
from morag.format.objects import Commit
from morag.format.proof import FEW_OPERATIONS, is_proven
from morag.format.records import ObjId
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.logic.refutation import refutes
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from tests.format import golden
from tests.rules.operations import Store, create, delete, put

replace = msgspec.structs.replace


def recorded() -> Persist:
    persist = golden.store(Settings())
    return Persist(persist._backend, persist._cache, persist.settings, lambda: 0, refutes)


def test_no_commit_that_nessie_wrote_is_refused() -> None:
    persist = recorded()
    commits = golden.of_kind(Commit)
    for id in commits:
        assert persist.fetch(Commit, id) == commits[id]
    assert sum(is_proven(commit) for commit in commits.values()) == 331


def test_damage_to_a_commit_that_nessie_wrote_is_reported() -> None:
    """A changed message is found in all commits, except in merges that add something and in two
    commits with many operations that could have had another order."""
    persist = recorded()
    unknown = []
    for commit in golden.of_kind(Commit).values():
        assert not refutes(persist, commit)
        if not refutes(persist, replace(commit, message=commit.message + "!")):
            unknown.append(commit)
    merges = [commit for commit in unknown if commit.merge_parents]
    assert (len(merges), len(unknown)) == (2, 4)


def few(store: Store) -> Commit:
    create(store.repo, "main", a="a", b="b")
    return head(store)


def many(store: Store) -> Commit:
    create(store.repo, "main", **{f"t{n}": "x" for n in range(FEW_OPERATIONS + 1)})
    return head(store)


def readded(store: Store) -> Commit:
    create(store.repo, "main", a="a")
    store.repo.commit("main", [delete("a"), put("a", "anew")], "again")
    return head(store)


def many_readded(store: Store) -> Commit:
    names = [f"t{n:02}" for n in range(40)]
    create(store.repo, "main", **dict.fromkeys(names, "x"))
    operations = [each for name in names for each in (delete(name), put(name, "anew"))]
    store.repo.commit("main", [*operations, put("u", "new")], "all again")
    return head(store)


def merged(store: Store) -> Commit:
    create(store.repo, "main", a="a")
    store.repo.references.create_branch("dev", "main")
    create(store.repo, "dev", b="b")
    store.repo.merge("dev", "main")
    return head(store)


def merged_by_force(store: Store) -> Commit:
    """Both branches replace a table by other content, and the target deletes one."""
    create(store.repo, "main", a="a", b="b")
    store.repo.references.create_branch("dev", "main")
    store.repo.commit("dev", [delete(n) for n in "ab"] + [put(n, "dev") for n in "ab"], "dev")
    store.repo.commit("main", [delete("a"), put("a", "main"), delete("b")], "main")
    store.repo.merge("dev", "main", default=MergeBehavior.FORCE)
    return head(store)


def head(store: Store, branch: str = "main") -> Commit:
    hash = store.repo.references.get(branch).hash
    return store.persist.fetch(Commit, ObjId(bytes.fromhex(hash)))


def loaded(store: Store, id: ObjId) -> Commit:
    """The commit as a server with an empty cache loads it."""
    server = Persist(store.backend, ObjectCache(0), store.settings, store.clock, refutes)
    return server.fetch(Commit, id)


MAKERS = [few, many, readded, many_readded, merged, merged_by_force]


@pytest.mark.parametrize("make", MAKERS)
def test_a_damaged_commit_of_morag_is_refused(make: object) -> None:
    store = Store()
    commit = make(store)  # type: ignore[operator]
    for damaged in (
        replace(commit, message=commit.message + "!"),
        replace(commit, headers=commit.headers[1:]),
        replace(commit, tail=(ObjId(b"\x01" * 32), *commit.tail[1:])),
        replace(commit, incremental=b"\x02\x00"),
        replace(commit, incremental=commit.incremental[:-1] + b"?"),
    ):
        store.replace(commit.id, codec.encode(damaged).data)
        repo = store.reopened()
        with pytest.raises(RepositoryCorrupt, match=f"{commit.id.hex()}.*backup"):
            list(repo.history.log("main"))
    store.replace(commit.id, codec.encode(commit).data)
    assert list(store.reopened().history.log("main"))


def test_a_commit_is_sealed_only_if_not_all_candidates_can_be_tried() -> None:
    assert not few(Store()).sealed
    assert not readded(Store()).sealed
    for make in (many, many_readded, merged, merged_by_force):
        sealed = make(Store())
        assert sealed.sealed
        assert codec.encode(replace(sealed, sealed=False)).data != codec.encode(sealed).data
        assert codec.decode(codec.encode(sealed)) == sealed


def nessie_commits(
    store: Store, operations: int, *, readd: bool = False
) -> tuple[Commit, list[Commit]]:
    """A commit as Nessie writes it, in every order that its client could have sent."""
    parent = few(store)
    old = index_of(store.persist, parent)
    ops = {f"k{n}".encode() + b"\0\0": make_op(ADD, 1, ObjId(bytes([n]) * 32), bytes([n + 1]) * 16)
           for n in range(operations)}  # fmt: skip
    removes: list[bytes] = []
    if readd:
        key, was = next(old.items())
        ops[key] = make_op(ADD, 1, ObjId(b"n" * 32), b"new content id.."[:16])
        removes = [ids.hashed_remove(key[:-2], payload_of(was), content_id_of(was))]
    hashed = [
        ids.hashed_add(key[:-2], payload_of(op), value_of(op), content_id_of(op))
        for key, op in ops.items()
    ]
    commit = replace(
        parent,
        tail=(parent.id, *parent.tail),
        seq=parent.seq + 1,
        message="nessie_commits",
        incremental=Segment.build(sorted(ops.items())).serialize(),
    )
    head = (parent.id, commit.message, commit.headers)
    orders = permutations(hashed) if operations < 4 else [hashed, hashed[::-1]]
    return commit, [
        replace(commit, id=ids.commit_id(*head, (*removes, *order))) for order in orders
    ]


@pytest.mark.parametrize("readd", [False, True])
@pytest.mark.parametrize("operations", [1, 2, 3, 12])
def test_any_order_of_operations_is_accepted(operations: int, readd: bool) -> None:
    store = Store()
    _, written = nessie_commits(store, operations, readd=readd)
    for commit in written:
        assert not refutes(store.persist, commit)


@pytest.mark.parametrize("readd", [False, True])
@pytest.mark.parametrize("operations", [1, 2, 3])
def test_damage_is_distinguished_from_another_order(operations: int, readd: bool) -> None:
    store = Store()
    _, written = nessie_commits(store, operations, readd=readd)
    for commit in written:
        assert refutes(store.persist, replace(commit, message="foreigm"))


def test_many_operations_in_another_order_look_like_damage_unless_sealed() -> None:
    store = Store()
    _, written = nessie_commits(store, 12)
    damaged = replace(written[0], message="foreigm")
    assert not refutes(store.persist, damaged)
    assert refutes(store.persist, replace(damaged, sealed=True))


def test_a_long_history_of_unproven_commits_is_read_without_recursion() -> None:
    persist = recorded()
    parent = next(iter(golden.of_kind(Commit).values()))
    chain = [parent]
    adds = [ids.hashed_add(b"k%d" % n, 1, ObjId(bytes([n]) * 32), bytes([n + 1]) * 16)
            for n in range(2)]  # fmt: skip
    index = Segment.build(
        [(b"k%d\0\0" % n, make_op(ADD, 1, ObjId(bytes([n]) * 32), bytes([n + 1]) * 16))
         for n in range(2)]
    ).serialize()  # fmt: skip
    for number in range(1200):
        above = chain[-1]
        message = f"{number}"
        id = ids.commit_id(above.id, message, (), adds[::-1])
        chain.append(
            Commit(
                id=id, created_micros=parent.created_micros, seq=above.seq + 1,
                tail=(above.id,), message=message, incremental=index,
            )
        )  # fmt: skip
    persist.store(chain[1:])
    assert persist.fetch(Commit, chain[-1].id) == chain[-1]
