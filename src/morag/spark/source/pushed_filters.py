"""Filters of a query that are applied while reading, so that less is read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import EqualNullSafe, EqualTo, In, IsNotNull, StringStartsWith

from morag.model.entry_columns import ALL, SEPARATOR, EntryFilter
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql.datasource import Filter

_ELEMENT: Final = re.compile(r"\.((?:[^.*]|\*.)*)")
_ESCAPED: Final = re.compile(r"\*(.)")


class Pushed(Struct, frozen=True):
    """The entries that a query reads: paths that start with `below`, with further filters."""

    below: str = ""
    selected: EntryFilter = ALL


def pushed_down(
    filters: Iterable[Filter], never_null: Collection[str]
) -> tuple[Pushed, list[Filter]]:
    """The entries to read, and the filters that Spark must still apply itself.

    `never_null` are columns without nulls: a filter on these need not check for null.
    """
    below, selected, left = "", ALL, []
    for filter in filters:
        values = values_of(filter, "content_type")
        if values is not None:
            selected = replace(selected, types=_intersection(selected.types, values))
            continue
        values = values_of(filter, "name")
        if values is not None:
            selected = replace(selected, names=_intersection(selected.names, values))
            continue
        if isinstance(filter, IsNotNull) and filter.attribute[0] in never_null:
            continue
        left.append(filter)
        if isinstance(filter, EqualTo) and (key := _key_of(filter)) is not None:
            selected = replace(selected, key=key)
        else:
            below = max(below, _below(filter), key=len)
    return Pushed(below, selected), left


def values_of(filter: Filter, column: str) -> frozenset[str] | None:
    """The values of a column that a filter accepts, if that is all it checks."""
    if not isinstance(filter, EqualTo | EqualNullSafe | In) or filter.attribute != (column,):
        return None
    values = filter.value if isinstance(filter, In) else (filter.value,)
    return frozenset(value for value in values if value is not None)


def _intersection(one: frozenset[str] | None, other: frozenset[str]) -> frozenset[str]:
    return other if one is None else one & other


def _key_of(filter: EqualTo) -> ContentKey | None:
    match filter:
        case EqualTo(("key",), [_, *_] as elements) if all(elements):
            return ContentKey(tuple(elements))
    return None


def _below(filter: Filter) -> str:
    """The common start of the paths of all keys that the filter accepts."""
    match filter:
        case EqualTo(("namespace",), str(text)) if text:
            return SEPARATOR.join((*_elements(text), ""))
        case StringStartsWith(("namespace",), text) if not text.startswith("."):
            # Only namespaces without escapes start so: their dots stand between elements.
            return text.replace(".", SEPARATOR)
    return ""


def _elements(namespace: str) -> list[str]:
    if not namespace.startswith("."):
        return namespace.split(".")
    return [_ESCAPED.sub(r"\1", element) for element in _ELEMENT.findall(namespace)]
