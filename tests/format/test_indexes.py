"""Recorded indexes: spliced, built or grown by Morag, they have the same bytes."""

from __future__ import annotations

from itertools import pairwise

from morag.config import Settings
from morag.format.index_entries import NONE
from morag.format.objects import Commit, Index
from morag.index.directory import directory_of, segment_of
from morag.index.layered import index_of
from morag.index.segment import Segment
from morag.index.spill import grown_index
from tests.format import golden

NEVER_SPILLS = Settings(max_incremental_index_bytes=1 << 30)


def stored_indexes() -> list[bytes]:
    segments = [index.encoded for index in golden.of_kind(Index).values()]
    return segments + [commit.incremental for commit in golden.of_kind(Commit).values()]


def test_a_decoded_index_serializes_to_the_same_bytes() -> None:
    for data in stored_indexes():
        assert Segment.decode(data).serialize() == data


def test_an_index_built_from_its_entries_has_the_same_bytes() -> None:
    for data in stored_indexes():
        segment = Segment.decode(data)
        assert Segment.build(segment.items()).serialize() == data


def test_an_index_can_be_grown_entry_by_entry_in_any_order() -> None:
    for data in stored_indexes():
        entries = sorted(Segment.decode(data).items(), key=lambda entry: entry[1][::-1])
        segment = Segment.build([])
        for entry in entries:
            segment = segment.merged(Segment.build([entry]))
        assert segment.serialize() == data


def test_the_keys_of_an_index_are_ascending() -> None:
    for data in stored_indexes():
        keys = Segment.decode(data).keys
        assert all(low < high for low, high in pairwise(keys))


def test_index_objects_hold_only_existing_entries() -> None:
    for index in golden.of_kind(Index).values():
        assert {op[:1] for _, op in segment_of(index).items()} == {NONE}


def test_a_stripe_spans_exactly_the_keys_of_its_segment() -> None:
    persist = golden.store(Settings())
    spanned = 0
    for commit in golden.of_kind(Commit).values():
        for stripe in directory_of(persist, commit).stripes:
            keys = segment_of(persist.fetch(Index, stripe.segment)).keys
            assert (stripe.first, stripe.last) == (keys[0], keys[-1])
            spanned += 1
    assert spanned > 1000


def test_an_index_grows_to_the_bytes_of_nessie_while_nothing_spills() -> None:
    persist = golden.store(NEVER_SPILLS)
    grown, spilled = 0, 0
    for commit in golden.of_kind(Commit).values():
        parent = golden.parent_of(commit)
        inherited = (parent.reference_index, parent.stripes) if parent else (None, ())
        refers = (commit.reference_index, commit.stripes)
        operations = list(index_of(persist, commit).operations())
        new = grown_index(persist, index_of(persist, parent), inherited, operations)
        assert not new.objects
        assert (new.reference_index, new.stripes) == inherited
        if len(new.incremental) > 1300:
            # Nessie spilled here, and kept the commit's own operations.
            spilled += 1
            assert Segment.build(operations).serialize() == commit.incremental
        else:
            grown += 1
            assert (new.incremental, inherited) == (commit.incremental, refers)
    assert (grown, spilled) == (319, 17)


def test_a_grown_index_has_the_entries_of_nessie_for_all_sizes() -> None:
    for settings in (
        NEVER_SPILLS,
        Settings(),
        Settings(
            max_incremental_index_bytes=400, min_index_segment_bytes=300, max_inlined_stripes=2
        ),
    ):
        persist = golden.store(settings)
        for commit in golden.of_kind(Commit).values():
            parent = golden.parent_of(commit)
            inherited = (parent.reference_index, parent.stripes) if parent else (None, ())
            expected = index_of(persist, commit)
            grown = grown_index(
                persist, index_of(persist, parent), inherited, list(expected.operations())
            )
            persist.store(grown.objects)
            assert [(key, op[1:]) for key, op in grown.index.items()] == [
                (key, op[1:]) for key, op in expected.items()
            ]
            assert list(grown.index.operations()) == list(expected.operations())
