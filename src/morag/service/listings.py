"""Entries, histories and differences, page by page and filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.keys import ContentKey
from morag.model.listed import Entry
from morag.model.meta import texts_length
from morag.service.paging import USUAL_BYTES, Filled, Found, Paging
from morag.service.places import Asked, reference_of
from morag.versions.catalog import PREFIX_RULE, Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.model.listed import Diff, LogEntry
    from morag.model.operations import Delete, Put
    from morag.model.references import Reference
    from morag.service.paging import Items
    from morag.service.places import Places
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved
    from morag.versions.stretches import Stored

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
    paging: Paging = Paging()
    combines: bool = False
    """Whether a prefix is named beside another bound. Empty ones count, although they bound
    nothing."""

    @property
    def listed(self) -> Bounds:
        """The keys to list, as the catalog takes them."""
        token = self.paging.token
        return Bounds(self.min_key, self.max_key, self.prefix, self.known_keys, token)

    @property
    def bounds(self) -> tuple[ContentKey | None, ContentKey | None]:
        """The first and the last key that can be meant, the keys that are asked for included. A
        prefix is no such bound, and a token takes the place of the first key."""
        if self.paging.token:
            return None, None
        low, high, keys = self.min_key, self.max_key, self.known_keys
        if self.prefix is not None or not keys:
            return low, high
        lows = [min(keys)] if low is None else [min(keys), low]
        highs = [max(keys)] if high is None else [max(keys), high]
        return max(lows), min(highs)

    def check(self) -> None:
        if self.combines:
            raise BadRequest(PREFIX_RULE)

    @property
    def known_keys(self) -> tuple[ContentKey, ...]:
        """Without the empty key, which nothing has; if it is the only one, it stands for a key that
        cannot be there."""
        found = tuple(key for key in self.keys if key.elements)
        return found if found or not self.keys else (_NOWHERE,)


class Listings:
    def __init__(
        self, repository: Repository, places: Places, cpu_seconds: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._places = places
        self._cpu_seconds = cpu_seconds

    def entries(
        self, asked: Asked, wanted: Wanted, *, with_content: bool = False, depth: int = 0
    ) -> tuple[Reference, Items[Entry]]:
        """The keys on a commit. With a `depth`, of all entries that `cut` makes the same
        namespace of, the first is found."""
        target = self._places.find(asked, "Expected hash")
        keep: Callable[[Entry | Stored], bool] | None = None
        if wanted.filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import entry_filter

            keep = entry_filter(wanted.filter)
        wanted.check()
        place = self._places.load(target)
        contents, paging = self._repository.contents, wanted.paging
        if with_content:
            # Filters do not see contents: they are read for the entries that are given.
            stored = contents.stored(place, wanted.listed)
            self._check_order(*wanted.bounds, place)
            found = Found(stored, paging, self._cpu_seconds, wanted=keep)
            return reference_of(place), Filled(found, contents.entries_of)
        listing = contents.plain_entries(place, wanted.listed)
        self._check_order(*wanted.bounds, place)
        tests: list[Callable[[Entry], bool]] = []
        if depth > 0:
            tests.append(lambda entry: len(entry.key.elements) >= depth)
        if keep is not None:
            tests.append(keep)
        if depth > 0:
            tests.append(_first_of_namespace(depth))
        return reference_of(place), Found(
            listing,
            paging,
            self._cpu_seconds,
            wanted=_all_of(tests),
            # A page that ends inside of a namespace would have the next one name it again.
            may_end_early=not depth,
        )

    def splits(self, asked: Asked, parts: int) -> tuple[Reference, tuple[ContentKey, ...]]:
        """Where to cut the keys on a commit, for clients that read the parts side by side."""
        place = self._places.read(asked, "Expected hash")
        return reference_of(place), self._repository.contents.splits(place, parts)

    def log(
        self,
        asked: Asked,
        paging: Paging,
        *,
        until: Asked | None = None,
        filter: str | None = None,
        with_operations: bool = False,
    ) -> Found[LogEntry]:
        """The history from a commit, or from where the last page ended, down to `until`.

        The entries come without operations (see `operations`); `with_operations` is for the filter.
        """
        start, what = asked, "Youngest hash"
        if paging.token is not None:
            start, what = Asked(asked.name, paging.token), "Token pagination hash"
        found = self._places.find(start, what)
        last = None
        if until is not None:
            last = self._places.hash(until, "Oldest hash")  # If there is none, it is never met.
        place = self._places.load(found)
        wanted = None
        if filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import log_filter

            keep = wanted = log_filter(filter)
            if with_operations:
                history = self._repository.history
                wanted = lambda entry: keep(history.with_operations(entry))  # noqa: E731
        return Found(
            self._repository.history.log(place),
            paging,
            self._cpu_seconds,
            wanted=wanted,
            # Only a commit that passes the filter can be the last one.
            is_last=None if last is None else lambda entry: entry.meta.hash == last,
            size_of=_log_entry_bytes,
            page_size=MOST_LOG_ENTRIES,
        )

    def operations(self, entry: LogEntry) -> Iterator[Sequence[Put | Delete]]:
        """The operations of a commit in batches: deletes, then puts, as Nessie does."""
        assert entry.meta.hash is not None, "a commit that was listed has a hash"
        return self._repository.history.operations(entry.meta.hash)

    def diff(
        self, before: Asked, after: Asked, wanted: Wanted
    ) -> tuple[Reference, Reference, Items[Diff]]:
        ends = self._places.find(before, '"From" hash'), self._places.find(after, '"To" hash')
        keep = None
        if wanted.filter:
            # Not at the top: the CEL library takes time to load, which most starts can spare.
            from morag.service.filters import diff_filter

            keep = diff_filter(wanted.filter)
        wanted.check()
        one, other = map(self._places.load, ends)
        contents, paging = self._repository.contents, wanted.paging
        changed = contents.changed(one, other, wanted.listed)
        # Unlike those of entries, the keys of a difference are no bounds.
        if not paging.token:
            self._check_order(wanted.min_key, wanted.max_key, one, other)
        found = Found(changed, paging, self._cpu_seconds, wanted=keep)
        return reference_of(one), reference_of(other), Filled(found, contents.diffs_of)

    def _check_order(
        self, low: ContentKey | None, high: ContentKey | None, *places: Resolved
    ) -> None:
        """Refuse bounds that are the wrong way round, if there is anything between them. Nessie
        meets what the commit itself has removed as well."""
        if low is None or high is None or not high < low:
            return
        contents = self._repository.contents
        if any(contents.has_between(place, high, low) for place in places):
            raise BadRequest("'to' must be greater than 'from'")


def _log_entry_bytes(entry: LogEntry) -> int:
    return USUAL_BYTES + texts_length(entry.meta)


def cut(entry: Entry, depth: int) -> Entry:
    """A longer key as the namespace that it is in."""
    if len(entry.key.elements) <= depth:
        return entry
    return Entry(ContentKey(entry.key.elements[:depth]), "NAMESPACE", "")


def _all_of(tests: Sequence[Callable[[Entry], bool]]) -> Callable[[Entry], bool] | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda entry: all(test(entry) for test in tests)


def _first_of_namespace(depth: int) -> Callable[[Entry], bool]:
    """Keep one entry for each namespace that entries are cut down to. Good for one walk."""
    seen: set[ContentKey] = set()

    def keep(entry: Entry) -> bool:
        shown = cut(entry, depth)
        if shown.type != "NAMESPACE":
            return True
        new = shown.key not in seen
        seen.add(shown.key)
        return new

    return keep
