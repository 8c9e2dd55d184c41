"""The live commits of random histories, compared with a walk without short cuts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from morag import ContentKey, Delete, IcebergTable, Put, Repository, Settings
from morag.backend.memory import MemoryBackend
from morag.model.times import SECOND_NANOS, parse_instant
from morag.spark.gc.mark import Root, WalkedCommit, Walker
from morag.spark.gc.plan import Cutoff
from morag.versions.world import World

if TYPE_CHECKING:
    from morag.model.operations import Operation
    from morag.model.results import LogEntry

NAMES = ("root", "hash", "commits", "since_nanos", "live", "until")


class Clock:
    """A clock by which every commit takes a second."""

    nanos = 1_000 * SECOND_NANOS

    def __call__(self) -> int:
        self.nanos += SECOND_NANOS
        return self.nanos


STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "drop", "branch"]), st.integers(0, 2)),
    min_size=8,
    max_size=25,
)
CUTOFFS = st.lists(
    st.one_of(
        st.just(Cutoff()),
        st.builds(Cutoff, commits=st.integers(0, 6)),
        st.builds(Cutoff, since_nanos=st.integers(999, 1_030).map(lambda s: s * SECOND_NANOS)),
        st.none(),
    ),
    min_size=3,
    max_size=3,
)


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, cutoffs=CUTOFFS, whole=st.booleans())
def test_short_cuts_miss_no_live_content(
    steps: list[tuple[str, int]], cutoffs: list[Cutoff | None], whole: bool
) -> None:
    clock = Clock()
    catalog = Repository(MemoryBackend(), Settings(), World(clock_nanos=clock))
    _grow(catalog, steps)
    references = list(catalog.references.list())
    roots = [
        Root(each.name or "", each.hash, cutoffs[number % len(cutoffs)])
        for number, each in enumerate(references)
    ]
    walker = Walker(catalog, whole)
    rows = [row for root in roots for row in walker.walk(dict(zip(NAMES, root.row(), strict=True)))]

    assert _marked(catalog, rows) == _live(catalog, roots)
    if whole:
        everything = {hash for root in roots for hash in catalog.history.hashes(f"@{root.hash}")}
        assert {row.commit for row in rows} == everything


def test_a_commit_exactly_at_the_cutoff_is_live() -> None:
    catalog = Repository(MemoryBackend(), Settings(), World(clock_nanos=Clock()))
    _grow(catalog, [("put", 0), ("put", 1), ("put", 2)])
    entries = list(catalog.history.log("main"))
    moment = parse_instant(entries[1].meta.commit_time or "")
    for since, count in ((moment, 2), (moment + 1, 1)):
        root = Root("main", entries[0].meta.hash or "", Cutoff(since_nanos=since))
        rows = list(Walker(catalog, False).walk(dict(zip(NAMES, root.row(), strict=True))))
        assert [row.commit for row in rows] == [entry.meta.hash for entry in entries[:count]]


def _grow(catalog: Repository, steps: list[tuple[str, int]]) -> None:
    branches = ["main"]
    for number, (what, which) in enumerate(steps):
        branch, key = branches[which % len(branches)], ContentKey.of(f"t{which}")
        if what == "branch":
            branches.append(f"b{number}")
            catalog.references.create_branch(f"b{number}", branch)
            continue
        there = catalog.contents.find(branch, key)
        operation: Operation = Delete(key)
        if what == "put" or there is None:
            id = None if there is None else there.id
            operation = Put(key, _table(f"{branch}/{number}", id))
        catalog.commit(branch, [operation], what)


def _table(location: str, id: str | None) -> IcebergTable:
    return IcebergTable(
        id=id, metadata_location=location, snapshot_id=1, schema_id=0, spec_id=0, sort_order_id=0
    )


def _marked(catalog: Repository, rows: list[WalkedCommit]) -> set[str]:
    """The contents that the job reads: puts of live commits, and the whole state of the oldest."""
    found: set[str] = set()
    for row in rows:
        hash = row.commit
        if row.live:
            [entry] = catalog.history.log(f"@{hash}", until=hash, with_operations=True)
            puts = [each for each in entry.operations or () if isinstance(each, Put)]
            found |= {_location(each.content) for each in puts}
        if row.oldest:
            found |= _state(catalog, hash)
    return found


def _live(catalog: Repository, roots: list[Root]) -> set[str]:
    found: set[str] = set()
    for root in roots:
        for position, entry in enumerate(catalog.history.log(f"@{root.hash}")):
            if root.cutoff is None or not _is_live(root.cutoff, position, entry):
                break
            found |= _state(catalog, entry.meta.hash or "")
    return found


def _is_live(cutoff: Cutoff, position: int, entry: LogEntry) -> bool:
    if position == 0:
        return True
    if cutoff.commits is not None:
        return position < cutoff.commits
    time = entry.meta.commit_time or ""
    seconds = 60 * int(time[14:16]) + int(time[17:19])  # All times are in the first hour of 1970.
    return cutoff.since_nanos is None or seconds * SECOND_NANOS >= cutoff.since_nanos


def _state(catalog: Repository, hash: str) -> set[str]:
    entries = catalog.contents.entries(f"@{hash}", with_content=True)
    return {_location(each.content) for each in entries}


def _location(content: object) -> str:
    assert isinstance(content, IcebergTable)
    return content.metadata_location
