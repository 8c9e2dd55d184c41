"""What is on a commit: single contents, listings, and differences to another commit."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import BadRequest, ContentNotFound
from morag.index.diff import diff_with_pauses, difference
from morag.index.keys import KeyRange, content_key, contents_range, store_key
from morag.index.layered import index_of
from morag.index.ops import value_of
from morag.index.splits import split_keys
from morag.model.content import TYPE_NAMES
from morag.model.keys import ContentKey, check_key
from morag.model.listed import Diff, Entry
from morag.persist.objects import Value
from morag.versions.columns import columns, path_range
from morag.versions.contents import Undecoded
from morag.versions.entries import content_id_text, type_payload
from morag.versions.listing import Listing, key_token, token_key
from morag.versions.stretches import Stored, with_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.index.diff import Difference
    from morag.index.layered import CommitIndex
    from morag.model.content import Content
    from morag.persist.persist import Persist
    from morag.versions.columns import Columns
    from morag.versions.resolve import At, Resolver

PREFIX_RULE: Final = "Combining prefixKey with either minKey or maxKey is not supported."
_KEYS_AT_ONCE: Final = 100


class Bounds(Struct, frozen=True):
    """The keys that a listing is of: between two keys or below a prefix, and only `keys` if there
    are any. With a token, it goes on where the last page ended, be that before `min_key`."""

    min_key: ContentKey | None = None
    max_key: ContentKey | None = None
    prefix: ContentKey | None = None
    keys: tuple[ContentKey, ...] = ()
    token: str | None = None

    def range(self) -> KeyRange:
        if self.prefix is not None and (self.min_key is not None or self.max_key is not None):
            raise BadRequest(PREFIX_RULE)
        min_key = None if self.token else self.min_key
        range = contents_range(min_key, self.max_key, self.prefix, self.keys)
        return range.within(KeyRange(token_key(self.token))) if self.token else range


class Catalog:
    """Contents and their keys, as of any commit."""

    def __init__(self, persist: Persist, resolver: Resolver) -> None:
        self._persist = persist
        self._resolver = resolver

    def get(self, at: At, key: ContentKey) -> Content:
        """The content of one key; ContentNotFound if there is none."""
        content = self.find(at, key)
        if content is None:
            raise ContentNotFound(
                f"Could not find content for key '{key}' in reference '{at}'.", key
            )
        return content

    def find(self, at: At, key: ContentKey) -> Content | None:
        """The content of one key, if there is any."""
        found = self.find_undecoded(at, key)
        return None if found is None else found.content()

    def find_undecoded(self, at: At, key: ContentKey) -> Undecoded | None:
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        check_key(key)
        op = index.get(store_key(key))
        return None if op is None else Undecoded(self._persist.fetch(Value, value_of(op)))

    def undecoded(self, at: At, keys: Sequence[ContentKey]) -> list[tuple[ContentKey, Undecoded]]:
        """What `get_all` has, before it is decoded."""
        found = {
            item.key: value_of(op)
            for item in self._looked_up(at, keys)
            if (op := item.ops[0]) is not None
        }
        values = self._persist.fetch_all(Value, list(found.values()))
        return list(zip(found, map(Undecoded, values), strict=True))

    def get_all(self, at: At, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of those keys that exist, in the order asked for."""
        return {key: found for stretch in self.get_some(at, keys) for key, found in stretch}

    def get_some(
        self, at: At, keys: Sequence[ContentKey]
    ) -> Iterator[list[tuple[ContentKey, Content]]]:
        """The same in stretches of about 128 KiB, of which any may be empty."""
        stretches = with_contents(self._persist, self._looked_up(at, keys))
        return (
            [
                (item.key, content)
                for item, content in zip(items, contents, strict=True)
                if content is not None
            ]
            for items, contents in stretches
        )

    def keys(
        self,
        at: At,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        token: str | None = None,
    ) -> Listing[ContentKey]:
        """Only the keys, which is the fastest way to see what there is."""
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        range = Bounds(min_key, max_key, prefix, (), token).range()

        def keys() -> Iterator[ContentKey]:
            return (k for raw, _ in index.items(range) if (k := content_key(raw)) is not None)

        return Listing(keys, lambda key: key_token(store_key(key)))

    def has_between(self, at: At, low: ContentKey, high: ContentKey) -> bool:
        """Whether there is a key between the two on the commit, or was until that very commit."""
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        between = KeyRange(upper=store_key(high)).after(store_key(low))
        if next(index.items(between), None) is not None:
            return True
        return any(key in between for key, _ in index.operations())

    def entries(
        self,
        at: At,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        with_content: bool = False,
        token: str | None = None,
    ) -> Listing[Entry]:
        """Everything on a commit, in key order. Bounds and prefix belong to the listing."""
        bounds = Bounds(min_key, max_key, prefix, tuple(keys), token)
        if not with_content:
            return self.plain_entries(at, bounds)
        stored = self.stored(at, bounds)
        return Listing(
            lambda: (entry for found in self.entries_of(stored) for entry in found),
            lambda entry: key_token(store_key(entry.key)),
        )

    def plain_entries(self, at: At, bounds: Bounds) -> Listing[Entry]:
        """What `entries` has without content."""
        found = self._found(at, bounds)

        def entries() -> Iterator[Entry]:
            for key, op in found():
                type = TYPE_NAMES[type_payload(self._persist, op)]
                yield Entry(key, type, content_id_text(self._persist, op))

        return Listing(entries, lambda entry: key_token(store_key(entry.key)))

    def stored(self, at: At, bounds: Bounds) -> Listing[Stored]:
        """What `entries` has with content, before the contents are read."""
        found = self._found(at, bounds)

        def stored() -> Iterator[Stored]:
            return (
                Stored(key, (op,), TYPE_NAMES[type_payload(self._persist, op)])
                for key, op in found()
            )

        return Listing(stored, _stored_token)

    def entries_of(self, stored: Iterable[Stored]) -> Iterator[list[Entry]]:
        """Entries with their contents, in stretches of about 128 KiB."""
        for items, contents in with_contents(self._persist, stored):
            yield list(map(_entry, items, contents))

    def columns(
        self,
        at: At,
        *,
        first: ContentKey | None = None,
        before: ContentKey | None = None,
        below: str = "",
        with_content: bool = False,
        wanted: Callable[[str, str], bool] | None = None,
    ) -> Iterator[Columns]:
        """The same as `entries`, in columns and for large numbers; see `versions/columns.py`."""
        commit = self._resolver.resolve(at).commit
        range = path_range(first, before, below)
        return columns(self._persist, commit, range, with_content=with_content, wanted=wanted)

    def splits(self, at: At, parts: int) -> tuple[ContentKey, ...]:
        """Keys that cut a commit into at most `parts` ranges of about the same size."""
        if parts < 1:
            raise BadRequest("There must be at least one part")
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        found = (content_key(raw) for raw in split_keys(index, parts))
        return tuple(key for key in found if key is not None)

    def diff(
        self,
        before: At,
        after: At,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        keys: Sequence[ContentKey] = (),
        token: str | None = None,
    ) -> Listing[Diff]:
        """What changed from one commit to the other, in key order."""
        bounds = Bounds(min_key, max_key, prefix, tuple(keys), token)
        changed = self.changed(before, after, bounds)
        return Listing(
            lambda: (item for found in self.diffs_of(changed) for item in found),
            lambda item: key_token(store_key(item.key)),
        )

    def changed(self, before: At, after: At, bounds: Bounds) -> Listing[Stored]:
        """What `diff` has, before the contents are read. The listing has pauses."""
        one = index_of(self._persist, self._resolver.resolve(before).commit)
        other = index_of(self._persist, self._resolver.resolve(after).commit)
        keys, range = bounds.keys, bounds.range()

        def changed() -> Iterator[Stored | None]:
            found = (
                _compared(one, other, keys, range) if keys else diff_with_pauses(one, other, range)
            )
            return map(_stored_difference, found)

        return Listing(changed, _stored_token, has_pauses=True)

    def diffs_of(self, changed: Iterable[Stored]) -> Iterator[list[Diff]]:
        """Differences with their contents, in stretches of about 128 KiB."""
        for items, contents in with_contents(self._persist, changed):
            sides = zip(items, contents[::2], contents[1::2], strict=True)
            yield [Diff(item.key, was, now) for item, was, now in sides]

    def _looked_up(self, at: At, keys: Sequence[ContentKey]) -> Iterator[Stored]:
        """The keys with what the index has for them, in the order asked for, each once."""
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        for key in keys:
            check_key(key)
        return _stored(index, dict.fromkeys(keys))

    def _found(self, at: At, bounds: Bounds) -> Callable[[], Iterator[tuple[ContentKey, bytes]]]:
        """Begins to read the keys that a listing is of, with their index entries."""
        commit = self._resolver.resolve(at).commit
        index = index_of(self._persist, commit)
        if commit is None:  # Then nothing comes after any token: it is not even read.
            bounds = replace(bounds, token=None)
        keys, range = bounds.keys, bounds.range()

        def found() -> Iterator[tuple[ContentKey, bytes]]:
            stored = _lookup(index, keys, range) if keys else index.items(range)
            return ((key, op) for raw, op in stored if (key := content_key(raw)) is not None)

        return found


def _entry(stored: Stored, content: Content | None) -> Entry:
    assert content is not None, "an entry that exists has a value"
    return Entry(stored.key, stored.type, content.id or "", content)


def _stored_token(stored: Stored) -> str:
    return key_token(store_key(stored.key))


def _stored_difference(found: Difference | None) -> Stored | None:
    """None for a pause, and for what differs but is no content."""
    key = None if found is None else content_key(found[0])
    return None if found is None or key is None else Stored(key, found[1:])


def _stored(index: CommitIndex, keys: Iterable[ContentKey]) -> Iterator[Stored]:
    """The keys in the order asked for, with what the index has for them."""
    rest = iter(keys)
    while batch := {key: store_key(key) for key in islice(rest, _KEYS_AT_ONCE)}:
        index.preload(batch.values())
        for key, raw in batch.items():
            yield Stored(key, (index.get(raw),))


def _compared(
    one: CommitIndex, other: CommitIndex, keys: Iterable[ContentKey], range: KeyRange
) -> Iterator[Difference | None]:
    """The difference of each of the keys within the range, in key order; None for equal ones."""
    for batch in _sorted(keys, range):
        one.preload(batch)
        other.preload(batch)
        yield from (difference(one, other, raw) for raw in batch)


def _lookup(
    index: CommitIndex, keys: Iterable[ContentKey], range: KeyRange
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of those keys that exist within the range, in key order."""
    for batch in _sorted(keys, range):
        index.preload(batch)
        for raw in batch:
            op = index.get(raw)
            if op is not None:
                yield raw, op


def _sorted(keys: Iterable[ContentKey], range: KeyRange) -> Iterator[list[bytes]]:
    wanted = iter(sorted({raw for raw in map(store_key, keys) if raw in range}))
    while batch := list(islice(wanted, _KEYS_AT_ONCE)):
        yield batch
