"""The exact cost of each operation: rows read and written, and calls to the backend.

The numbers follow from the format and the algorithms. A changed number is not a bug by itself, but
the change must be intended.
"""

from __future__ import annotations

from copy import copy
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from morag.backend.base import RefSwap
from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.index.layered import index_of
from morag.model.operations import Delete, Unchanged
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.backend.counting import CountingBackend
from tests.safety.history_checks import key, put

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence

    from morag.backend.base import Ref
    from morag.index.layered import CommitIndex
    from morag.model.keys import ContentKey
    from morag.model.operations import Operation

SIZES: Final = Settings(  # Explicit, so that new defaults do not change the costs.
    parents_per_commit=20,
    max_incremental_index_bytes=6 * 1024,
    min_index_segment_bytes=2 * 1024,
    max_index_segment_bytes=64 * 1024,
    max_inlined_stripes=4,
)
KEYS, AT_ONCE, UPDATES = 3000, 100, 150


WRITES = ("apply", "apply_all", "insert_rows", "swap_ref", "append_log")


class Counting(CountingBackend):
    """Counts the refs that are read, not only the calls that read them."""

    refs = 0

    def reset(self) -> None:
        super().reset()
        self.refs = 0

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        self.refs += len(names)
        return super().read_refs(repo, names)

    def cost(self) -> str:
        """The rows read and written by kind, each with the number of calls."""
        reads = self.counts["read_refs"] + self.counts["read_rows"]
        text = f"{_listed({'ref': self.refs, **_named(self.rows_read_by_kind)})} in {reads}"
        writes = sum(self.counts[method] for method in WRITES)
        if writes:
            text += f"; wrote {_listed(_named(self.rows_written_by_kind))} in {writes}"
        return text


KINDS = {
    "c": "commit",
    "I": "stripe list",
    "i": "segment",
    "v": "value",
    "u": "claim",
    "r": "ref object",
}


def _named(rows: Counter[str]) -> dict[str, int]:
    assert rows.keys() <= KINDS.keys()
    return {name: rows[kind] for kind, name in KINDS.items() if rows[kind]}


def _listed(numbers: dict[str, int]) -> str:
    shown = (f"{n} {name}{'s' * (n > 1)}" for name, n in numbers.items() if n)
    return ", ".join(shown) or "nothing"


def fixed_world() -> World:
    """A fixed clock and fixed randomness, so that ids, sizes and segment borders never change."""
    ticks, random = count(1_700_000_000_000_000_000, 1_000_000), Random(1)
    return World(
        clock_nanos=lambda: next(ticks),
        random=Random(1),
        random_bytes=random.randbytes,
        new_uuid=lambda: random.randbytes(16),
    )


class Fixture:
    """3000 keys in 75 stripes, then 150 updates of one key each, and branches from there."""

    def __init__(self) -> None:
        self.backend = Counting(MemoryBackend())
        self.world = fixed_world()
        self.ids: dict[str, str] = {}
        self.hashes: list[str] = []
        self.replayed: list[list[str]] = []
        self.open()
        for start in range(0, KEYS, AT_ONCE):
            names = [name(n) for n in range(start, start + AT_ONCE)]
            added = self.repo.commit("main", [put(n) for n in names], "create").added
            self.ids.update((str(key), id) for key, id in added.items())
        random = Random(2)
        for n in range(UPDATES):
            self.update("main", random.randrange(KEYS), n)
        self.hashes = list(self.repo.history.hashes("main"))
        for branch in BRANCHES:
            self.repo.references.create_branch(branch, "main")
        for n, branch in enumerate(("merged-0", "merged-1", "one")):
            self.update(branch, 1500 + n, 1)
        self.replayed = [self._two_commits(f"replayed-{n}", 1510 + 2 * n) for n in range(2)]
        # The first half spills the incremental index of main. The second half spills the first
        # half, which belongs to few stripes.
        for n in range(240):
            if n == 120:
                self.repo.references.create_branch("near", "nearby")
            self.update("nearby", 700 + n, n)

    def open(self) -> None:
        """Reopen the repository with an empty cache, and reset the counts."""
        self.repo = Repository(self.backend, SIZES, self.world)
        self.backend.reset()

    def copy(self) -> Fixture:
        """A copy of the store, so that an operation can change it."""
        other = copy(self)
        other.backend = Counting(MemoryBackend())
        other.backend.insert_rows("", list(self.backend.scan_rows("")))
        heads = (f"refs/heads/{branch}" for branch in ("main", "near", *BRANCHES))
        names = ["int/refs", "int/repo", *heads]
        for ref in self.backend.read_refs("", names).values():
            other.backend.swap_ref("", RefSwap(ref.name, None, ref))
        other.open()
        return other

    def _two_commits(self, branch: str, number: int) -> list[str]:
        """Make two commits; return their hashes, oldest first."""
        for n in range(2):
            self.update(branch, number + n, 1)
        return list(self.repo.history.hashes(branch).page(2).items)[::-1]

    def update(self, branch: str, number: int, to: int, expected: str | None = None) -> None:
        operation = put(name(number), 1000 + to, self.ids[name(number)])
        self.repo.commit(branch, [operation], "update", expected=expected)


BRANCHES = (
    "one",
    "nearby",
    "merged-0",
    "merged-1",
    "replayed-0",
    "replayed-1",
    "dropped-0",
    "dropped-1",
)


def name(number: int) -> str:
    return f"table-{number:04}"


def keys(*numbers: int) -> list[ContentKey]:
    return [key(name(number)) for number in numbers]


OPERATIONS: dict[str, Callable[[Fixture, int], object]] = {
    "get": lambda f, n: f.repo.contents.get("main", *keys(7)),
    "get 3 near keys": lambda f, n: f.repo.contents.get_all("main", keys(7, 8, 9)),
    "get 3 far keys": lambda f, n: f.repo.contents.get_all("main", keys(7, 1507, 2907)),
    "get a missing key": lambda f, n: f.repo.contents.get_all("main", [key("table-0007x")]),
    "entries of 3 far keys": lambda f, n: list(
        f.repo.contents.entries("main", keys=keys(7, 1507, 2907))
    ),
    "page of 100 entries": lambda f, n: f.repo.contents.entries("main").page(100),
    "all keys": lambda f, n: list(f.repo.contents.keys("main")),
    "diff of one key": lambda f, n: list(f.repo.contents.diff("main", "one")),
    "diff of 120 near keys": lambda f, n: list(f.repo.contents.diff("near", "nearby")),
    "diff of nothing": lambda f, n: list(f.repo.contents.diff("main", "dropped-0")),
    "log of 100": lambda f, n: list(islice(f.repo.history.log("main"), 100)),
    "hashes of 100": lambda f, n: list(islice(f.repo.history.hashes("main"), 100)),
    "merge base": lambda f, n: f.repo.history.merge_base("main", "one"),
    "get a reference": lambda f, n: f.repo.references.get("main"),
    "list references": lambda f, n: list(f.repo.references.list()),
    "commit an update": lambda f, n: f.update("main", 7, n),
    "commit a new key": lambda f, n: f.repo.commit("main", [put(f"new-{n}")], "create"),
    "commit a delete": lambda f, n: f.repo.commit("main", [Delete(*keys(7 + n))], "delete"),
    "commit 50 far updates": lambda f, n: f.repo.commit(
        "main", [put(name(k), n, f.ids[name(k)]) for k in range(0, 3000, 60)], "update"
    ),
    "commit, 1 behind": lambda f, n: f.update("main", 7 + n, n, f.hashes[1]),
    "commit, 20 behind": lambda f, n: f.update("main", 7 + n, n, f.hashes[20]),
    "commit, 21 behind": lambda f, n: f.update("main", 7 + n, n, f.hashes[21]),
    "commit, 100 behind": lambda f, n: f.update("main", 7 + n, n, f.hashes[100]),
    "merge": lambda f, n: f.repo.merge(f"merged-{n}", "main"),
    "merge, not squashed": lambda f, n: f.repo.merge(f"replayed-{n}", "main", squash=False),
    "transplant": lambda f, n: f.repo.transplant(f.replayed[n], "main"),
    "create a branch": lambda f, n: f.repo.references.create_branch(f"created-{n}", "main"),
    "delete a branch": lambda f, n: f.repo.references.delete(f"dropped-{n}"),
    "assign a branch": lambda f, n: f.repo.references.assign(f"dropped-{n}", "one"),
}


COSTS: dict[str, tuple[str, str]] = {
    # With an empty cache, and repeated with a warm cache.
    "get": (
        "2 refs, 1 commit, 1 stripe list, 1 segment, 1 value in 5",
        "2 refs in 1",
    ),
    "get 3 near keys": (
        "2 refs, 1 commit, 1 stripe list, 1 segment, 3 values in 5",
        "2 refs in 1",
    ),
    "get 3 far keys": (
        "2 refs, 1 commit, 1 stripe list, 3 segments, 3 values in 5",
        "2 refs in 1",
    ),
    "get a missing key": (
        "2 refs, 1 commit, 1 stripe list, 1 segment in 4",
        "2 refs in 1",
    ),
    "entries of 3 far keys": (
        "2 refs, 1 commit, 1 stripe list, 3 segments in 4",
        "2 refs in 1",
    ),
    "page of 100 entries": (
        "2 refs, 1 commit, 1 stripe list, 3 segments in 5",
        "2 refs in 1",
    ),
    "all keys": (
        "2 refs, 1 commit, 1 stripe list, 75 segments in 11",
        "2 refs in 1",
    ),
    "diff of one key": (
        "4 refs, 2 commits, 1 stripe list, 1 segment, 2 values in 7",
        "4 refs in 2",
    ),
    "diff of 120 near keys": (
        "4 refs, 2 commits, 2 stripe lists, 8 segments, 240 values in 12",
        "4 refs in 2",
    ),
    "diff of nothing": (
        "4 refs, 1 commit, 1 stripe list in 4",
        "4 refs in 2",
    ),
    "log of 100": (
        "2 refs, 101 commits in 7",
        "2 refs in 1",
    ),
    "hashes of 100": (
        "2 refs, 5 commits in 6",
        "2 refs in 1",
    ),
    "merge base": (
        "4 refs, 2 commits in 4",
        "4 refs in 2",
    ),
    "get a reference": (
        "2 refs in 1",
        "2 refs in 1",
    ),
    "list references": (
        "11 refs, 1 commit in 3",
        "11 refs in 2",
    ),
    "commit an update": (
        "1 ref, 1 commit, 1 stripe list, 1 segment in 4; wrote 1 commit, 1 value in 1",
        "nothing in 0; wrote 1 commit, 1 value in 1",
    ),
    "commit a new key": (
        "1 ref, 1 commit, 1 stripe list in 3; wrote 1 commit, 1 value, 1 claim in 1",
        "nothing in 0; wrote 1 commit, 1 value, 1 claim in 1",
    ),
    "commit a delete": (
        "1 ref, 1 commit, 1 stripe list, 1 segment in 4; wrote 1 commit in 1",
        "nothing in 0; wrote 1 commit in 1",
    ),
    "commit 50 far updates": (
        "1 ref, 1 commit, 1 stripe list, 50 segments in 4; wrote 1 commit, 50 values in 1",
        "nothing in 0; wrote 1 commit, 50 values in 1",
    ),
    "commit, 1 behind": (
        "1 ref, 2 commits, 1 stripe list, 1 segment in 5; wrote 1 commit, 1 value in 1",
        "nothing in 0; wrote 1 commit, 1 value in 1",
    ),
    "commit, 20 behind": (
        "1 ref, 2 commits, 1 stripe list, 1 segment in 5; wrote 1 commit, 1 value in 1",
        "1 commit in 1; wrote 1 commit, 1 value in 1",
    ),
    "commit, 21 behind": (
        "1 ref, 3 commits, 1 stripe list, 1 segment in 6; wrote 1 commit, 1 value in 1",
        "1 commit in 1; wrote 1 commit, 1 value in 1",
    ),
    "commit, 100 behind": (
        "1 ref, 6 commits, 2 stripe lists, 2 segments in 11; wrote 1 commit, 1 value in 1",
        "5 commits in 5; wrote 1 commit, 1 value in 1",
    ),
    "merge": (
        "5 refs, 2 commits, 1 stripe list, 1 segment in 7; wrote 1 commit in 1",
        "4 refs, 2 commits in 4; wrote 1 commit in 1",
    ),
    "merge, not squashed": (
        "3 refs, 4 commits, 1 stripe list, 1 segment in 8; wrote 2 commits in 1",
        "2 refs, 2 commits in 3; wrote 2 commits in 1",
    ),
    "transplant": (
        "1 ref, 3 commits, 1 stripe list, 1 segment in 6; wrote 2 commits in 1",
        "2 commits in 2; wrote 2 commits in 1",
    ),
    "create a branch": (
        "5 refs, 2 commits in 4; wrote 1 commit, 1 ref object in 1",
        "5 refs in 2; wrote 1 commit, 1 ref object in 1",
    ),
    "delete a branch": (
        "4 refs, 1 commit, 1 ref object in 4; wrote 1 commit in 1",
        "4 refs, 1 ref object in 3; wrote 1 commit in 1",
    ),
    "assign a branch": (
        "4 refs, 1 commit in 3; wrote nothing in 1",
        "4 refs in 2; wrote nothing in 1",
    ),
}


@pytest.fixture(scope="module")
def fixture() -> Fixture:
    return Fixture()


def measured(fixture: Fixture, operation: Callable[[Fixture, int], object]) -> tuple[str, str]:
    """The cost with an empty cache, and the cost of the same operation when repeated."""
    store = fixture.copy()
    operation(store, 0)
    cold = store.backend.cost()
    store.backend.reset()
    operation(store, 1)
    return cold, store.backend.cost()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_has_exactly_its_listed_cost(fixture: Fixture, operation: str) -> None:
    assert measured(fixture, OPERATIONS[operation]) == COSTS[operation]


def test_every_cost_belongs_to_an_operation() -> None:
    assert COSTS.keys() == OPERATIONS.keys()


class PrivateCounting(Counting):
    is_private: Final = True


@pytest.mark.parametrize(
    ("kind", "name", "cost"),
    [
        pytest.param(Counting, "main", "2 refs in 1", id="a shared store is asked once"),
        pytest.param(PrivateCounting, "main", "1 ref in 1", id="a local one only for the branch"),
        pytest.param(PrivateCounting, "tag", "3 refs in 3", id="then for the tag"),
    ],
)
def test_a_name_is_looked_up_as_a_branch_and_as_a_tag(
    kind: type[Counting], name: str, cost: str
) -> None:
    backend = kind(MemoryBackend())
    repository = Repository(backend, SIZES, fixed_world())
    repository.references.create_tag("tag", "main")
    backend.reset()
    assert repository.references.get(name).name == name
    assert backend.cost() == cost


def test_a_diff_reads_no_segment_that_it_does_not_need(fixture: Fixture) -> None:
    """A diff needs differing segments, and those with keys that only one incremental index has."""
    store = fixture.copy()
    one, other = (index(store, branch) for branch in ("near", "nearby"))
    shared = one.directory.segment_ids & other.directory.segment_ids
    assert len(shared) > 70
    needed = one.directory.segment_ids ^ other.directory.segment_ids
    assert needed
    for side, opposite in ((one, other), (other, one)):
        overlaid = set(opposite.incremental.keys) - set(side.incremental.keys)
        found = (side.directory.holding(key) for key in overlaid)
        needed |= {stripe.segment for stripe in found if stripe is not None}
    store.open()
    list(store.repo.contents.diff("near", "nearby"))
    assert store.backend.rows_read_by_kind["i"] == len(needed)


def index(store: Fixture, branch: str) -> CommitIndex:
    return index_of(store.repo._persist, store.repo._resolver.resolve(branch).commit)


@pytest.mark.parametrize("length", [10, 100, 1000])
def test_a_replaying_merge_reads_what_it_merges_and_not_the_history(length: int) -> None:
    """A merge reads little more than its two commits and their merge base, for any history."""
    backend = Counting(MemoryBackend())
    world = fixed_world()
    repo = Repository(backend, SIZES, world)
    for n in range(length):
        repo.commit("main", [put(f"main-{n}")], "main")
    repo.references.create_branch("dev", "main")
    for n in range(2):
        repo.commit("dev", [put(f"dev-{n}")], "dev")
    repo.commit("main", [put("other")], "main")
    repo = Repository(backend, SIZES, world)
    backend.reset()
    repo.merge("dev", "main", squash=False)
    assert backend.rows_read_by_kind["c"] == 5


def test_the_conflict_check_reads_no_value(fixture: Fixture) -> None:
    """This holds for puts, deletes and `Unchanged` operations."""
    store = fixture.copy()
    update = put(name(1), 5, store.ids[name(1)])
    operations: list[Operation] = [update, put("new"), Delete(*keys(2)), Unchanged(*keys(3))]
    store.repo.commit("main", operations, "all kinds", expected=store.hashes[50])
    assert store.backend.rows_read_by_kind["v"] == 0


def test_the_log_is_walked_a_tail_at_a_time(fixture: Fixture) -> None:
    """On the way to the expected commit, only every twentieth commit is read."""
    for behind in (1, 19, 20, 21, 40, 41, 60, 101, 140):
        store = fixture.copy()
        store.update("main", 7, 1, store.hashes[behind])
        head_and_expected = 2
        hops = (behind - 1) // 20
        assert store.backend.rows_read_by_kind["c"] == head_and_expected + hops
