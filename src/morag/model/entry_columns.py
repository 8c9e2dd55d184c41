"""Entries as columns, for readers of many entries, and the selection of entries to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from morag.model.content import Content
from morag.model.keys import ContentKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.model.results import Diff, Entry

    Keyed = TypeVar("Keyed", Entry, Diff)

SEPARATOR: Final = "\x01"
"""Separates the elements of a path. Keys cannot contain it, and it sorts before all characters
that they can contain."""


class Columns(Struct, frozen=True, gc=False):
    """Some entries in key order. A path is the elements of a key with `SEPARATOR` between them.

    Contents are present only if they were requested; then the content ids are theirs.
    """

    paths: list[str]
    types: list[str]
    content_ids: list[str]
    contents: list[Content] | None


class KeySpan(Struct, frozen=True):
    """Keys from `first` on, up to but not including `before`, whose paths start with `below`."""

    first: ContentKey | None = None
    before: ContentKey | None = None
    below: str = ""

    @property
    def start(self) -> ContentKey | None:
        """A key at which a listing of the span can start: no key of the span sorts before it."""
        starts = [] if self.first is None else [self.first]
        if self.below:
            starts.append(ContentKey(tuple(self.below.rstrip(SEPARATOR).split(SEPARATOR))))
        return max(starts, default=None)

    @property
    def is_empty(self) -> bool:
        """Whether no key at all can be in the span."""
        low = _order(self.below)
        if self.first is not None:
            first = path_of_key(self.first)
            if _order(first) > low:
                low = _order(first)
                if not first.startswith(self.below):
                    return True
        return self.before is not None and _order(path_of_key(self.before)) <= low

    def cut(self, listed: Iterable[Keyed]) -> Iterator[Keyed]:
        """The items in the span, out of a listing in key order. Reads at most one item past it."""
        first = None if self.first is None else _order(path_of_key(self.first))
        before = None if self.before is None else _order(path_of_key(self.before))
        for item in listed:
            path = path_of_key(item.key)
            place = _order(path)
            if before is not None and place >= before:
                return
            if not path.startswith(self.below):
                if place > _order(self.below):
                    return
                continue
            if first is None or place >= first:
                yield item


class EntryFilter(Struct, frozen=True):
    """The entries to read: those of one `key`, of some types, or whose keys end in some names.

    None selects all.
    """

    key: ContentKey | None = None
    types: frozenset[str] | None = None
    names: frozenset[str] | None = None

    def accepts(self, path: str, type: str) -> bool:
        """Whether types and names select the entry. A `key` is looked up instead."""
        return (self.types is None or type in self.types) and (
            self.names is None or path.rpartition(SEPARATOR)[2] in self.names
        )

    @property
    def accepts_all(self) -> bool:
        return self.types is None and self.names is None


def path_of_key(key: ContentKey) -> str:
    return SEPARATOR.join(key.elements)


def columns_of_entries(entries: list[Entry], *, with_content: bool) -> Columns:
    return Columns(
        [path_of_key(entry.key) for entry in entries],
        [entry.type for entry in entries],
        [entry.content_id for entry in entries],
        [entry.content for entry in entries if entry.content] if with_content else None,
    )


def _order(path: str) -> bytes:
    """Sorts paths as their keys sort: by UTF-16 units."""
    return path.encode("utf-16-be", "surrogatepass")


WHOLE: Final = KeySpan()
ALL: Final = EntryFilter()
