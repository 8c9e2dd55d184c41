"""Reads many entries at once, as columns instead of one struct per entry."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.format.content_rows import content_of_row
from morag.format.index_entries import payload_of, value_of
from morag.index.keys import CONTENTS, KeyRange, content_path, paths_from, store_key
from morag.index.layered import index_of
from morag.model.content import TYPE_NAMES
from morag.model.entry_columns import Columns
from morag.persist.persist import ObjectMissing
from morag.versions.entries import content_id_text, type_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.format.objects import Commit
    from morag.index.segment import Entry
    from morag.model.content import Content
    from morag.model.entry_columns import KeySpan
    from morag.persist.persist import Persist

_AT_ONCE: Final = 10_000


def path_range(span: KeySpan) -> KeyRange:
    """The span as a range of store keys."""
    found = CONTENTS
    if span.below:
        found = paths_from(span.below, span.below)
    if span.first is not None:
        found = found.within(KeyRange(store_key(span.first)))
    if span.before is not None:
        found = found.within(KeyRange(b"", store_key(span.before)))
    return found


def columns(
    persist: Persist,
    commit: Commit | None,
    range: KeyRange,
    *,
    with_content: bool,
    wanted: Callable[[str, str], bool] | None = None,
) -> Iterator[Columns]:
    """The entries in a range. `wanted` selects entries by path and type."""
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
    """Bypasses the cache: a reader of everything reads each object once."""
    ids = [value_of(op) for op in ops]
    rows = persist.find(ids)
    lost = [id for id in ids if id not in rows]
    if lost:
        raise ObjectMissing(lost)
    return [content_of_row(rows[id]) for id in ids]
