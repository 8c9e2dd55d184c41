"""Entries, histories and differences, page by page and filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.keys import ContentKey
from morag.model.listed import Entry
from morag.service.places import Asked, reference_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from morag.model.listed import Diff, LogEntry
    from morag.model.references import Reference
    from morag.service.places import Places
    from morag.versions.listing import Page
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved

MOST_LOG_ENTRIES: Final = 250
"""A page of history is never longer, whatever the client asks for."""


_NOWHERE: Final = ContentKey(("\uffff",) * 20)


class Wanted(Struct, frozen=True, kw_only=True):
    """Which keys, and how many of them. Filtered ones do not count."""

    min_key: ContentKey | None = None
    max_key: ContentKey | None = None
    prefix: ContentKey | None = None
    keys: tuple[ContentKey, ...] = ()
    filter: str | None = None
    limit: int | None = None
    token: str | None = None

    @property
    def bounds(self) -> tuple[ContentKey | None, ContentKey | None]:
        """The first and the last key that can be meant, the keys that are asked for included. A
        prefix is told apart elsewhere, and a token takes the place of the first key."""
        if self.token:
            return None, None
        low, high, keys = self.min_key, self.max_key, self.known_keys
        if self.prefix is not None or not keys:
            return low, high
        lows = [min(keys)] if low is None else [min(keys), low]
        highs = [max(keys)] if high is None else [max(keys), high]
        return max(lows), min(highs)

    @property
    def known_keys(self) -> tuple[ContentKey, ...]:
        """Without the empty key, which nothing has; if it is the only one, it stands for a key that
        cannot be there."""
        found = tuple(key for key in self.keys if key.elements)
        return found if found or not self.keys else (_NOWHERE,)


class Listings:
    def __init__(self, repository: Repository, places: Places) -> None:
        self._repository = repository
        self._places = places

    def entries(
        self, asked: Asked, wanted: Wanted, *, with_content: bool = False, depth: int = 0
    ) -> tuple[Reference, Page[Entry]]:
        """What is on a commit. A `depth` cuts longer keys down to the namespaces they are in."""
        place = self._places.read(asked, "Expected hash")
        listing = self._repository.contents.entries(
            place,
            min_key=wanted.min_key,
            max_key=wanted.max_key,
            prefix=wanted.prefix,
            keys=wanted.known_keys,
            with_content=with_content,
            token=wanted.token,
        )
        self._check_order(*wanted.bounds, place)
        if depth > 0:
            listing = listing.where(lambda entry: len(entry.key.elements) >= depth)
        if wanted.filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import entry_filter

            listing = listing.where(entry_filter(wanted.filter))
        if depth > 0:
            page = listing.where(_first_of_namespace(depth)).page(wanted.limit)
            return reference_of(place), page.map(lambda entry: _cut(entry, depth))
        return reference_of(place), listing.page(wanted.limit)

    def splits(self, asked: Asked, parts: int) -> tuple[Reference, tuple[ContentKey, ...]]:
        """Where to cut the keys on a commit, for those who read them side by side."""
        place = self._places.read(asked, "Expected hash")
        return reference_of(place), self._repository.contents.splits(place, parts)

    def log(
        self,
        asked: Asked,
        *,
        until: Asked | None = None,
        filter: str | None = None,
        with_operations: bool = False,
        limit: int | None = None,
        token: Asked | None = None,
    ) -> Page[LogEntry]:
        """The history from a commit, or from where the last page ended, down to `until`."""
        start, what = asked, "Youngest hash"
        if token is not None:
            start, what = token, "Token pagination hash"
        place = self._places.read(start, what)
        last = None
        if until is not None:
            last = self._places.hash(until, "Oldest hash")  # If there is none, it is never met.
        listing = self._repository.history.log(place, with_operations=with_operations)
        if filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import log_filter

            listing = listing.where(log_filter(filter))
        if last is not None:
            # Only a commit that passes the filter can be the last one.
            listing = listing.through(lambda entry: entry.meta.hash == last)
        return listing.page(min(limit or MOST_LOG_ENTRIES, MOST_LOG_ENTRIES))

    def diff(
        self, before: Asked, after: Asked, wanted: Wanted
    ) -> tuple[Reference, Reference, Page[Diff]]:
        one = self._places.read(before, '"From" hash')
        other = self._places.read(after, '"To" hash')
        listing = self._repository.contents.diff(
            one,
            other,
            min_key=wanted.min_key,
            max_key=wanted.max_key,
            prefix=wanted.prefix,
            keys=wanted.known_keys,
            token=wanted.token,
        )
        # Unlike those of entries, the keys of a difference are no bounds.
        if not wanted.token:
            self._check_order(wanted.min_key, wanted.max_key, one, other)
        if wanted.filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import diff_filter

            listing = listing.where(diff_filter(wanted.filter))
        return reference_of(one), reference_of(other), listing.page(wanted.limit)

    def _check_order(
        self, low: ContentKey | None, high: ContentKey | None, *places: Resolved
    ) -> None:
        """Refuse bounds that are the wrong way round, if there is anything between them."""
        if low is None or high is None or not high < low:
            return
        for place in places:
            between = self._repository.contents.keys(place, min_key=high, max_key=low)
            if any(key not in (low, high) for key in between):
                raise BadRequest("'to' must be greater than 'from'")


def _cut(entry: Entry, depth: int) -> Entry:
    """A longer key as the namespace that it is in."""
    if len(entry.key.elements) <= depth:
        return entry
    return Entry(ContentKey(entry.key.elements[:depth]), "NAMESPACE", "")


def _first_of_namespace(depth: int) -> Callable[[Entry], bool]:
    """Keep one entry for each namespace that entries are cut down to. Good for one walk."""
    seen: set[ContentKey] = set()

    def keep(entry: Entry) -> bool:
        shown = _cut(entry, depth)
        if shown.type != "NAMESPACE":
            return True
        new = shown.key not in seen
        seen.add(shown.key)
        return new

    return keep
