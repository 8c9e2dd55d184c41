"""Indexes that grow, spill and split: they always equal a plain dict."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import ADD, INCREMENTAL_ADD, INCREMENTAL_REMOVE, REMOVE, with_action
from morag.format.objects import Commit, Index
from morag.format.records import ObjId
from morag.index.diff import diff
from morag.index.directory import segment_of
from morag.index.keys import ALL, KeyRange, content_key, store_key
from morag.index.layered import CommitIndex, index_of
from morag.index.spill import grown_index
from morag.model.keys import ContentKey
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from tests.index.strategies import LETTERS, op_of

if TYPE_CHECKING:
    from collections.abc import Sequence

TINY = Settings(max_incremental_index_bytes=300, min_index_segment_bytes=300, max_inlined_stripes=2)
UNIVERSE = [store_key(ContentKey.of(a, b)) for a in LETTERS for b in LETTERS[::3]]
Changes = dict[bytes, int | None]
"""The changes of a commit: a number is put, None removes the key if it exists."""
CHANGES = st.dictionaries(st.sampled_from(UNIVERSE), st.none() | st.integers(0, 999), max_size=12)
BOUNDS = st.sampled_from([*UNIVERSE, b"", b"M\0a", b"N"])
RANGES = st.builds(KeyRange, BOUNDS, st.none() | BOUNDS)


class History:
    """Successive commits, and the dict that the newest must equal."""

    def __init__(self, persist: Persist) -> None:
        self.persist = persist
        self.index = index_of(persist, None)
        self.commit: Commit | None = None
        self.model: dict[bytes, bytes] = {}
        self.events: Counter[str] = Counter()

    def branch(self) -> History:
        other = History(self.persist)
        other.index, other.commit, other.model = self.index, self.commit, dict(self.model)
        return other

    def add(self, changes: Changes) -> None:
        operations = []
        for key, number in sorted(changes.items()):
            if number is not None:
                self.model[key] = op_of(number)
                operations.append((key, with_action(ADD, op_of(number))))
            elif key in self.model:
                operations.append((key, with_action(REMOVE, self.model.pop(key))))
        before, parent = self.index, self.commit
        inherited = (parent.reference_index, parent.stripes) if parent else (None, ())
        new = grown_index(self.persist, before, inherited, operations)
        self.persist.store(new.objects)
        self.commit = Commit(
            id=ObjId(bytes(32)),
            created_micros=0,
            seq=1,
            tail=(NO_ANCESTOR,),
            reference_index=new.reference_index,
            stripes=new.stripes,
            incremental=new.incremental,
        )
        self.index = new.index
        assert list(new.index.operations()) == operations
        self._count_events(before, new.reference_index)

    def reread(self) -> CommitIndex:
        """The index as another server reads it from the store."""
        return index_of(self.persist, self.commit)

    def _count_events(self, before: CommitIndex, reference_index: ObjId | None) -> None:
        """Count how the commit changed the stripes."""
        old, new = before.directory, self.index.directory
        if old is new:
            return
        events = self.events
        events["spilled"] += 1
        events["as a list of stripes"] += reference_index is not None
        events["all stripes gone"] += bool(old) and not new
        events["stripes kept"] += bool(old.segment_ids & new.segment_ids)
        for stripe in new.stripes:
            covered = [s for s in old.stripes if stripe.first <= s.last and s.first <= stripe.last]
            events["stripes joined"] += len(covered) > 1
        for stripe in old.stripes:
            inside = [s for s in new.stripes if stripe.first <= s.last and s.first <= stripe.last]
            events["a stripe cut up"] += len(inside) > 1


def tiny_persist(cache_bytes: int = 1 << 24, settings: Settings = TINY) -> Persist:
    return Persist(MemoryBackend(), ObjectCache(cache_bytes), settings, lambda: 0)


def striped() -> History:
    """A history with all keys in stripes, whose next few changes will spill."""
    history = History(tiny_persist(settings=replace(TINY, max_incremental_index_bytes=150)))
    history.add(dict.fromkeys(UNIVERSE, 1))
    history.add({})
    assert not history.index.incremental
    assert min(len(keys) for keys in stripe_keys(history)) > 3
    return history


def stripe_keys(history: History) -> list[list[bytes]]:
    """The keys of each stripe."""
    ids = [stripe.segment for stripe in history.index.directory.stripes]
    return [list(segment_of(index).keys) for index in history.persist.fetch_all(Index, ids)]


def below(key: bytes) -> bytes:
    """A key between this one and the next."""
    parent = content_key(key)
    assert parent is not None
    return store_key(ContentKey((*parent.elements, "x")))


def check(index: CommitIndex, model: dict[bytes, bytes], ranges: Sequence[KeyRange] = ()) -> None:
    expected = sorted((key, op[1:]) for key, op in model.items())
    assert [(key, op[1:]) for key, op in index.items()] == expected
    for key in UNIVERSE:
        found = index.get(key)
        assert (found and found[1:]) == (model[key][1:] if key in model else None)
    for range in ranges:
        assert [(key, op[1:]) for key, op in index.items(range)] == [
            entry for entry in expected if within(range, entry[0])
        ]


def check_stripes(persist: Persist, index: CommitIndex) -> None:
    """Stripes ascend, do not overlap, and span exactly their keys; all marks are needed."""
    stripes = index.directory.stripes
    for stripe in stripes:
        keys = segment_of(persist.fetch(Index, stripe.segment)).keys
        assert (stripe.first, stripe.last) == (keys[0], keys[-1])
    assert all(one.last < other.first for one, other in pairwise(stripes))
    if not stripes:
        assert INCREMENTAL_REMOVE[0] not in {op[0] for _, op in index.incremental.items()}


def within(range: KeyRange, key: bytes) -> bool:
    return range.lower <= key and (range.upper is None or key < range.upper)


def expected_diff(
    one: dict[bytes, bytes], other: dict[bytes, bytes], range: KeyRange
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    found = []
    for key in sorted(one.keys() | other.keys()):
        left, right = one.get(key), other.get(key)
        if within(range, key) and left != right:
            found.append((key, left and left[1:], right and right[1:]))
    return found


def found_diff(
    one: CommitIndex, other: CommitIndex, range: KeyRange
) -> list[tuple[bytes, bytes | None, bytes | None]]:
    return [
        (key, left and left[1:], right and right[1:])
        for key, left, right in diff(one, other, range)
    ]


@given(st.lists(CHANGES, max_size=25), st.lists(RANGES, max_size=3))
def test_any_history_equals_a_dict(commits: list[Changes], ranges: list[KeyRange]) -> None:
    history = History(tiny_persist())
    for changes in commits:
        history.add(changes)
        check(history.index, history.model)
    for what in history.events:
        event(what)
    check(history.reread(), history.model, ranges)
    check_stripes(history.persist, history.reread())


@given(
    st.lists(CHANGES, max_size=10),
    st.lists(CHANGES, max_size=6),
    st.lists(CHANGES, max_size=6),
    RANGES,
)
def test_a_diff_of_two_branches_equals_that_of_two_dicts(
    common: list[Changes], first: list[Changes], second: list[Changes], range: KeyRange
) -> None:
    one = History(tiny_persist())
    for changes in common:
        one.add(changes)
    other = one.branch()
    for history, commits in ((one, first), (other, second)):
        for changes in commits:
            history.add(changes)
    event("stripes shared" if one.index.directory is other.index.directory else "stripes differ")
    for bounds in (ALL, range):
        expected = expected_diff(one.model, other.model, bounds)
        assert found_diff(one.index, other.index, bounds) == expected
        assert found_diff(one.reread(), other.reread(), bounds) == expected


@pytest.mark.parametrize("cache_bytes", [1 << 24, 0], ids=["cached", "uncached"])
def test_a_long_history_equals_a_dict_in_every_shape(cache_bytes: int) -> None:
    """The history grows, changes, shrinks, grows, is emptied, and grows again."""
    random = Random(17)
    history = History(tiny_persist(cache_bytes))
    for step in range(300):
        removing = 0.95 if 150 <= step < 180 else 0.35
        changes: Changes = {
            key: None if random.random() < removing else random.randrange(1000)
            for key in random.sample(UNIVERSE, random.choice((1, 2, 3, 20)))
        }
        if step == 200:
            changes = dict.fromkeys(history.model)
        if 200 < step < 215:
            changes = {UNIVERSE[0]: step}
        history.add(changes)
        bounds = sorted(random.sample(UNIVERSE, 2))
        check(history.reread(), history.model, [KeyRange(*bounds), KeyRange(bounds[1])])
        check_stripes(history.persist, history.index)
    never = [what for what, times in history.events.items() if not times]
    assert history.events and not never


@pytest.mark.parametrize("at", [0, 3, -1])
def test_a_stripe_that_became_small_joins_a_neighbour(at: int) -> None:
    history = striped()
    before = stripe_keys(history)
    *removed, left = before[at]
    history.add(dict.fromkeys(removed))
    history.add({})
    after = stripe_keys(history)
    assert len(after) == len(before) - 1
    neighbour = before[at + 1] if at != -1 else before[-2]
    assert sorted([left, *neighbour]) in after
    check(history.reread(), history.model)
    check_stripes(history.persist, history.index)


def test_a_small_last_stripe_does_not_join_a_changed_neighbour() -> None:
    """The neighbour was rewritten by the same commit, and is too full."""
    history = striped()
    before = stripe_keys(history)
    *removed, left = before[-1]
    fuller = sorted([*before[-2], *map(below, before[-2][:2])])
    history.add({**dict.fromkeys(removed), **dict.fromkeys(fuller, 2)})
    history.add({})
    assert stripe_keys(history)[-2:] == [fuller, [left]]
    check(history.reread(), history.model)
    check_stripes(history.persist, history.index)


def test_a_stripe_without_keys_is_removed() -> None:
    history = striped()
    before = stripe_keys(history)
    history.add(dict.fromkeys(before[2]))
    history.add({})
    assert stripe_keys(history) == before[:2] + before[3:]
    check(history.reread(), history.model)


def test_an_index_spills_when_it_is_longer_than_the_limit() -> None:
    changes: Changes = dict.fromkeys(UNIVERSE[:3], 1)
    sizes = History(tiny_persist())
    sizes.add(changes)
    sizes.add({})
    size = len(sizes.index.incremental.serialize())
    for limit, spills in ((size, False), (size - 1, True)):
        settings = replace(TINY, max_incremental_index_bytes=limit)
        history = History(tiny_persist(settings=settings))
        history.add(changes)
        history.add({})
        assert bool(history.index.directory) == spills


def test_more_stripes_than_fit_in_a_commit_are_listed_in_an_object() -> None:
    listed = striped().commit
    assert listed is not None and listed.reference_index is not None and not listed.stripes
    few = History(tiny_persist())
    few.add(dict.fromkeys(UNIVERSE[:8], 1))
    few.add({})
    assert few.commit is not None
    assert few.commit.reference_index is None and 0 < len(few.commit.stripes) <= 2


def test_long_keys_spill_into_one_stripe_each() -> None:
    """Each entry alone is larger than a stripe should be."""
    history = History(tiny_persist())
    keys = [store_key(ContentKey.of(letter * 490)) for letter in "abc\uffff"]
    history.add(dict.fromkeys(keys, 1))
    history.add({})
    check(history.reread(), history.model)
    assert len(history.index.directory) == len(keys)


@pytest.mark.parametrize("at_once", [3, 40])
def test_no_stripe_exceeds_the_limit_with_keys_of_different_lengths(at_once: int) -> None:
    """Long and short keys are grouped, so that equal counts are not equal sizes."""
    settings = replace(TINY, max_index_segment_bytes=4096)
    history = History(tiny_persist(settings=settings))
    names = [f"{n:03}" * (160 if n % 50 < 25 else 1) for n in range(300)]
    keys = [store_key(ContentKey.of(name)) for name in names]
    Random(4).shuffle(keys)
    for start in range(0, len(keys), at_once):
        history.add(dict.fromkeys(keys[start : start + at_once], 1))
    history.add({})
    check(history.reread(), history.model)
    check_stripes(history.persist, history.index)
    ids = [stripe.segment for stripe in history.index.directory.stripes]
    segments = [segment_of(index) for index in history.persist.fetch_all(Index, ids)]
    assert max(len(segment.data) for segment in segments) <= 4096
    assert len(segments) < len(keys) / 2


def test_a_commit_keeps_its_own_operations_out_of_the_reference_index() -> None:
    history = History(tiny_persist())
    history.add(dict.fromkeys(UNIVERSE[:30], 1))
    assert not history.index.directory, "only the commit's own operations could spill"
    history.add({UNIVERSE[0]: None, UNIVERSE[40]: 2})
    assert [op[:1] for _, op in history.index.incremental.items()] == [REMOVE, ADD]
    assert len(history.index.directory) > 2
    history.add({UNIVERSE[1]: 3})
    assert sorted(op[:1] for _, op in history.index.incremental.items()) == [
        ADD,
        INCREMENTAL_ADD,
        INCREMENTAL_REMOVE,
    ]


def test_a_diff_reads_only_stripes_that_may_differ() -> None:
    persist = tiny_persist(0)
    one = History(persist)
    for start in range(0, len(UNIVERSE), 10):
        one.add(dict.fromkeys(UNIVERSE[start : start + 10], 1))
    one.add({})
    other = one.branch()
    for number in range(2, 10):
        other.add(dict.fromkeys(UNIVERSE[:4], number))
        other.add(dict.fromkeys(UNIVERSE[4:8], number))
    expected = expected_diff(one.model, other.model, ALL)
    assert len(expected) == 8
    overlay = one.index.incremental.keys + other.index.incremental.keys
    shared = one.index.directory.segment_ids & other.index.directory.segment_ids
    unread = [
        stripe.segment
        for stripe in one.index.directory.stripes
        if stripe.segment in shared and not any(stripe.first <= k <= stripe.last for k in overlay)
    ]
    assert len(unread) > 3
    persist._backend.delete_rows("", unread)
    assert found_diff(one.index, other.index, ALL) == expected
