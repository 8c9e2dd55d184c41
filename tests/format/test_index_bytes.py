"""The heads of an index's chunks, made all together, equal those made one by one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from morag.format.index_bytes import chunk_head, chunk_heads
from morag.index.keys import store_key
from morag.model.keys import ContentKey
from tests.index.strategies import KEYS, LETTERS

# More than 127 bytes of these keys are dropped, which takes a longer number.
LONG_KEYS = st.builds(
    lambda letter, count: store_key(ContentKey.of("db", letter * count)),
    st.sampled_from(LETTERS),
    st.integers(100, 150),
)


@given(st.sets(KEYS | LONG_KEYS).map(sorted))
@example([])
@example([store_key(ContentKey.of("\uff5e"))])
def test_the_heads_of_many_keys_are_those_of_each_key(keys: list[bytes]) -> None:
    heads = chunk_heads(keys)
    assert heads[:1] == [chunk_head(None, key) for key in keys[:1]]
    assert heads[1:] == [chunk_head(previous, key) for previous, key in pairwise(keys)]
