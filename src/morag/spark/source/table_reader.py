"""The base of the readers of all tables, and the parts that they read."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from pyspark.sql.datasource import DataSourceReader, InputPartition

from morag.client import NotOffered
from morag.model.entry_columns import KeySpan
from morag.spark.source.arrow_batches import Batches
from morag.spark.source.pushed_filters import Pushed, pushed_down

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from morag.catalog import Catalog
    from morag.spark.opening import Origin
    from morag.spark.source.options import ReadOptions


class TableReader(DataSourceReader):
    """Used in Spark's planner and, as a copy, in every task."""

    def __init__(self, origin: Origin, options: ReadOptions, schema: StructType) -> None:
        self._origin = origin
        self._options = options
        self._schema = schema

    @property
    def _batches(self) -> Batches:
        return Batches(self._schema)


class KeyTableReader(TableReader):
    """The base of tables with one row per key, which are cut into ranges of keys."""

    _never_null: ClassVar[frozenset[str]]
    _pushed = Pushed()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        self._pushed, left = pushed_down(filters, self._never_null)
        return left


class KeyPart(InputPartition):
    """A range of keys, at fixed commits."""

    def __init__(self, commits: tuple[str, ...], span: KeySpan) -> None:
        self.commits = commits
        self.span = span


def pinned(catalog: Catalog, ref: str | None) -> str:
    """A ref spec for the current commit of `ref`: all tasks must read the same commit."""
    return f"@{catalog.resolve(ref or catalog.default_branch).hash}"


def key_parts(
    catalog: Catalog, commits: tuple[str, ...], parts: int, below: str
) -> list[InputPartition]:
    """Ranges that cover all keys. They are of similar size at the last of the commits."""
    try:
        cuts = catalog.contents.splits(commits[-1], parts)
    except NotOffered:  # Nessie does not offer splits.
        cuts = ()
    spans = (KeySpan(first, before, below) for first, before in pairwise((None, *cuts, None)))
    return [KeyPart(commits, span) for span in spans if not span.is_empty]
