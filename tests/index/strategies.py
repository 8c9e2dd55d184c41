"""Strategies for the keys and entries of indexes."""

from __future__ import annotations

from hypothesis import strategies as st

from morag.format.index_entries import NONE, make_op
from morag.format.records import ObjId
from morag.index.keys import store_key
from morag.model.keys import ContentKey

# Letters from each group that Java, code points and UTF-8 sort differently.
LETTERS = "ab.Zzß\u07ff\ud7ff\ue000\uff5e\uffff\U00010000\U0001f600\U0010ffff"
ELEMENTS = st.text(LETTERS, min_size=1, max_size=4)
CONTENT_KEYS = st.lists(ELEMENTS, min_size=1, max_size=3).map(lambda e: ContentKey(tuple(e)))
KEYS = CONTENT_KEYS.map(store_key)
POOL = [store_key(ContentKey.of(a, b)) for a in LETTERS for b in LETTERS]
"""Keys that Hypothesis generates quickly, for tests that need many."""


def op_of(number: int, action: bytes = NONE) -> bytes:
    """An entry whose parts all depend on the number; 0 has neither value nor content id."""
    if number == 0:
        return make_op(action, 0, None, bytes(16))
    # The value is full of bytes that look like the end of a key.
    value = number.to_bytes(4, "big") + b"\0A" * 14
    return make_op(action, number % 128, ObjId(value), number.to_bytes(16, "big"))


OPS = st.integers(0, 1000).map(op_of)
ENTRIES = st.dictionaries(KEYS, OPS, max_size=30)
