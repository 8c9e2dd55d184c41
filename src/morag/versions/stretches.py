"""Contents read in stretches: many small ones in one go, large ones by themselves.

The index does not say how large a content is, so what is too much for one stretch is forgotten and
read again, and the next stretch tries fewer.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.index.ops import value_of
from morag.model.keys import ContentKey
from morag.persist.objects import Value
from morag.versions.contents import content_of_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.model.content import Content
    from morag.persist.persist import Persist

    Stretch = tuple[Sequence["Stored"], list[Content | None]]
    """Some items, and the contents of all their index entries in one list."""

STRETCH_BYTES: Final = 128 * 1024
"""A stretch ends when it has so much; only one that is a single item is much larger."""

_MOST_ITEMS: Final = 64  # Of up to 2 MiB each, if all of them turn out to be large.


class Stored(Struct, frozen=True, gc=False):
    """A key, and the index entries that lead to its contents, which are not read yet.

    A difference has two entries and no type. None stands for a content that does not exist.
    """

    key: ContentKey
    ops: tuple[bytes | None, ...]
    type: str = ""


def with_contents(persist: Persist, items: Iterable[Stored]) -> Iterator[Stretch]:
    """The items in order, with their contents."""
    rest, most = iter(items), _MOST_ITEMS
    while waiting := list(islice(rest, most)):
        while waiting:
            read, contents, is_full = _read(persist, waiting[:most])
            del waiting[: len(read)]
            most = len(read) if is_full else min(4 * most, _MOST_ITEMS)
            yield read, contents


def _read(
    persist: Persist, items: Sequence[Stored]
) -> tuple[Sequence[Stored], list[Content | None], bool]:
    """As many of the items as make a stretch, their contents, and whether the stretch is full. The
    values are gone when this returns: a listing may wait for a slow client for a long time."""
    ids = [value_of(op) for item in items for op in item.ops if op is not None]
    values = persist.fetch_all(Value, ids)
    is_full = sum([len(value.data) for value in values]) >= STRETCH_BYTES
    if is_full:
        items = items[: _fitting(items, values)]
    found = map(content_of_value, values)
    contents = [None if op is None else next(found) for item in items for op in item.ops]
    return items, contents, is_full


def _fitting(items: Sequence[Stored], values: Iterable[Value]) -> int:
    """How many of the items fill a stretch."""
    sizes, size, count = (len(value.data) for value in values), 0, 0
    while size < STRETCH_BYTES:
        size += sum(next(sizes) for op in items[count].ops if op is not None)
        count += 1
    return count
