"""Skips entries that cannot pass a filter, before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct

from morag.index.keys import CONTENTS, KeyRange, content_path
from morag.model.content import TYPE_NAMES
from morag.model.entry_columns import SEPARATOR
from morag.model.keys import ContentKey
from morag.versions.entries import type_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.index.segment import Entry
    from morag.persist.persist import Persist

    T = TypeVar("T")

Verdict: TypeAlias = Callable[[tuple[str, str]], bool | None]
"""Judges the path and the type of an entry: true, false, or None if they are not enough."""

_SKIPPED_AT_ONCE: Final = 100  # A long filter takes milliseconds for so many.


class Screen(Struct, frozen=True):
    """What is known of a filter before it runs: keys outside the range do not pass, and neither
    do entries whose verdict is false."""

    range: KeyRange = CONTENTS
    verdict: Verdict | None = None


OPEN: Final = Screen()


def screened(
    persist: Persist,
    entries: Iterable[Entry],
    verdict: Verdict,
    make: Callable[[ContentKey, bytes], T],
) -> Iterator[T | None]:
    """What `make` makes of the content keys and entries that may pass. None is a pause: many
    entries were skipped."""
    skipped = 0
    for raw, op in entries:
        path = content_path(raw)
        if path is None:
            continue
        if verdict((path, TYPE_NAMES[type_payload(persist, op)])) is not False:
            yield make(ContentKey(tuple(path.split(SEPARATOR))), op)
            continue
        skipped += 1
        if skipped % _SKIPPED_AT_ONCE == 0:
            yield None
