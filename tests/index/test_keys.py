"""Store keys: round trips, the order of Nessie, and ranges."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from morag.errors import BadRequest
from morag.index.keys import (
    CONTENTS,
    KeyRange,
    content_key,
    contents_range,
    key_text,
    store_key,
    text_key,
    text_range,
)
from morag.model.keys import ContentKey
from tests.index.strategies import CONTENT_KEYS

ALLOWED = st.characters(exclude_categories=["Cs"], min_codepoint=0x20, exclude_characters="\x7f")
ANY_ELEMENT = st.text(ALLOWED, min_size=1, max_size=6)
ANY_KEY = st.lists(ANY_ELEMENT, min_size=1, max_size=4).map(lambda e: ContentKey(tuple(e)))
NAMES = st.text(ALLOWED, max_size=6)


def java_order(text: str) -> bytes:
    return text.encode("utf-16-be")


def raw(key: ContentKey) -> str:
    """The store key as Nessie writes it."""
    return "M\0" + "\1".join(key.elements) + "\0C"


def holds(range: KeyRange, key: bytes) -> bool:
    return range.lower <= key and (range.upper is None or key < range.upper)


@given(ANY_KEY)
def test_a_content_key_is_read_from_its_store_key(key: ContentKey) -> None:
    assert content_key(store_key(key)) == key
    assert key_text(store_key(key)) == raw(key)


@given(NAMES)
def test_a_name_is_read_from_its_key(name: str) -> None:
    assert key_text(text_key(name)) == name


@given(st.lists(st.one_of(ANY_KEY, CONTENT_KEYS)))
@example([ContentKey.of("\U0001f600"), ContentKey.of("\uff5e"), ContentKey.of("\ue000")])
@example([ContentKey.of("a", "b"), ContentKey.of("a"), ContentKey.of("a ")])
def test_keys_sort_by_utf_16_units(keys: list[ContentKey]) -> None:
    by_bytes = sorted(keys, key=store_key)
    assert by_bytes == sorted(keys, key=lambda key: java_order(raw(key)))
    assert by_bytes == sorted(keys)


@given(st.lists(NAMES))
def test_names_sort_by_utf_16_units(names: list[str]) -> None:
    assert sorted(names, key=text_key) == sorted(names, key=java_order)


@pytest.mark.parametrize(
    "text", ["refs/heads/main", "repo\0description", "configs\0GARBAGE_COLLECTOR", "M\0a\0D", "M"]
)
def test_other_store_keys_are_not_content_keys(text: str) -> None:
    assert content_key(text_key(text)) is None


def test_a_name_that_is_too_long_is_refused() -> None:
    text_key("n" * 500)
    with pytest.raises(BadRequest, match="500"):
        text_key("n" * 501)


@given(ANY_KEY, ANY_KEY, ANY_KEY)
def test_bounds_are_inclusive(key: ContentKey, low: ContentKey, high: ContentKey) -> None:
    found = contents_range(min_key=low, max_key=high)
    assert holds(found, store_key(key)) == (not key < low and not high < key)
    assert holds(contents_range(keys=[low, high]), store_key(low))
    assert holds(contents_range(keys=[low, high]), store_key(high))


@given(CONTENT_KEYS, CONTENT_KEYS)
def test_a_prefix_range_holds_the_prefix_and_its_children(
    key: ContentKey, prefix: ContentKey
) -> None:
    child = ContentKey(prefix.elements + key.elements)
    for candidate in (key, prefix, child, prefix.parent):
        inside = holds(contents_range(prefix=prefix), store_key(candidate))
        assert inside == candidate.starts_with(prefix)


def test_a_prefix_can_be_combined_with_bounds_in_the_kernel() -> None:
    """Only the API refuses the combination."""
    prefix, low, high = ContentKey.of("a"), ContentKey.of("a", "c"), ContentKey.of("b")
    found = contents_range(prefix=prefix, min_key=low)
    assert [holds(found, store_key(k)) for k in (prefix, low, high)] == [False, True, False]
    found = contents_range(prefix=prefix, keys=[prefix, high])
    assert [holds(found, store_key(k)) for k in (prefix, low, high)] == [True, True, False]


@given(st.builds(KeyRange, st.binary(), st.none() | st.binary()), st.binary())
def test_a_range_includes_its_lower_and_excludes_its_upper_end(range: KeyRange, key: bytes) -> None:
    assert (key in range) == holds(range, key)
    if range.upper is None or range.lower < range.upper:
        assert range.lower in range
    assert range.upper is None or range.upper not in range


@given(NAMES, NAMES, NAMES, NAMES)
def test_names_are_found_by_prefix_and_bounds(name: str, prefix: str, low: str, high: str) -> None:
    inside = name.startswith(prefix) and java_order(low) <= java_order(name) <= java_order(high)
    assert holds(text_range(prefix, low, high), text_key(name)) == inside
    assert holds(text_range(prefix), text_key(prefix + name))


@given(ANY_KEY, ANY_KEY)
def test_the_rest_of_a_range_starts_after_a_key(one: ContentKey, other: ContentKey) -> None:
    assert holds(CONTENTS.after(store_key(one)), store_key(other)) == (one < other)
