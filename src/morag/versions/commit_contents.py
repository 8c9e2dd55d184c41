"""Reads the contents of a commit: single contents, listings, and diffs with another commit."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from morag.errors import BadRequest, ContentNotFound
from morag.format.content_values import content_of_value
from morag.format.index_entries import value_of
from morag.format.objects import Value
from morag.index.diff import diff_with_pauses, differences
from morag.index.keys import KeyRange, content_key, contents_range, store_key
from morag.index.layered import index_of, split_keys
from morag.model.content import TYPE_NAMES
from morag.model.entry_columns import ALL, WHOLE, columns_of_entries, path_of_key
from morag.model.keys import ContentKey, check_key
from morag.model.results import Diff, Entry
from morag.versions.columns import columns, path_range
from morag.versions.content_batches import CONTENT_BATCH_BYTES, FEW_ITEMS, Stored, with_contents
from morag.versions.encoded_contents import EncodedContents
from morag.versions.encoded_entries import encoded_entries
from morag.versions.entries import entry_of, type_payload
from morag.versions.listing import Listing, key_token, token_key
from morag.versions.screens import OPEN, screened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from morag.index.diff import Difference
    from morag.index.layered import CommitIndex
    from morag.model.content import Content
    from morag.model.entry_columns import Columns, EntryFilter, KeySpan
    from morag.persist.persist import Persist
    from morag.versions.encoded_entries import EncodedEntries
    from morag.versions.encoding import Encoding
    from morag.versions.resolve import At, Resolver
    from morag.versions.screens import Screen

KeyedT = TypeVar("KeyedT", Entry, Stored)

C = TypeVar("C")

LookedUp: TypeAlias = "tuple[Sequence[ContentKey], Sequence[bytes | None]]"
"""Some keys, and the index entry of each; None for a key that does not exist."""

PREFIX_RULE: Final = "Combining prefixKey with either minKey or maxKey is not supported."
_KEYS_AT_ONCE: Final = 100
_LARGE_BYTES: Final = 16 * 1024


class Bounds(Struct, frozen=True):
    """The selection of a listing: keys between two bounds or below a prefix, and only `keys` if
    there are any. A token continues after the previous page, even if that is before `min_key`."""

    min_key: ContentKey | None = None
    max_key: ContentKey | None = None
    prefix: ContentKey | None = None
    keys: tuple[ContentKey, ...] = ()
    token: str | None = None

    def range(self) -> KeyRange:
        if self.prefix is not None and (self.min_key is not None or self.max_key is not None):
            raise BadRequest(PREFIX_RULE)
        min_key = None if self.token else self.min_key
        for bound in (min_key, self.max_key, self.prefix, *self.keys):
            if bound is not None:
                check_key(bound)
        range = contents_range(min_key, self.max_key, self.prefix, self.keys)
        return range.within(KeyRange(token_key(self.token))) if self.token else range


class Unencoded(Struct, frozen=True, gc=False):
    """A content that is not encoded yet, because a large one takes many milliseconds."""

    value: Value
    encode: Callable[[Value], bytes]

    @property
    def is_large(self) -> bool:
        return len(self.value.data) > _LARGE_BYTES

    def encoded(self) -> bytes:
        return self.encode(self.value)


class CommitContents:
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
        value = self._value(at, key)
        return None if value is None else content_of_value(value)

    def find_unencoded(
        self, at: At, key: ContentKey, encoding: Encoding[Content]
    ) -> Unencoded | None:
        """Like `find`, before the content is encoded."""
        value = self._value(at, key)
        encode = EncodedContents(self._persist, encoding).of
        return None if value is None else Unencoded(value, encode)

    def unencoded(
        self, at: At, keys: Sequence[ContentKey], encoding: Encoding[Content]
    ) -> list[tuple[ContentKey, Unencoded]]:
        """Like `get_all` of checked keys, before the contents are encoded."""
        encode = EncodedContents(self._persist, encoding).of
        looked_up = _pairs(self._looked_up(at, keys))
        found = {key: value_of(op) for key, op in looked_up if op is not None}
        values = self._persist.fetch_all(Value, list(found.values()))
        return [(key, Unencoded(value, encode)) for key, value in zip(found, values, strict=True)]

    def get_all(self, at: At, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of the keys that exist, in the requested order."""
        return {key: found for batch in self.get_some(at, keys) for key, found in batch}

    def get_some(
        self, at: At, keys: Sequence[ContentKey]
    ) -> Iterator[list[tuple[ContentKey, Content]]]:
        """Like `get_all`, in chunks of about 128 KiB, any of which may be empty."""
        looked_up = self._looked_up(at, keys)
        for key in keys:
            check_key(key)
        return self._contents_of(_pairs(looked_up), content_of_value)

    def encoded(
        self, at: At, keys: Sequence[ContentKey], encoding: Encoding[Content]
    ) -> Iterator[list[tuple[ContentKey, bytes]]]:
        """Like `get_some` of checked keys, encoded."""
        return self._encoded(self._looked_up(at, keys), EncodedContents(self._persist, encoding))

    def keys(
        self,
        at: At,
        *,
        min_key: ContentKey | None = None,
        max_key: ContentKey | None = None,
        prefix: ContentKey | None = None,
        token: str | None = None,
    ) -> Listing[ContentKey]:
        """Only the keys, which is the fastest listing."""
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        range = Bounds(min_key, max_key, prefix, (), token).range()

        def keys() -> Iterator[ContentKey]:
            return (k for raw, _ in index.items(range) if (k := content_key(raw)) is not None)

        return Listing(keys, lambda key: key_token(store_key(key)))

    def has_between(self, at: At, low: ContentKey, high: ContentKey) -> bool:
        """Whether the commit has a key between the two, or removed one."""
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
            _token,
        )

    def plain_entries(self, at: At, bounds: Bounds, screen: Screen = OPEN) -> Listing[Entry]:
        """Like `entries` without content, and without those that the screen refuses."""

        def entry(key: ContentKey, op: bytes) -> Entry:
            return entry_of(self._persist, key, op)

        return self._listing(at, bounds, screen, entry)

    def encoded_entries(
        self, at: At, bounds: Bounds, encoding: Encoding[Entry]
    ) -> Iterator[EncodedEntries]:
        """Like `plain_entries` of bounds without `keys`, encoded, in batches."""
        assert not bounds.keys, "a lookup of keys is not a run of entries"
        index, range = self._selected(at, bounds)
        return encoded_entries(self._persist, index.runs(range), encoding)

    def stored(self, at: At, bounds: Bounds, screen: Screen = OPEN) -> Listing[Stored]:
        """Like `entries` with content, before the contents are read, and without those that the
        screen refuses."""

        def stored(key: ContentKey, op: bytes) -> Stored:
            return Stored(key, (op,), TYPE_NAMES[type_payload(self._persist, op)])

        return self._listing(at, bounds, screen, stored)

    def entries_of(self, stored: Iterable[Stored]) -> Iterator[list[Entry]]:
        """Entries with their contents, in chunks of about 128 KiB."""
        for items, contents in with_contents(self._persist, stored, content_of_value):
            yield list(map(_entry, items, contents))

    def columns(
        self,
        at: At,
        *,
        span: KeySpan = WHOLE,
        selected: EntryFilter = ALL,
        with_content: bool = False,
    ) -> Iterator[Columns]:
        """Like `entries`, in columns, for large numbers of entries (`versions/columns.py`)."""
        if selected.key is not None:
            return self._columns_of_key(at, selected.key, span, selected, with_content)
        return columns(
            self._persist,
            self._resolver.resolve(at).commit,
            path_range(span),
            with_content=with_content,
            wanted=None if selected.accepts_all else selected.accepts,
        )

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
        """The differences between two commits, in key order."""
        bounds = Bounds(min_key, max_key, prefix, tuple(keys), token)
        changed = self.changed(before, after, bounds)
        return Listing(
            lambda: (item for found in self.diffs_of(changed) for item in found),
            _token,
        )

    def changed(
        self, before: At, after: At, bounds: Bounds, screen: Screen = OPEN
    ) -> Listing[Stored]:
        """Like `diff`, before the contents are read, and without keys outside the range of the
        screen. The listing has pauses."""
        one = index_of(self._persist, self._resolver.resolve(before).commit)
        other = index_of(self._persist, self._resolver.resolve(after).commit)
        keys, range = bounds.keys, bounds.range().within(screen.range)

        def changed() -> Iterator[Stored | None]:
            if keys:
                found = differences(one, other, _sorted(keys, range))
            else:
                found = diff_with_pauses(one, other, range)
            return map(_stored_difference, found)

        return Listing(changed, _token, has_pauses=True)

    def diffs_of(self, changed: Iterable[Stored]) -> Iterator[list[Diff]]:
        """Differences with their contents, in chunks of about 128 KiB."""
        for batch in self._sides(changed, content_of_value):
            yield [Diff(*found) for found in batch]

    def encoded_diffs_of(
        self, changed: Iterable[Stored], encoding: Encoding[Content]
    ) -> Iterator[list[tuple[ContentKey, bytes | None, bytes | None]]]:
        """Like `diffs_of`: keys, and their contents before and after, encoded."""
        return self._sides(changed, EncodedContents(self._persist, encoding).of)

    def _value(self, at: At, key: ContentKey) -> Value | None:
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        check_key(key)
        op = index.get(store_key(key))
        return None if op is None else self._persist.fetch(Value, value_of(op))

    def _encoded(
        self, looked_up: Iterator[LookedUp], contents: EncodedContents
    ) -> Iterator[list[tuple[ContentKey, bytes]]]:
        """The contents of the keys that exist.

        Values are not needed as long as their contents were encoded before, which is usual: clients
        read the same tables many times.
        """
        for keys, ops in looked_up:
            kept = contents.kept([value_of(op) for op in ops if op is not None])
            if kept is None or sum(map(len, kept)) > CONTENT_BATCH_BYTES:
                rest = _pairs(chain([(keys, ops)], looked_up))
                yield from self._contents_of(rest, contents.of)
                return
            yield list(zip(_existing(keys, ops), kept, strict=True))

    def _contents_of(
        self, looked_up: Iterable[tuple[ContentKey, bytes | None]], content_of: Callable[[Value], C]
    ) -> Iterator[list[tuple[ContentKey, C]]]:
        stored = (Stored(key, (op,)) for key, op in looked_up)
        for items, contents in with_contents(self._persist, stored, content_of, FEW_ITEMS):
            pairs = zip(items, contents, strict=True)
            yield [(item.key, content) for item, content in pairs if content is not None]

    def _sides(
        self, changed: Iterable[Stored], content_of: Callable[[Value], C]
    ) -> Iterator[list[tuple[ContentKey, C | None, C | None]]]:
        for items, contents in with_contents(self._persist, changed, content_of):
            keys = [item.key for item in items]
            yield list(zip(keys, contents[::2], contents[1::2], strict=True))

    def _columns_of_key(
        self, at: At, key: ContentKey, span: KeySpan, selected: EntryFilter, with_content: bool
    ) -> Iterator[Columns]:
        found = span.cut(self.entries(at, keys=(key,), with_content=with_content))
        kept = [each for each in found if selected.accepts(path_of_key(each.key), each.type)]
        if kept:
            yield columns_of_entries(kept, with_content=with_content)

    def _looked_up(self, at: At, keys: Iterable[ContentKey]) -> Iterator[LookedUp]:
        """The keys in the requested order, each once."""
        return _look_ups(index_of(self._persist, self._resolver.resolve(at).commit), keys)

    def _listing(
        self, at: At, bounds: Bounds, screen: Screen, make: Callable[[ContentKey, bytes], KeyedT]
    ) -> Listing[KeyedT]:
        """What `make` makes of the selected keys and their index entries. The listing has pauses
        if the screen has a verdict."""
        index, selected = self._selected(at, bounds)
        keys, range = bounds.keys, selected.within(screen.range)
        verdict = screen.verdict

        def items() -> Iterator[KeyedT | None]:
            found = _lookup(index, keys, range) if keys else index.items(range)
            if verdict is not None:
                return screened(self._persist, found, verdict, make)
            return (make(key, op) for raw, op in found if (key := content_key(raw)) is not None)

        return Listing(items, _token, has_pauses=verdict is not None)

    def _selected(self, at: At, bounds: Bounds) -> tuple[CommitIndex, KeyRange]:
        commit = self._resolver.resolve(at).commit
        if commit is None:  # Nothing comes after any token, so the token is not parsed.
            bounds = replace(bounds, token=None)
        return index_of(self._persist, commit), bounds.range()


def _entry(stored: Stored, content: Content | None) -> Entry:
    assert content is not None, "an existing entry has a value"
    return Entry(stored.key, stored.type, content.id or "", content)


def _token(item: Entry | Diff | Stored) -> str:
    return key_token(store_key(item.key))


def _stored_difference(found: Difference | None) -> Stored | None:
    """None for a pause, and for a difference that is not content."""
    key = None if found is None else content_key(found[0])
    return None if found is None or key is None else Stored(key, found[1:])


def _look_ups(index: CommitIndex, keys: Iterable[ContentKey]) -> Iterator[LookedUp]:
    rest = iter(dict.fromkeys(keys))
    while batch := list(islice(rest, _KEYS_AT_ONCE)):
        raw_keys = [store_key(key) for key in batch]
        ops = index.get_all(raw_keys)
        yield batch, list(map(ops.get, raw_keys))


def _pairs(looked_up: Iterable[LookedUp]) -> Iterator[tuple[ContentKey, bytes | None]]:
    return chain.from_iterable(zip(keys, ops, strict=True) for keys, ops in looked_up)


def _existing(keys: Sequence[ContentKey], ops: Sequence[bytes | None]) -> Sequence[ContentKey]:
    if None not in ops:
        return keys
    return [key for key, op in zip(keys, ops, strict=True) if op is not None]


def _lookup(
    index: CommitIndex, keys: Iterable[ContentKey], range: KeyRange
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of the keys that exist within the range, in key order."""
    rest = iter(_sorted(keys, range))
    while batch := list(islice(rest, _KEYS_AT_ONCE)):
        ops = index.get_all(batch)
        yield from ((raw, ops[raw]) for raw in batch if raw in ops)


def _sorted(keys: Iterable[ContentKey], range: KeyRange) -> list[bytes]:
    return sorted({raw for raw in map(store_key, keys) if raw in range})
