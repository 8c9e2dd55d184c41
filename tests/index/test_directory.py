"""The stripes of a reference index: lookups, replacement, decoding and damage."""

from __future__ import annotations

from bisect import bisect_left

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morag.backend.memory import MemoryBackend
from morag.config import Settings
from morag.errors import RepositoryCorrupt
from morag.format import object_codec as codec
from morag.format.ids import NO_ANCESTOR
from morag.format.objects import Commit, Index, IndexSegments, Memo, Stripe, Unique
from morag.format.records import ObjId
from morag.index.directory import Directory, Replacement, directory_of
from morag.index.keys import text_key
from morag.index.segment import Segment
from morag.persist.cache import ObjectCache
from morag.persist.persist import Persist
from tests.index.strategies import KEYS, POOL, op_of


def stripe_of(first: bytes, last: bytes) -> Stripe:
    return Stripe(first, last, Index(first + last).id)


@st.composite
def directories(draw: st.DrawFn) -> Directory:
    keys = sorted(draw(st.sets(st.sampled_from(POOL), min_size=2, max_size=20)))
    stripes = []
    while len(keys) > 1:
        wide = draw(st.booleans())
        stripes.append(stripe_of(keys[0], keys[1] if wide else keys[0]))
        del keys[: 1 + wide]
    return Directory(stripes)


@given(directories(), KEYS)
def test_only_one_stripe_can_hold_a_key(directory: Directory, key: bytes) -> None:
    for probe in (key, directory.stripes[0].first, directory.stripes[-1].last):
        spanning = [s for s in directory.stripes if s.first <= probe <= s.last]
        held = directory.holding(probe)
        assert spanning == ([] if held is None else [held])


@given(directories(), st.lists(KEYS), st.lists(st.sampled_from(POOL)))
def test_the_stripes_of_many_keys_are_those_of_each(
    directory: Directory, some: list[bytes], more: list[bytes]
) -> None:
    keys = sorted([*some, *more])
    found = [(stripe, key) for stripe, held in directory.holding_all(keys) for key in held]
    assert found == [(stripe, key) for key in keys if (stripe := directory.holding(key))]


@given(directories(), KEYS)
def test_a_key_belongs_to_the_same_stripe_as_in_nessie(directory: Directory, key: bytes) -> None:
    bounds = [bound for s in directory.stripes for bound in (s.first, s.last)]
    last = len(directory) - 1
    assert directory.position(key) == min(bisect_left(bounds, key) // 2, last)
    for at, stripe in enumerate(directory.stripes):
        assert directory.position(stripe.first) == directory.position(stripe.last) == at


@given(directories(), st.data())
def test_replacing_stripes_equals_building_the_directory_again(
    directory: Directory, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(directory)), min_size=2, max_size=4)))
    replacements: list[Replacement] = []
    expected = list(directory.stripes)
    for low, high in zip(cuts[::2], cuts[1::2], strict=False):
        count = data.draw(st.integers(0, 3))
        new = [stripe_of(bytes([low, n]) + b"\0\0", b"\0\0") for n in range(count)]
        replacements.append((low, high, [(stripe, None) for stripe in new]))
    for low, high, run in reversed(replacements):
        expected[low:high] = [stripe for stripe, _ in run]
    after = directory.replaced(replacements)
    assert list(after.stripes) == expected
    assert list(after.lasts) == [stripe.last for stripe in expected]
    assert after.as_object() == Directory(expected).as_object()


@given(directories())
def test_a_stripe_list_survives_encoding_and_decoding(directory: Directory) -> None:
    assert codec.decode_stripes(directory.as_object().encoded) == list(directory.stripes)


def persist_with(obj: Index | IndexSegments | Unique) -> Persist:
    persist = Persist(MemoryBackend(), ObjectCache(1 << 24), Settings(), lambda: 0)
    persist.store([obj])
    return persist


def commit_on(reference_index: ObjId) -> Commit:
    return Commit(
        id=ObjId(bytes(32)),
        created_micros=0,
        seq=1,
        tail=(NO_ANCESTOR,),
        reference_index=reference_index,
        incremental=b"\x02\x00",
    )


def test_a_single_segment_may_be_the_whole_reference_index() -> None:
    first, last = text_key("a"), text_key("b")
    index = Index(Segment.build([(first, op_of(1)), (last, op_of(2))]).serialize())
    found = directory_of(persist_with(index), commit_on(index.id))
    assert found.stripes == (Stripe(first, last, index.id),)


def test_an_empty_segment_makes_no_stripe() -> None:
    index = Index(b"\x02\x00")
    assert not directory_of(persist_with(index), commit_on(index.id)).stripes


def test_a_stripe_list_is_decoded_once() -> None:
    segments = Directory([stripe_of(b"a\0\0", b"b\0\0")]).as_object()
    persist, commit = persist_with(segments), commit_on(segments.id)
    assert directory_of(persist, commit) is directory_of(persist, commit)


@pytest.mark.parametrize("encoded", [b"\x0a\x05", b"\x12\x00", b"\x08\x01", b"\x0a\x02\x08\x01"])
def test_a_damaged_stripe_list_is_reported(encoded: bytes) -> None:
    segments = IndexSegments(ObjId(b"\x01" * 32), encoded)
    with pytest.raises(RepositoryCorrupt, match="01" * 32):
        directory_of(persist_with(segments), commit_on(segments.id))


@pytest.mark.parametrize("bounds", ["ba", "acbd", "abbc", "cdab"])
@pytest.mark.parametrize("is_inlined", [False, True])
def test_stripes_out_of_order_are_reported(bounds: str, is_inlined: bool) -> None:
    """A diff over them would never end."""
    keys = [text_key(letter) for letter in bounds]
    stripes = [stripe_of(first, last) for first, last in zip(keys[::2], keys[1::2], strict=True)]
    segments = IndexSegments(
        ObjId(b"\x01" * 32), b"".join(codec.encoded_stripe(each) for each in stripes)
    )
    commit = commit_on(segments.id)
    if is_inlined:
        commit = msgspec.structs.replace(
            commit, id=segments.id, reference_index=None, stripes=tuple(stripes)
        )
    with pytest.raises(RepositoryCorrupt, match="01" * 32):
        directory_of(persist_with(segments), commit)


class RacedMemo(Memo):
    """Holds stripes at the first read, and the directory of another thread afterwards."""

    def __init__(self, stripes: list[Stripe]) -> None:
        self._forms: list[object] = [Directory(stripes), stripes]

    @property
    def form(self) -> object:
        return self._forms.pop() if len(self._forms) > 1 else self._forms[0]

    @form.setter
    def form(self, form: object) -> None:
        self._forms = [form]


def test_two_threads_may_decode_a_stripe_list_at_once() -> None:
    stripes = [stripe_of(text_key("a"), text_key("b"))]
    segments = Directory(stripes).as_object()
    raced = IndexSegments(segments.id, segments.encoded, RacedMemo(stripes))
    assert directory_of(persist_with(raced), commit_on(raced.id)).stripes == tuple(stripes)


def test_a_reference_index_must_be_an_index() -> None:
    unique = Unique("content-id", bytes(16))
    with pytest.raises(RepositoryCorrupt, match="not a reference index"):
        directory_of(persist_with(unique), commit_on(unique.id))
