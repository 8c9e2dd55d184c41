"""The object cache: bounded in bytes, and the right ones leave first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from morag.backend.base import ObjId
from morag.persist.cache import ObjectCache, weight_bytes
from morag.persist.codec import encode
from morag.persist.ids import NO_ANCESTOR
from morag.persist.objects import Commit, Index, StringObj, Value


def value(number: int, size: int = 10) -> Value:
    return Value(f"{number}", 1, bytes(size))


def put(cache: ObjectCache, obj: Value | Index | Commit | StringObj) -> None:
    cache.put(obj, len(encode(obj).data))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5_000)), max_size=60))
def test_it_never_holds_more_bytes_than_it_may(puts: list[tuple[int, int]]) -> None:
    cache = ObjectCache(10_000)
    for number, size in puts:
        put(cache, value(number, size))
        assert cache.bytes <= 10_000
    held = [v for n, s in set(puts) if (v := cache.get(value(n, s).id)) is not None]
    assert cache.bytes == sum(weight_bytes(v, len(encode(v).data)) for v in held)


def test_what_was_used_last_stays_longest() -> None:
    cache = ObjectCache(3 * weight_bytes(value(1), len(encode(value(1)).data)))
    for number in (1, 2, 3):
        put(cache, value(number))
    assert cache.get(value(1).id) == value(1)
    put(cache, value(4))
    assert cache.get(value(2).id) is None
    assert cache.get(value(1).id) == value(1)


def test_what_was_demoted_leaves_first() -> None:
    cache = ObjectCache(3 * weight_bytes(value(1), len(encode(value(1)).data)))
    for number in (1, 2, 3):
        put(cache, value(number))
    cache.demote([value(3).id, ObjId(b"never there")])
    put(cache, value(4))
    assert cache.get(value(3).id) is None
    assert cache.get(value(1).id) == value(1)


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache = ObjectCache(1_000)
    put(cache, value(1, 2_000))
    assert (len(cache), cache.bytes) == (0, 0)


def test_everything_that_clients_can_make_large_counts() -> None:
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
