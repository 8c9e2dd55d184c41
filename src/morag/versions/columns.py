"""Entries by the thousand, for those who want columns of them and not one after the other."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import RepositoryCorrupt
from morag.index.keys import CONTENTS, KeyRange, content_path, store_key
from morag.index.layered import index_of
from morag.index.ops import payload_of, value_of
from morag.model.content import TYPE_NAMES, Content
from morag.persist.codec import decode
from morag.persist.objects import Value
from morag.persist.order import sortable
from morag.persist.persist import ObjectMissing
from morag.versions.contents import content_of_value
from morag.versions.entries import content_id_text, type_payload
from morag.versions.usual_tables import usual_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.backend.base import Row
    from morag.index.segment import Entry
    from morag.model.keys import ContentKey
    from morag.persist.objects import Commit
    from morag.persist.persist import Persist

_AT_ONCE: Final = 10_000


class Columns(Struct, frozen=True, gc=False):
    """Some entries in key order. A path is the elements of a key with U+0001 between them.

    Contents are there if they were asked for; then the content ids are theirs.
    """

    paths: list[str]
    types: list[str]
    content_ids: list[str]
    contents: list[Content] | None


def path_range(
    first: ContentKey | None = None, before: ContentKey | None = None, below: str = ""
) -> KeyRange:
    """Keys from `first` on, up to but not including `before`, whose paths start with `below`."""
    found = CONTENTS
    if below:
        start = CONTENTS.lower + sortable(below.encode())
        found = KeyRange(start, start + b"\xff")
    if first is not None:
        found = found.within(KeyRange(store_key(first)))
    if before is not None:
        found = found.within(KeyRange(b"", store_key(before)))
    return found


def columns(
    persist: Persist,
    commit: Commit | None,
    range: KeyRange,
    *,
    with_content: bool,
    wanted: Callable[[str, str], bool] | None = None,
) -> Iterator[Columns]:
    """The entries in a range. `wanted` tells by path and type which of them to read further."""
    entries = index_of(persist, commit).items(range)
    while batch := list(islice(entries, _AT_ONCE)):
        yield _columns(persist, batch, with_content, wanted)


def _columns(
    persist: Persist,
    batch: list[Entry],
    with_content: bool,
    wanted: Callable[[str, str], bool] | None,
) -> Columns:
    paths = [content_path(raw) for raw, _ in batch]
    found = [(path, op) for path, (_, op) in zip(paths, batch, strict=True) if path is not None]
    types = [
        TYPE_NAMES.get(payload_of(op)) or TYPE_NAMES[type_payload(persist, op)] for _, op in found
    ]
    if wanted is not None:
        kept = [wanted(path, type) for (path, _), type in zip(found, types, strict=True)]
        found = [item for item, keep in zip(found, kept, strict=True) if keep]
        types = [type for type, keep in zip(types, kept, strict=True) if keep]
    ops = [op for _, op in found]
    contents = _contents(persist, ops) if with_content else None
    if contents is None:
        content_ids = [content_id_text(persist, op) for op in ops]
    else:
        content_ids = [content.id or "" for content in contents]
    return Columns([path for path, _ in found], types, content_ids, contents)


def _contents(persist: Persist, ops: Sequence[bytes]) -> list[Content]:
    """Past the cache: whoever reads everything reads it once."""
    ids = [value_of(op) for op in ops]
    rows = persist.find(ids)
    lost = [id for id in ids if id not in rows]
    if lost:
        raise ObjectMissing(lost)
    return [_content(rows[id]) for id in ids]


def _content(row: Row) -> Content:
    table = usual_table(row)  # Nearly all content is.
    if table is not None:
        return table
    value = decode(row)
    if not isinstance(value, Value):
        raise RepositoryCorrupt.object(row.id, f"is a {type(value).__name__}, not a Value")
    return content_of_value(value)
