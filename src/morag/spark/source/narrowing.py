"""Filters of a query, as far as they save reading."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql.datasource import EqualNullSafe, EqualTo, In, IsNotNull, StringStartsWith

from morag.model.keys import ContentKey
from morag.spark.source.batches import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql.datasource import Filter

_ELEMENT: Final = re.compile(r"\.((?:[^.*]|\*.)*)")
_ESCAPED: Final = re.compile(r"\*(.)")


class Wanted(Struct, frozen=True):
    """`below` is how the paths of all wanted keys start. None wants all types, or all names."""

    below: str = ""
    key: ContentKey | None = None
    types: frozenset[str] | None = None
    names: frozenset[str] | None = None

    def wants(self, path: str, type: str) -> bool:
        return (self.types is None or type in self.types) and (
            self.names is None or path.rpartition(SEPARATOR)[2] in self.names
        )

    @property
    def wants_all(self) -> bool:
        return self.types is None and self.names is None


def narrowed(filters: Iterable[Filter], whole: Collection[str]) -> tuple[Wanted, list[Filter]]:
    """What is wanted, and the filters that Spark still has to apply itself.

    `whole` are the columns that are never null.
    """
    wanted, left = Wanted(), []
    for filter in filters:
        values = values_of(filter, "content_type")
        if values is not None:
            wanted = replace(wanted, types=_both(wanted.types, values))
            continue
        values = values_of(filter, "name")
        if values is not None:
            wanted = replace(wanted, names=_both(wanted.names, values))
            continue
        if isinstance(filter, IsNotNull) and filter.attribute[0] in whole:
            continue
        left.append(filter)
        wanted = _narrower(wanted, filter)
    return wanted, left


def values_of(filter: Filter, column: str) -> frozenset[str] | None:
    """The only values of a column that a filter lets through, if it says no more than that."""
    if not isinstance(filter, EqualTo | EqualNullSafe | In) or filter.attribute != (column,):
        return None
    values = filter.value if isinstance(filter, In) else (filter.value,)
    return frozenset(value for value in values if value is not None)


def _both(one: frozenset[str] | None, other: frozenset[str]) -> frozenset[str]:
    return other if one is None else one & other


def _narrower(wanted: Wanted, filter: Filter) -> Wanted:
    """The same or less. What is left out is what the filter would refuse."""
    below = ""
    match filter:
        case EqualTo(("key",), [_, *_] as elements) if all(elements):
            return replace(wanted, key=ContentKey(tuple(elements)))
        case EqualTo(("namespace",), str(text)) if text:
            below = SEPARATOR.join((*_elements(text), ""))
        case StringStartsWith(("namespace",), text) if not text.startswith("."):
            # Only namespaces that need no escaping start so: their dots stand between elements.
            below = text.replace(".", SEPARATOR)
    return replace(wanted, below=max(wanted.below, below, key=len))


def _elements(namespace: str) -> list[str]:
    if not namespace.startswith("."):
        return namespace.split(".")
    return [_ESCAPED.sub(r"\1", element) for element in _ELEMENT.findall(namespace)]
