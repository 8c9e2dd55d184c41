"""No undamaged commit is refused: random histories by Morag and by Nessie."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from hypothesis import event, example, given
from hypothesis import strategies as st

from morag import Settings
from morag.format.index_entries import content_id_of, payload_of, value_of
from morag.format.objects import Commit
from morag.format.proof import FEW_OPERATIONS
from morag.format.records import ObjId
from morag.index.keys import store_key
from morag.index.layered import index_of
from morag.logic.commits import Add, Draft, Remove, Resolution, build_commit
from morag.logic.refutation import refutes
from morag.model.keys import ContentKey
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from tests.format.nessie_writer import (
    Added,
    NessieWriter,
    Removed,
    cut_off,
    ordered_headers,
    rewritten,
)
from tests.rules.operations import Store, create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from morag.logic.commits import KeyConflict

TINY: Final = Settings(
    max_incremental_index_bytes=600,
    min_index_segment_bytes=150,
    max_index_segment_bytes=500,
    max_inlined_stripes=2,
)
SEEDS: Final = st.integers(0, 2**32)
MISLEADING: Final = (b"\0\0A", b"\0\0R", b"\0\0A\x07", b"\0\0R\xff", b"A", b"\0\0", b"\x20", b"\0")
"""Pieces of ids that look like the end of a key and the start of an entry."""
KEYS: Final = [
    store_key(ContentKey.of(*elements))
    for elements in (
        ("A",), ("R",), ("A", "R"), ("a", "A"), ("a", "AR"), ("ab",), ("ä",), ("😀", "A"), ("￿",),
        ("x" * 150,), ("x" * 150 + "y",), ("RRR", "AAA"),
    )
]  # fmt: skip


def misleading_bytes(random: Random, size: int) -> bytes:
    """Random bytes with misleading pieces in them, often at the end."""
    data = random.randbytes(size)
    for _ in range(random.randrange(4)):
        piece = random.choice(MISLEADING)
        at = random.choice((size - len(piece), random.randrange(size - len(piece) + 1)))
        data = data[:at] + piece + data[at + len(piece) :]
    return data


class History:
    """A store with some commits. Each new commit is loaded again with an empty cache."""

    def __init__(self, random: Random) -> None:
        store = Store(TINY)
        create(store.repo, "main", a="a")
        self.random = random
        self.persist = store.persist
        head = store.repo.references.get("main").hash
        self.commits = [self.persist.fetch(Commit, ObjId(bytes.fromhex(head)))]

    def any(self) -> Commit:
        return self.random.choice(self.commits)

    def check_accepted(self, commit: Commit, variants: Iterable[Commit] = ()) -> None:
        backend = self.persist._backend
        server = Persist(backend, ObjectCache(0), TINY, self.persist.clock_nanos, refutes)
        assert server.fetch(Commit, commit.id) == commit
        for each in (commit, *variants):
            assert not refutes(self.persist, each)
            assert not refutes(self.persist, each, 5_000)
        self.commits.append(commit)

    def new_id(self) -> bytes:
        return misleading_bytes(self.random, 16)

    def new_value(self) -> ObjId:
        return ObjId(misleading_bytes(self.random, 32))


@given(SEEDS)
@example(1)
def test_no_undamaged_commit_of_morag_is_refused(seed: int) -> None:
    history = History(Random(seed))
    for number in range(6):
        _commit_by_morag(history, f"commit {number}")


def _commit_by_morag(history: History, message: str) -> None:
    """A commit of a client, or a forced merge with any commit as its base."""
    random = history.random
    parent, merged = history.any(), history.any() if random.random() < 0.4 else None
    persist = history.persist
    known = index_of(persist, parent if merged is None else merged)
    adds: list[Add] = []
    removes: list[Remove] = []
    for key in random.sample(KEYS, random.randint(1, len(KEYS))):
        was = known.get(key)
        if was is None:
            adds.append(Add(key, 1, history.new_value(), history.new_id()))
            continue
        remove = Remove(key, payload_of(was), value_of(was), content_id_of(was))
        action = random.choice(("update", "remove", "add again"))
        if action != "update":
            removes.append(remove)
        if action == "update":
            same = content_id_of(was)
            adds.append(Add(key, payload_of(was), history.new_value(), same, value_of(was)))
        if action == "add again":
            adds.append(Add(key, 1, history.new_value(), history.new_id()))
    draft = Draft(
        message=message, adds=adds, removes=removes,
        merge_parents=() if merged is None else (merged.id,),
    )  # fmt: skip
    built = build_commit(persist, parent, draft, _resolving(random))
    persist.store([*built.indexes, built.commit])
    if built.commit.sealed:
        event("sealed")
    history.check_accepted(built.commit)


def _resolving(random: Random) -> Callable[[KeyConflict], Resolution]:
    return lambda _: random.choice((Resolution.APPLY, Resolution.APPLY, Resolution.DROP))


@given(SEEDS)
@example(1)
def test_no_undamaged_commit_of_nessie_is_refused(seed: int) -> None:
    history = History(Random(seed))
    writer = NessieWriter(history.persist)
    random = history.random
    for number in range(8):
        message = f"commit {number}"
        parent = history.any()
        kind = random.choice(("commit", "commit", "merge", "transplant"))
        built: Commit | None
        if kind == "commit":
            built = _commit_by_nessie(history, writer, parent, message)
        elif kind == "transplant":
            built = writer.transplant(parent, message, history.any())
        else:
            since_0_78 = random.random() < 0.7
            built = writer.merge(
                parent, message, history.any(), history.any(),
                dropped=random.sample(KEYS, 2),
                since_0_78=since_0_78,
                squashed_transplant=not since_0_78 and random.random() < 0.5,
            )  # fmt: skip
        if built is not None and built.id not in {commit.id for commit in history.commits}:
            event(kind)
            once = rewritten(built)
            history.check_accepted(built, (once, rewritten(once), cut_off(built)))


def _commit_by_nessie(
    history: History, writer: NessieWriter, parent: Commit, message: str
) -> Commit:
    random = history.random
    known = index_of(history.persist, parent)
    removes: list[Removed] = []
    adds: list[Added] = []
    for key in random.sample(KEYS, random.randint(1, FEW_OPERATIONS + 2)):
        was = known.get(key)
        gone = was is not None and random.random() < 0.6
        if was is not None and gone:
            removes.append(Removed(key, content_id_of(was), value_of(was), payload_of(was)))
        if was is None or not gone or random.random() < 0.5:
            id = content_id_of(was) if was is not None and not gone else history.new_id()
            adds.append(Added(key, id, history.new_value()))
    random.shuffle(removes)
    random.shuffle(adds)
    names = random.sample([f"header-{n}" for n in range(40)], random.randint(0, 13))
    headers = ordered_headers(names, before_jdk_19=random.random() < 0.5)
    return writer.commit(parent, message, removes, adds, headers=headers)
