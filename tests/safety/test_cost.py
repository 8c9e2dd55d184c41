"""Cheap by construction: how much each operation asks of the store, to the last row.

The numbers follow from the format and the algorithms, so they are exact. One that changes is not
wrong for that, but somebody should have meant it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.model.operations import Delete, Unchanged
from morag.testing.counting import CountingBackend
from morag.versions.repository import Repository
from morag.versions.world import World
from tests.safety.sound import key, put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from morag.backend.base import Ref

SIZES: Final = Settings(  # Written out, so that other defaults do not change the table.
    parents_per_commit=20,
    max_incremental_index_bytes=6 * 1024,
    min_index_segment_bytes=2 * 1024,
    max_index_segment_bytes=64 * 1024,
    max_inlined_stripes=4,
)
KEYS, AT_ONCE, UPDATES = 3000, 100, 150


class Counting(CountingBackend):
    """Counts the refs too, not only the calls that ask for them."""

    refs = 0

    def reset(self) -> None:
        super().reset()
        self.refs = 0

    def read_refs(self, repo: str, names: Sequence[str]) -> dict[str, Ref]:
        self.refs += len(names)
        return super().read_refs(repo, names)

    def cost(self) -> str:
        """Refs and rows read, in how many calls; rows written, in how many calls."""
        reads = self.counts["read_refs"] + self.counts["read_rows"]
        read = [f"{self.refs} refs", *_rows(self.rows_read_by_kind)]
        text = f"{' + '.join(read)} in {reads}"
        writes = sum(self.counts[m] for m in ("apply", "insert_rows", "swap_ref", "append_log"))
        if writes:
            written = _rows(self.rows_written_by_kind) or ["nothing"]
            text += f"; wrote {' + '.join(written)} in {writes}"
        return text


def _rows(kinds: dict[str, int]) -> list[str]:
    names = {"c": "commit", "v": "value", "i": "segment", "I": "directory", "u": "claim"}
    names |= {"r": "ref object"}
    return [
        f"{number} {names[kind]}{'s' if number > 1 else ''}"
        for kind, number in sorted(kinds.items(), key=lambda item: list(names).index(item[0]))
    ]


def settled_world() -> World:
    """Always the same, so that ids, and with them sizes and borders, are the same."""
    ticks, random = count(1_700_000_000_000_000_000, 1_000_000), Random(1)
    return World(
        clock_nanos=lambda: next(ticks),
        random=Random(1),
        random_bytes=random.randbytes,
        new_uuid=lambda: random.randbytes(16),
    )


class Fixture:
    """3000 keys in many stripes; main has 150 updates on top, and branches went off it."""

    def __init__(self) -> None:
        self.backend = Counting(MemoryBackend())
        self.world = settled_world()
        self.repo = self.open()
        self.ids: dict[str, str] = {}
        for start in range(0, KEYS, AT_ONCE):
            names = [name(n) for n in range(start, start + AT_ONCE)]
            made = self.repo.commit("main", [put(n) for n in names], "create").added
            self.ids.update((str(key), id) for key, id in made.items())
        random = Random(2)
        for n in range(UPDATES):
            self.update("main", random.randrange(KEYS), n)
        for branch in ("one", "near", "merged", "dropped"):
            self.repo.references.create_branch(branch, "main")
        self.update("one", 1500, 1)
        for n in range(100):
            self.update("near", 700 + n, n)
        self.update("merged", 42, 1)

    def open(self) -> Repository:
        repo = Repository(self.backend, SIZES, self.world)
        self.backend.reset()
        return repo

    def update(self, branch: str, number: int, to: int, expected: str | None = None) -> None:
        operation = put(name(number), 1000 + to, self.ids[name(number)])
        self.repo.commit(branch, [operation], "update", expected=expected)


def name(number: int) -> str:
    return f"table-{number:04}"


OPERATIONS: dict[str, Callable[[Fixture], object]] = {
    "get": lambda f: f.repo.contents.get("main", key(name(7))),
    "get 3 near keys": lambda f: f.repo.contents.get_all("main", [key(name(n)) for n in (7, 8, 9)]),
    "get 3 far keys": lambda f: f.repo.contents.get_all(
        "main", [key(name(n)) for n in (7, 1507, 2907)]
    ),
    "get what is not there": lambda f: f.repo.contents.get_all("main", [key("table-0007x")]),
    "page of 100 entries": lambda f: f.repo.contents.entries("main").page(100),
    "page of 100 contents": lambda f: f.repo.contents.entries("main", with_content=True).page(100),
    "all keys": lambda f: list(f.repo.contents.keys("main")),
    "diff, one key": lambda f: list(f.repo.contents.diff("main", "one")),
    "diff, 100 near keys": lambda f: list(f.repo.contents.diff("main", "near")),
    "diff with itself": lambda f: list(f.repo.contents.diff("main", "main")),
    "log of 1": lambda f: list(islice(f.repo.history.log("main"), 1)),
    "log of 100": lambda f: list(islice(f.repo.history.log("main"), 100)),
    "hashes of 100": lambda f: list(islice(f.repo.history.hashes("main"), 100)),
    "merge base": lambda f: f.repo.history.merge_base("main", "one"),
    "get a reference": lambda f: f.repo.references.get("main"),
    "get no reference": lambda f: list(f.repo.references.list("TAG")),
    "list references": lambda f: list(f.repo.references.list()),
}


@pytest.fixture(scope="module")
def fixture() -> Fixture:
    return Fixture()


def test_print(fixture: Fixture) -> None:
    for what, operation in OPERATIONS.items():
        fixture.repo = fixture.open()
        operation(fixture)
        cold = fixture.backend.cost()
        fixture.backend.reset()
        operation(fixture)
        warm = fixture.backend.cost()
        print(f"{what:24} | {cold} | {warm}")
