"""Random filters: all comparisons that run without the library, mixed with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

ODD = [
    ".",
    "\x1d",
    "'",
    '"',
    "\\",
    " ",
    "-",
    "*",
    "\0",
    "\x02",
    "\x7f",
    "é",
    "\uffff",
    "\ufffd",
    "😀",
]
"""Characters that are special in filters, in keys, in their order or for the library."""
LETTERS = st.sampled_from([*"aab.b", *ODD])
TEXTS = st.text(LETTERS, max_size=4)
ELEMENTS = st.text(LETTERS, min_size=1, max_size=3)
PATHS = st.lists(ELEMENTS, min_size=1, max_size=3).map(tuple)
ORDERS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
SOME_TIMES = [
    "2024-05-01T12:00:00Z",
    "2024-05-01T12:00:00.5Z",
    "2024-05-01T12:00:00.050Z",
    "2024-05-01T12:00:00.500000000Z",
    "9999-12-31T23:59:59.999999999Z",
    # Only the library can tell whether these are times.
    "2024-05-01T14:00:00+02:00",
    "2024-05-01t12:00:00z",
    "2024-05-01T12:00:00.0000000001Z",
    "2024-05-01T11:59:60Z",
    "2024-05-01T24:00:00Z",
    "2024-02-30T12:00:00Z",
    "0000-01-01T00:00:00Z",
    "2024-05-01",
    "2024-W18-3T12:00:00Z",
    "\uff12024-05-01T12:00:00Z",
    "2024-05-01T12:00:00.\uff12Z",
]
TIMES = st.sampled_from(SOME_TIMES)
ANYWHERE = st.sampled_from(["1 / 0 == 1", "dyn(1)", "dyn(true)", "true", "false", "dyn('a') == 1"])
"""Parts that fail, have another type, or need no item."""


def literal(text: str) -> str:
    """The text as CEL writes it."""
    return (
        "'" + "".join(c if c.isalnum() and c.isascii() else f"\\U{ord(c):08x}" for c in text) + "'"
    )


LITERALS = TEXTS.map(literal)


def comparisons_of(fields: Sequence[str], texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Comparisons of fields that are texts."""
    field, text = st.sampled_from(fields), texts.map(literal)
    return st.one_of(
        st.builds("{} == {}".format, field, text),
        st.builds("{} == {}".format, text, field),
        st.builds("{} != {}".format, field, text),
        st.builds(
            "{}.{}({})".format, field, st.sampled_from(["startsWith", "endsWith", "contains"]), text
        ),
        st.builds("{} in [{}]".format, field, st.lists(text, max_size=3).map(", ".join)),
        st.builds("size({}) {} {}".format, field, ORDERS, st.integers(-1, 9)),
        # These need the library.
        st.builds("{} < {}".format, field, text),
        st.builds("{} == {}".format, field, field),
        st.builds("{} in [{}, 1]".format, field, text),
        st.builds("{}.matches('^a')".format, field),
        st.builds("{} + 'a' == {}".format, field, text),
        st.builds("({0} == {1} ? {0} != {2} : false)".format, field, text, text),
    )


def sizes_of(fields: Sequence[str]) -> st.SearchStrategy[str]:
    """Comparisons of fields that are lists of texts."""
    field, number = st.sampled_from(fields), st.integers(-1, 4)
    return st.one_of(
        st.builds("size({}) {} {}".format, field, ORDERS, number),
        st.builds("{}.size() {} {}".format, field, ORDERS, number),
        # These need the library.
        st.builds("size({}) == {}u".format, field, st.integers(0, 4)),
        st.builds("{}[{}] == 'a'".format, field, st.integers(0, 2)),
        st.builds("'a' in {}".format, field),
        st.builds("{}.exists(e, e == 'a')".format, field),
    )


def times_of(fields: Sequence[str]) -> st.SearchStrategy[str]:
    field, text = st.sampled_from(fields), TIMES.map(literal)
    return st.one_of(
        st.builds("{} {} timestamp({})".format, field, ORDERS, text),
        st.builds("timestamp({}) {} timestamp({})".format, field, ORDERS, text),
        st.builds("timestamp({}) {} {}".format, text, ORDERS, field),
    )


def filters_of(comparisons: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Comparisons, negated and joined."""
    return st.recursive(
        comparisons | ANYWHERE,
        lambda part: st.one_of(
            st.builds("({} && {})".format, part, part),
            st.builds("({} || {})".format, part, part),
            st.builds("({} && {} && {})".format, part, part, part),
            part.map("!({})".format),
        ),
        max_leaves=6,
    )


def key_filters(variable: str) -> st.SearchStrategy[str]:
    texts = [f"{variable}.{field}" for field in ("key", "encodedKey", "namespace", "name")]
    lists = [f"{variable}.{field}" for field in ("keyElements", "namespaceElements")]
    return filters_of(comparisons_of(texts, TEXTS) | sizes_of(lists))
