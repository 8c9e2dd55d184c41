"""What the readers of all tables have in common."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from morag.client import Client, NotOffered
from morag.index.keys import store_key
from morag.model.keys import ContentKey
from morag.spark.source.batches import SEPARATOR, Batches
from morag.versions.columns import path_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TypeVar

    from pyspark.sql.types import StructType

    from morag.index.keys import KeyRange
    from morag.model.listed import Diff, Entry
    from morag.spark.opening import Origin
    from morag.spark.source.options import ReadOptions
    from morag.versions.repository import Repository

    Keyed = TypeVar("Keyed", Entry, Diff)


class TableReader(DataSourceReader):
    """Lives in Spark's planner and, as a copy, in every task."""

    def __init__(self, origin: Origin, options: ReadOptions, schema: StructType) -> None:
        self._origin = origin
        self._options = options
        self._schema = schema

    @property
    def _batches(self) -> Batches:
        return Batches(self._schema)


class KeyPart(InputPartition):
    """The keys from `first` on, up to but not including `before`, at commits that do not move."""

    def __init__(
        self, places: tuple[str, ...], first: ContentKey | None, before: ContentKey | None
    ) -> None:
        self.places = places
        self.first = first
        self.before = before


def pinned(catalog: Repository | Client, ref: str | None) -> str:
    """A name for the commit that `ref` means now: all tasks are to read the same one."""
    return f"@{catalog.resolve(ref or catalog.default_branch).hash}"


def key_parts(
    catalog: Repository | Client, places: tuple[str, ...], parts: int, below: str
) -> list[InputPartition]:
    """Ranges that hold all keys together. They are even for the last of the places."""
    try:
        cuts = catalog.contents.splits(places[-1], parts)
    except NotOffered:  # The original's server does not tell.
        cuts = ()
    ranges = pairwise((None, *cuts, None))
    return [
        KeyPart(places, first, before)
        for first, before in ranges
        if _has_room(path_range(first, before, below))
    ]


def _has_room(range: KeyRange) -> bool:
    return range.upper is None or range.lower < range.upper


def within(
    part: KeyPart, below: str, listed: Callable[[ContentKey | None], Iterable[Keyed]]
) -> Iterator[Keyed]:
    """The items of a part out of a listing, which is given the key that it is to start at."""
    range = path_range(part.first, part.before, below)
    starts = [ContentKey(tuple(below.rstrip(SEPARATOR).split(SEPARATOR)))] if below else []
    if part.first is not None:
        starts.append(part.first)
    for item in listed(max(starts, default=None)):
        raw = store_key(item.key)
        if range.upper is not None and raw >= range.upper:
            return
        if raw >= range.lower:
            yield item
