"""The table `entries`: what is on a commit, with its content."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from morag.client import Client
from morag.spark.opening import opened
from morag.spark.source.batches import ROWS, SEPARATOR, content_columns, key_columns
from morag.spark.source.narrowing import Wanted, narrowed
from morag.spark.source.reading import KeyPart, TableReader, key_parts, pinned, within
from morag.spark.source.schemas import KEY, STATE, pruned
from morag.versions.columns import Columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter, InputPartition

    from morag.model.keys import ContentKey
    from morag.model.listed import Entry
    from morag.spark.source.batches import Made
    from morag.versions.repository import Repository

_NEVER_NULL = frozenset({*KEY, "content_type", "content_id"})


class EntriesReader(TableReader):
    _wanted = Wanted()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name.
        self._wanted, left = narrowed(filters, _NEVER_NULL)
        return left

    def partitions(self) -> list[InputPartition]:
        with opened(self._origin) as catalog:
            place = pinned(catalog, self._options.ref)
            parts = 1 if self._wanted.key else self._options.parts
            return key_parts(catalog, (place,), parts, self._wanted.below)

    def read(self, partition: InputPartition | None) -> Iterator[RecordBatch]:
        if partition is None:  # There was nothing to split.
            return
        assert isinstance(partition, KeyPart), "they are ours"
        batches = self._batches
        with opened(self._origin) as catalog:
            for some in self._columns(catalog, partition):
                if some.paths:
                    yield batches.batch(len(some.paths), _made(some))

    def _columns(self, catalog: Repository | Client, part: KeyPart) -> Iterator[Columns]:
        wanted, (place,) = self._wanted, part.places
        with_content = not pruned(self._schema, STATE)
        if isinstance(catalog, Client) or wanted.key is not None:
            return _grouped(self._entries(catalog, part, with_content), with_content)
        return catalog.contents.columns(
            place,
            first=part.first,
            before=part.before,
            below=wanted.below,
            with_content=with_content,
            wanted=None if wanted.wants_all else wanted.wants,
        )

    def _entries(
        self, catalog: Repository | Client, part: KeyPart, with_content: bool
    ) -> Iterator[Entry]:
        wanted, (place,) = self._wanted, part.places
        if isinstance(catalog, Client):
            contents, filter = catalog.contents, _cel(wanted)
            if wanted.key is not None:
                one = (wanted.key,)
                return iter(
                    contents.entries(place, keys=one, with_content=with_content, filter=filter)
                )

            def listed(start: ContentKey | None) -> Iterable[Entry]:
                return contents.entries(
                    place,
                    min_key=start,
                    max_key=part.before,
                    with_content=with_content,
                    filter=filter,
                )

            return within(part, wanted.below, listed)
        assert wanted.key is not None, "all others are read in columns"
        found = catalog.contents.entries(place, keys=(wanted.key,), with_content=with_content)
        return (e for e in found if wanted.wants(SEPARATOR.join(e.key.elements), e.type))


def _made(some: Columns) -> Made:
    return {
        **content_columns(some.contents or ()),
        **key_columns(some.paths),
        "content_type": lambda: some.types,
        "content_id": lambda: some.content_ids,
    }


def _cel(wanted: Wanted) -> str:
    """The part of the filters that a server applies."""
    asked = []
    for variable, values in (("entry.contentType", wanted.types), ("entry.name", wanted.names)):
        if values is not None:
            asked.append(f"{variable} in {msgspec.json.encode(sorted(values)).decode()}")
    return " && ".join(asked)


def _grouped(entries: Iterator[Entry], with_content: bool) -> Iterator[Columns]:
    while some := list(islice(entries, ROWS)):
        yield Columns(
            [SEPARATOR.join(entry.key.elements) for entry in some],
            [entry.type for entry in some],
            [entry.content_id for entry in some],
            [entry.content for entry in some if entry.content] if with_content else None,
        )
