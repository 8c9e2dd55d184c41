"""Reads contents in batches: many small contents together, large ones alone.

The index does not contain the sizes of contents. Contents that do not fit into a batch are
discarded and read again later, and the next batch reads fewer.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct

from morag.format.index_entries import value_of
from morag.format.objects import Value
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.persist.persist import Persist

C = TypeVar("C")

ContentBatch: TypeAlias = "tuple[Sequence[Stored], list[C | None]]"
"""Some items, and the contents of all their index entries in one list."""

CONTENT_BATCH_BYTES: Final = 128 * 1024
"""A batch ends when it has this size. Only a batch of a single item can be much larger."""

_MOST_ITEMS: Final = 64  # Each may have up to 2 MiB.
FEW_ITEMS: Final = 8
"""For a first batch that an event loop may read."""


class Stored(Struct, frozen=True, gc=False):
    """A key, and the index entries that lead to its contents, which are not read yet.

    A difference has two entries and no type. None stands for a content that does not exist.
    """

    key: ContentKey
    ops: tuple[bytes | None, ...]
    type: str = ""


def with_contents(
    persist: Persist,
    items: Iterable[Stored],
    content_of: Callable[[Value], C],
    first_items: int = _MOST_ITEMS,
) -> Iterator[ContentBatch[C]]:
    """The items in order, with their contents as `content_of` makes them of the stored values."""
    rest, most = iter(items), first_items
    while waiting := list(islice(rest, most)):
        while waiting:
            read, contents, is_full = _read(persist, waiting[:most], content_of)
            del waiting[: len(read)]
            most = len(read) if is_full else min(4 * most, _MOST_ITEMS)
            yield read, contents


def _read(
    persist: Persist, items: Sequence[Stored], content_of: Callable[[Value], C]
) -> tuple[Sequence[Stored], list[C | None], bool]:
    """The items that fit into a batch, their contents, and whether the batch is full.

    No value is held after this returns: a listing may wait long for a slow client.
    """
    ids = [value_of(op) for item in items for op in item.ops if op is not None]
    values = persist.fetch_all(Value, ids)
    is_full = sum([len(value.data) for value in values]) >= CONTENT_BATCH_BYTES
    if is_full:
        items = items[: _fitting(items, values)]
    found = map(content_of, values)
    contents = [None if op is None else next(found) for item in items for op in item.ops]
    return items, contents, is_full


def _fitting(items: Sequence[Stored], values: Iterable[Value]) -> int:
    """How many of the items fill a batch."""
    sizes, size, count = (len(value.data) for value in values), 0, 0
    while size < CONTENT_BATCH_BYTES:
        size += sum(next(sizes) for op in items[count].ops if op is not None)
        count += 1
    return count
