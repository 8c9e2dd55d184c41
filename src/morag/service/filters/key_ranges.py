"""Finds the range of keys that can pass a filter, so that a listing reads no others.

Outside the range the filter is false for every key; it does not fail there either. The range may
have keys that do not pass, because the filter still judges each of its keys.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from morag.index.keys import CONTENTS, KeyRange, paths_between, paths_from
from morag.model.entry_columns import SEPARATOR
from morag.service.filters.comparisons import TextComparison
from morag.service.filters.syntax import Call, chain
from morag.service.filters.values import REPLACEMENT
from morag.service.filters.variables import DIFFS, DOT_IN_ELEMENT, ENTRIES

if TYPE_CHECKING:
    from morag.service.filters.comparisons import Comparisons
    from morag.service.filters.syntax import Expression

_WITH_KEYS: Final = ENTRIES.keys() | DIFFS.keys()
_KEY_FIELDS: Final = frozenset({"key", "encodedKey", "namespace"})
_BOUNDING: Final = frozenset({"_==_", "@in", "startsWith"})


def key_range(tree: Expression, comparisons: Comparisons) -> KeyRange:
    match tree:
        case Call(function="_&&_"):
            parts = (key_range(part, comparisons) for part in chain(tree))
            return reduce(KeyRange.within, parts)
        case Call(function="_||_"):
            parts = (key_range(part, comparisons) for part in chain(tree))
            return reduce(KeyRange.around, parts)
    compared = comparisons.read(tree)
    if not isinstance(compared, TextComparison) or compared.operator not in _BOUNDING:
        return CONTENTS
    variable, *fields = compared.field
    if variable not in _WITH_KEYS or len(fields) != 1 or fields[0] not in _KEY_FIELDS:
        return CONTENTS
    ranges = [_range(fields[0], compared.operator, text) for text in compared.texts]
    return reduce(KeyRange.around, ranges) if ranges else CONTENTS


def _range(field: str, operator: str, text: str) -> KeyRange:
    """The keys whose field equals the text, or starts with it."""
    # A replaced character may have been any of several.
    text, replaced, _ = text.partition(REPLACEMENT)
    first = text.replace(".", SEPARATOR)
    # In `key`, each dot may also belong to an element. Elsewhere, a key of another program might
    # have the character that stands for such a dot.
    last = text if field == "key" else first.replace(DOT_IN_ELEMENT, ".")
    if operator == "startsWith" or replaced:
        return paths_from(first, last)
    if field == "namespace":
        # The name follows. Keys of the empty namespace consist of nothing but a name.
        return paths_from(first + SEPARATOR, last + SEPARATOR) if text else CONTENTS
    return paths_between(first, last)
