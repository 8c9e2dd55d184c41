"""Differences of two indexes with any stripes, and the length of the steps that find them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.format.index_entries import INCREMENTAL_ADD, INCREMENTAL_REMOVE, exists, value_of
from morag.format.objects import Index, Stripe
from morag.index.diff import diff, diff_with_pauses
from morag.index.directory import Directory
from morag.index.keys import ALL, KeyRange, store_key
from morag.index.layered import CommitIndex
from morag.index.segment import EMPTY, Segment
from morag.model.keys import ContentKey
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from tests.backend.counting import CountingBackend
from tests.index.strategies import POOL, op_of

KEYS = sorted(POOL[:60])
STATES = st.dictionaries(st.sampled_from(KEYS), st.integers(1, 2).map(op_of))
CUTS = st.sets(st.integers(1, len(KEYS)))
OVERLAYS = st.dictionaries(
    st.sampled_from(KEYS),
    st.builds(op_of, st.integers(1, 2), st.sampled_from([INCREMENTAL_ADD, INCREMENTAL_REMOVE])),
)


def striped(
    persist: Persist,
    state: dict[bytes, bytes],
    cuts: set[int],
    overlay: dict[bytes, bytes] | None = None,
) -> CommitIndex:
    """An index with entries in stripes, split at the given positions, and others over them."""
    entries, stripes = sorted(state.items()), []
    for low, high in pairwise([0, *sorted(cut for cut in cuts if cut < len(state)), len(state)]):
        if low < high:
            segment = Segment.build(entries[low:high])
            index = Index(segment.serialize(), segment)
            persist.store([index])
            stripes.append(Stripe(segment.keys[0], segment.keys[-1], index.id))
    incremental = Segment.build(sorted(overlay.items())) if overlay else EMPTY
    return CommitIndex(persist, incremental, Directory(stripes))


@given(STATES, STATES, CUTS, CUTS, st.sampled_from(KEYS), st.sampled_from(KEYS))
def test_a_diff_equals_that_of_two_dicts_for_any_stripes(
    one: dict[bytes, bytes],
    other: dict[bytes, bytes],
    cuts: set[int],
    other_cuts: set[int],
    lower: bytes,
    upper: bytes,
) -> None:
    persist = Persist(MemoryBackend(), ObjectCache(1 << 20), Settings(), lambda: 0)
    for range in (ALL, KeyRange(lower, upper)):
        assert list(
            diff(striped(persist, one, cuts), striped(persist, other, other_cuts), range)
        ) == [
            (key, one.get(key), other.get(key))
            for key in sorted(one.keys() | other.keys())
            if one.get(key) != other.get(key) and key in range
        ]


@given(STATES, OVERLAYS, CUTS, st.sampled_from(KEYS), st.sampled_from(KEYS))
def test_overlaid_entries_are_listed_and_found_as_in_a_dict(
    state: dict[bytes, bytes],
    overlay: dict[bytes, bytes],
    cuts: set[int],
    lower: bytes,
    upper: bytes,
) -> None:
    persist = Persist(MemoryBackend(), ObjectCache(1 << 20), Settings(), lambda: 0)
    index = striped(persist, state, cuts, overlay)
    expected = {key: op for key, op in sorted({**state, **overlay}.items()) if exists(op)}
    for range in (ALL, KeyRange(lower, upper)):
        assert list(index.items(range)) == [
            (key, op) for key, op in expected.items() if key in range
        ]
    asked = [*reversed(KEYS), *KEYS[:3]]
    found = index.get_all(asked)
    assert found == {key: op for key in asked if (op := index.get(key)) is not None}
    assert found == {key: expected[key] for key in asked if key in expected}


@given(STATES, STATES, OVERLAYS, OVERLAYS, CUTS, CUTS, st.sampled_from(KEYS))
def test_a_diff_sees_what_overlays_the_stripes_of_both_sides(
    one: dict[bytes, bytes],
    other: dict[bytes, bytes],
    overlay: dict[bytes, bytes],
    other_overlay: dict[bytes, bytes],
    cuts: set[int],
    other_cuts: set[int],
    lower: bytes,
) -> None:
    persist = Persist(MemoryBackend(), ObjectCache(1 << 20), Settings(), lambda: 0)
    left = striped(persist, one, cuts, overlay)
    right = striped(persist, other, other_cuts, other_overlay)

    def values(entries: dict[bytes, bytes]) -> dict[bytes, bytes]:
        return {key: value_of(op) for key, op in entries.items() if exists(op)}

    were, are = values({**one, **overlay}), values({**other, **other_overlay})
    for range in (ALL, KeyRange(lower)):
        found = [
            (key, *[None if op is None else value_of(op) for op in ops])
            for key, *ops in diff(left, right, range)
        ]
        assert found == [
            (key, were.get(key), are.get(key))
            for key in sorted(were.keys() | are.keys())
            if were.get(key) != are.get(key) and key in range
        ]


def test_a_few_entries_over_an_updated_stripe_are_compared() -> None:
    persist = Persist(MemoryBackend(), ObjectCache(1 << 20), Settings(), lambda: 0)
    state = dict.fromkeys(KEYS, op_of(1))
    updated, removed, put_back = KEYS[7], KEYS[20], KEYS[40]
    changed = {**state, updated: op_of(2), put_back: op_of(2)}
    overlay = {removed: op_of(1, INCREMENTAL_REMOVE), put_back: op_of(1, INCREMENTAL_ADD)}
    one, other = striped(persist, state, set()), striped(persist, changed, set(), overlay)
    expected = [(updated, op_of(1), op_of(2)), (removed, op_of(1), None)]
    assert list(diff(one, other)) == expected
    assert list(diff(one, other, KeyRange(removed))) == expected[1:]


def test_equal_indexes_with_other_stripes_are_compared_in_short_steps() -> None:
    """Every stripe overlaps two of the other side, so no stripe can be compared alone."""
    backend = CountingBackend(MemoryBackend())
    persist = Persist(backend, ObjectCache(1 << 20), Settings(), lambda: 0)
    state = {store_key(ContentKey.of(f"{n:05}")): op_of(1) for n in range(4_000)}
    one = striped(persist, state, set(range(0, 4_000, 10)))
    other = striped(persist, state, set(range(5, 4_000, 10)))
    steps, most, before = 0, 0, 0
    for found in diff_with_pauses(one, other):
        assert found is None
        steps, most = steps + 1, max(most, backend.rows["read_rows"] - before)
        before = backend.rows["read_rows"]
    assert steps > 50
    assert most < 200  # Of 801 stripes.
