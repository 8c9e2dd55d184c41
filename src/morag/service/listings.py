"""Listings of entries, histories and differences, paged and filtered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.errors import BadRequest
from morag.model.keys import ContentKey
from morag.model.meta import texts_length
from morag.model.results import Entry
from morag.service.paging import USUAL_BYTES, EncodedFound, Filled, Found, Paging, encoded_items
from morag.service.ref_resolution import RequestedRef, reference_of
from morag.versions.commit_contents import PREFIX_RULE, Bounds
from morag.versions.screens import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from morag.model.content import Content
    from morag.model.operations import Delete, Put
    from morag.model.references import Reference
    from morag.model.results import LogEntry
    from morag.service.paging import Items
    from morag.service.ref_resolution import RefResolution
    from morag.versions.content_batches import Stored
    from morag.versions.encoding import Encoding
    from morag.versions.repository import Repository
    from morag.versions.resolve import Resolved

MOST_LOG_ENTRIES: Final = 250
"""The limit of a page of history, even if the client requests more."""

_NOWHERE: Final = ContentKey(("\uffff",) * 20)


class KeySelection(Struct, frozen=True, kw_only=True):
    """The keys to list, and how many. Keys that do not pass the filter are not counted."""

    min_key: ContentKey | None = None
    max_key: ContentKey | None = None
    prefix: ContentKey | None = None
    keys: tuple[ContentKey, ...] = ()
    filter: str | None = None
    paging: Paging = Paging()
    combines: bool = False
    """Whether the client sent a prefix together with another bound, even if one is empty."""

    @property
    def bounds(self) -> Bounds:
        """The keys to list, in the form that the repository takes."""
        token = self.paging.token
        return Bounds(self.min_key, self.max_key, self.prefix, self.known_keys, token)

    @property
    def outermost_keys(self) -> tuple[ContentKey | None, ContentKey | None]:
        """The first and the last key that the bounds and `keys` allow. A prefix is not considered,
        and with a token there are no bounds to check."""
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
    def is_range(self) -> bool:
        """Whether the selection is all keys of a range, so that no key needs to be looked at."""
        return not (self.keys or self.filter)

    @property
    def known_keys(self) -> tuple[ContentKey, ...]:
        """The keys without the empty key, which cannot exist. If it is the only one, a key that no
        commit has replaces it, so that nothing is found."""
        found = tuple(key for key in self.keys if key.elements)
        return found if found or not self.keys else (_NOWHERE,)


class Listings:
    def __init__(
        self, repository: Repository, refs: RefResolution, cpu_seconds: Callable[[], float]
    ) -> None:
        self._repository = repository
        self._refs = refs
        self._cpu_seconds = cpu_seconds

    def entries(
        self,
        ref: RequestedRef,
        selection: KeySelection,
        *,
        with_content: bool = False,
        depth: int = 0,
    ) -> tuple[Reference, Items[Entry]]:
        """The entries at a commit. With a `depth`, only the first of all entries that `cut` turns
        into the same namespace."""
        target = self._refs.resolve_early(ref, "Expected hash")
        keep: Callable[[Entry | Stored], bool] | None = None
        screen = OPEN
        if selection.filter:
            # Imported here: the CEL library is slow to load, and most servers never need it.
            from morag.service.filters import entry_filter

            filter = entry_filter(selection.filter)
            keep, screen = filter.after_screen, filter.screen
        selection.check()
        at = self._refs.load(target)
        contents, paging = self._repository.contents, selection.paging
        if with_content:
            # Filters do not see contents, so only those of the listed entries are read.
            stored = contents.stored(at, selection.bounds, screen)
            self._check_order(*selection.outermost_keys, at)
            found = Found(stored, paging, self._cpu_seconds, wanted=keep)
            return reference_of(at), Filled(found, contents.entries_of)
        listing = contents.plain_entries(at, selection.bounds, screen)
        self._check_order(*selection.outermost_keys, at)
        tests: list[Callable[[Entry], bool]] = []
        if depth > 0:
            tests.append(lambda entry: len(entry.key.elements) >= depth)
        if keep is not None:
            tests.append(keep)
        if depth > 0:
            tests.append(_first_of_namespace(depth))
        return reference_of(at), Found(
            listing,
            paging,
            self._cpu_seconds,
            wanted=_all_of(tests),
            # If a page ended inside a namespace, the next page would list it again.
            may_end_early=not depth,
        )

    def encoded_entries(
        self, ref: RequestedRef, selection: KeySelection, encoding: Encoding[Entry]
    ) -> tuple[Reference, Items[bytes]]:
        """Like `entries` of a selection without `keys` and filter, encoded."""
        target = self._refs.resolve_early(ref, "Expected hash")
        selection.check()
        at = self._refs.load(target)
        found = self._repository.contents.encoded_entries(at, selection.bounds, encoding)
        self._check_order(*selection.outermost_keys, at)
        return reference_of(at), EncodedFound(found, selection.paging)

    def splits(self, ref: RequestedRef, parts: int) -> tuple[Reference, tuple[ContentKey, ...]]:
        """Keys that cut a commit into ranges, for clients that read the ranges in parallel."""
        at = self._refs.resolve(ref, "Expected hash")
        return reference_of(at), self._repository.contents.splits(at, parts)

    def log(
        self,
        ref: RequestedRef,
        paging: Paging,
        *,
        until: RequestedRef | None = None,
        filter: str | None = None,
        with_operations: bool = False,
    ) -> Found[LogEntry]:
        """The history from a commit, or from the end of the last page, down to `until`.

        The entries have no operations (see `operations`); `with_operations` is for the filter.
        """
        at, last = self._ends_of_log(ref, paging, until)
        wanted = None
        if filter:
            # Imported here: the CEL library is slow to load, and most servers never need it.
            from morag.service.filters import log_filter

            keep = wanted = log_filter(filter)
            if with_operations:
                history = self._repository.history
                wanted = lambda entry: keep(history.with_operations(entry))  # noqa: E731
        return Found(
            self._repository.history.log(at),
            paging,
            self._cpu_seconds,
            wanted=wanted,
            # Only a commit that passes the filter ends the listing.
            is_last=None if last is None else lambda entry: entry.meta.hash == last,
            size_of=_log_entry_bytes,
            page_size=MOST_LOG_ENTRIES,
        )

    def encoded_log(
        self,
        ref: RequestedRef,
        paging: Paging,
        encoding: Encoding[LogEntry],
        *,
        until: RequestedRef | None = None,
    ) -> Items[bytes]:
        """Like `log` without a filter, encoded."""
        at, last = self._ends_of_log(ref, paging, until)
        found = Found(
            self._repository.history.encoded_log(at, encoding),
            paging,
            self._cpu_seconds,
            is_last=None if last is None else lambda entry: entry.hash == last,
            size_of=lambda entry: len(entry.encoded),
            page_size=MOST_LOG_ENTRIES,
        )
        return encoded_items(found)

    def operations(self, entry: LogEntry) -> Iterator[Sequence[Put | Delete]]:
        """The operations of a commit in batches: deletes, then puts, as Nessie does."""
        assert entry.meta.hash is not None, "a commit that was listed has a hash"
        return self._repository.history.operations(entry.meta.hash)

    def diff(
        self,
        before: RequestedRef,
        after: RequestedRef,
        selection: KeySelection,
        encoding: Encoding[Content],
    ) -> tuple[Reference, Reference, Items[tuple[ContentKey, bytes | None, bytes | None]]]:
        """Keys that differ between two commits, and their contents on both sides, encoded."""
        ends = (
            self._refs.resolve_early(before, '"From" hash'),
            self._refs.resolve_early(after, '"To" hash'),
        )
        keep, screen = None, OPEN
        if selection.filter:
            # Imported here: the CEL library is slow to load, and most servers never need it.
            from morag.service.filters import diff_filter

            keep = diff_filter(selection.filter)
            screen = keep.screen
        selection.check()
        one, other = map(self._refs.load, ends)
        contents, paging = self._repository.contents, selection.paging
        changed = contents.changed(one, other, selection.bounds, screen)
        # Unlike for entries, the requested keys are not considered here.
        if not paging.token:
            self._check_order(selection.min_key, selection.max_key, one, other)
        found = Found(changed, paging, self._cpu_seconds, wanted=keep)
        encoded = Filled(found, lambda stored: contents.encoded_diffs_of(stored, encoding))
        return reference_of(one), reference_of(other), encoded

    def _ends_of_log(
        self, ref: RequestedRef, paging: Paging, until: RequestedRef | None
    ) -> tuple[Resolved, str | None]:
        """The first commit to list, and the hash of the last one, if the client names one."""
        start, label = ref, "Youngest hash"
        if paging.token is not None:
            start, label = RequestedRef.of(ref.name, paging.token), "Token pagination hash"
        found = self._refs.resolve_early(start, label)
        last = None
        if until is not None:
            last = self._refs.hash(until, "Oldest hash")  # The commit need not exist.
        return self._refs.load(found), last

    def _check_order(
        self, low: ContentKey | None, high: ContentKey | None, *commits: Resolved
    ) -> None:
        """Refuse a lower bound above the upper one if there are keys between them, as Nessie does.
        Keys that the commit itself has removed count as well."""
        if low is None or high is None or not high < low:
            return
        contents = self._repository.contents
        if any(contents.has_between(at, high, low) for at in commits):
            raise BadRequest("'to' must be greater than 'from'")


def _log_entry_bytes(entry: LogEntry) -> int:
    return USUAL_BYTES + texts_length(entry.meta)


def cut(entry: Entry, depth: int) -> Entry:
    """An entry with a longer key as the namespace that contains it."""
    if len(entry.key.elements) <= depth:
        return entry
    return Entry(ContentKey(entry.key.elements[:depth]), "NAMESPACE", "")


def _all_of(tests: Sequence[Callable[[Entry], bool]]) -> Callable[[Entry], bool] | None:
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda entry: all(test(entry) for test in tests)


def _first_of_namespace(depth: int) -> Callable[[Entry], bool]:
    """A test that keeps the first entry of each namespace. It has state: use it for one walk."""
    seen: set[ContentKey] = set()

    def keep(entry: Entry) -> bool:
        shown = cut(entry, depth)
        if shown.type != "NAMESPACE":
            return True
        new = shown.key not in seen
        seen.add(shown.key)
        return new

    return keep
