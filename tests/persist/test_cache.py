"""The object cache: its limit in bytes, and the order of eviction."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from morag.format.ids import NO_ANCESTOR
from morag.format.object_codec import encode
from morag.format.objects import Commit, Index, StringObj, Value
from morag.format.records import ObjId
from morag.persist.cache import ObjectCache, weight_bytes


def value(number: int, size: int = 10) -> Value:
    return Value(f"{number}", 1, bytes(size))


def put(cache: ObjectCache, obj: Value | Index | Commit | StringObj) -> None:
    cache.put(obj, len(encode(obj).data))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5_000)), max_size=60))
def test_the_cache_never_exceeds_its_limit(puts: list[tuple[int, int]]) -> None:
    cache = ObjectCache(10_000)
    for number, size in puts:
        put(cache, value(number, size))
        assert cache.bytes <= 10_000
    held = [v for n, s in set(puts) if (v := cache.get(value(n, s).id)) is not None]
    assert cache.bytes == sum(weight_bytes(v, len(encode(v).data)) for v in held)


def test_the_last_used_object_is_evicted_last() -> None:
    cache = ObjectCache(3 * weight_bytes(value(1), len(encode(value(1)).data)))
    for number in (1, 2, 3):
        put(cache, value(number))
    assert cache.get(value(1).id) == value(1)
    put(cache, value(4))
    assert cache.get(value(2).id) is None
    assert cache.get(value(1).id) == value(1)


def test_demoted_objects_are_evicted_first() -> None:
    cache = ObjectCache(3 * weight_bytes(value(1), len(encode(value(1)).data)))
    for number in (1, 2, 3):
        put(cache, value(number))
    cache.demote([value(3).id, ObjId(b"never there")])
    put(cache, value(4))
    assert cache.get(value(3).id) is None
    assert cache.get(value(1).id) == value(1)


def test_an_object_larger_than_the_cache_is_not_cached() -> None:
    cache = ObjectCache(1_000)
    put(cache, value(1, 2_000))
    assert (len(cache), cache.bytes) == (0, 0)


def test_the_weight_counts_every_part_that_clients_can_make_large() -> None:
    text = "x" * 1_000_000
    commit = Commit(
        id=NO_ANCESTOR,
        created_micros=1,
        seq=1,
        tail=(NO_ANCESTOR,),
        message=text,
        headers=(("author", (text,)),),
        incremental=b"\x02\x00",
    )
    for obj, least in ((commit, 2_000_000), (StringObj("text/plain", text.encode()), 1_000_000)):
        cache = ObjectCache(10_000_000)
        put(cache, obj)
        assert cache.bytes >= least


def test_a_form_counts_as_part_of_its_object_and_is_evicted_with_it() -> None:
    weight = weight_bytes(value(1), len(encode(value(1)).data))
    cache = ObjectCache(3 * weight)
    for number in (1, 2):
        put(cache, value(number))
    cache.put_form("json", value(1).id, b"{1}", weight)
    assert cache.form("json", value(1).id) == b"{1}"
    assert cache.form("other", value(1).id) is None
    assert cache.bytes == 3 * weight
    cache.put_form("json", value(2).id, b"{2}", weight)
    assert (cache.get(value(1).id), cache.form("json", value(1).id)) == (None, None)
    assert (cache.get(value(2).id), cache.form("json", value(2).id)) == (value(2), b"{2}")
    assert cache.bytes == 2 * weight


def test_a_form_is_kept_once_and_only_for_a_cached_object() -> None:
    cache = ObjectCache(10_000)
    cache.put_form("json", value(1).id, b"{}", 100)
    assert (cache.form("json", value(1).id), cache.bytes) == (None, 0)
    put(cache, value(1))
    before = cache.bytes
    cache.put_form("json", value(1).id, b"{}", 100)
    cache.put_form("json", value(1).id, b"{}", 100)
    assert cache.bytes == before + 100
    cache.put_form("large", value(1).id, b"{}", 10_000)
    assert (cache.form("large", value(1).id), cache.bytes) == (None, before + 100)


def test_forms_of_several_objects_are_found_together_and_count_as_used() -> None:
    weight = weight_bytes(value(1), len(encode(value(1)).data))
    cache = ObjectCache(3 * weight + 30)
    for number in (1, 2, 3):
        put(cache, value(number))
    for number in (1, 2):
        cache.put_form("json", value(number).id, b"{%d}" % number, 10)
    ids = [value(number).id for number in (2, 1)]
    assert cache.forms("json", ids) == [b"{2}", b"{1}"]
    assert cache.forms("json", [*ids, value(3).id]) is None
    assert cache.forms("other", ids) is None
    assert cache.forms("json", []) == []
    put(cache, value(4))
    assert cache.get(value(3).id) is None
    assert cache.forms("json", ids) == [b"{2}", b"{1}"]


def test_an_object_that_is_put_again_starts_without_forms() -> None:
    cache = ObjectCache(10_000)
    put(cache, value(1))
    before = cache.bytes
    cache.put_form("json", value(1).id, b"{}", 100)
    put(cache, value(1))
    assert (cache.form("json", value(1).id), cache.bytes) == (None, before)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20), st.integers(0, 5_000))),
)
def test_the_cache_never_exceeds_its_limit_with_forms(
    forms: list[tuple[str, int, int]],
) -> None:
    cache = ObjectCache(10_000)
    for name, number, size in forms:
        put(cache, value(number))
        cache.put_form(name, value(number).id, bytes(size), size)
        assert cache.bytes <= 10_000
        assert sum(len(kept) for held in cache._forms.values() for kept in held.values()) <= 10_000
