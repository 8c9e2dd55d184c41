"""What is on a commit: single contents, listings, and differences to another commit."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from morag.errors import BadRequest, ContentNotFound
from morag.index.diff import diff
from morag.index.keys import KeyRange, content_key, contents_range, store_key
from morag.index.layered import index_of
from morag.index.ops import value_of
from morag.index.splits import split_keys
from morag.model.content import TYPE_NAMES
from morag.model.keys import check_key
from morag.model.listed import Diff, Entry
from morag.persist.objects import Value
from morag.versions.columns import columns, path_range
from morag.versions.contents import content_of_value
from morag.versions.entries import content_id_text, type_payload
from morag.versions.listing import Listing, key_token, token_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from morag.index.layered import CommitIndex
    from morag.model.content import Content
    from morag.model.keys import ContentKey
    from morag.persist.persist import Persist
    from morag.versions.columns import Columns
    from morag.versions.resolve import At, Resolver

_VALUES_AT_ONCE: Final = 100


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
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        check_key(key)
        op = index.get(store_key(key))
        return None if op is None else content_of_value(self._persist.fetch(Value, value_of(op)))

    def get_all(self, at: At, keys: Sequence[ContentKey]) -> dict[ContentKey, Content]:
        """The contents of those keys that exist, in the order asked for."""
        index = index_of(self._persist, self._resolver.resolve(at).commit)
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        wanted = {key: store_key(key) for key in keys}
        index.preload(wanted.values())
        ops = {key: op for key, raw in wanted.items() if (op := index.get(raw)) is not None}
        return dict(zip(ops, self._contents(ops.values()), strict=True))

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
        range = _range(min_key, max_key, prefix, (), token)

        def keys() -> Iterator[ContentKey]:
            return (k for raw, _ in index.items(range) if (k := content_key(raw)) is not None)

        return Listing(keys, lambda key: key_token(store_key(key)))

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
        keys = tuple(keys)
        commit = self._resolver.resolve(at).commit
        index = index_of(self._persist, commit)
        # Where there are no commits, nothing comes after any token: it is not even read.
        range = _range(min_key, max_key, prefix, keys, None if commit is None else token)

        def entries() -> Iterator[Entry]:
            stored = _lookup(index, keys, range) if keys else index.items(range)
            found = ((key, op) for raw, op in stored if (key := content_key(raw)) is not None)
            return self._entries(found, with_content)

        return Listing(entries, _entry_token)

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
        keys = tuple(keys)
        one = index_of(self._persist, self._resolver.resolve(before).commit)
        other = index_of(self._persist, self._resolver.resolve(after).commit)
        range = _range(min_key, max_key, prefix, keys, token)
        wanted = frozenset(keys)

        def diffs() -> Iterator[Diff]:
            found = (
                (key, was, now)
                for raw, was, now in diff(one, other, range)
                if (key := content_key(raw)) is not None and (not wanted or key in wanted)
            )
            return self._diffs(found)

        return Listing(diffs, lambda item: key_token(store_key(item.key)))

    def _entries(
        self, found: Iterator[tuple[ContentKey, bytes]], with_content: bool
    ) -> Iterator[Entry]:
        if not with_content:
            for key, op in found:
                type = TYPE_NAMES[type_payload(self._persist, op)]
                yield Entry(key, type, content_id_text(self._persist, op))
            return
        while batch := list(islice(found, _VALUES_AT_ONCE)):
            contents = self._contents(op for _, op in batch)
            for (key, op), content in zip(batch, contents, strict=True):
                type = TYPE_NAMES[type_payload(self._persist, op)]
                yield Entry(key, type, content.id or "", content)

    def _diffs(
        self, found: Iterator[tuple[ContentKey, bytes | None, bytes | None]]
    ) -> Iterator[Diff]:
        while batch := list(islice(found, _VALUES_AT_ONCE)):
            ops = [op for _, was, now in batch for op in (was, now) if op is not None]
            contents = self._contents(ops)
            for key, was, now in batch:
                yield Diff(
                    key,
                    None if was is None else next(contents),
                    None if now is None else next(contents),
                )

    def _contents(self, ops: Iterable[bytes]) -> Iterator[Content]:
        values = self._persist.fetch_all(Value, [value_of(op) for op in ops])
        return map(content_of_value, values)


def _entry_token(entry: Entry) -> str:
    return key_token(store_key(entry.key))


def _lookup(
    index: CommitIndex, keys: Iterable[ContentKey], range: KeyRange
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of those keys that exist within the range, in key order."""
    wanted = iter(sorted({raw for raw in map(store_key, keys) if raw in range}))
    while batch := list(islice(wanted, _VALUES_AT_ONCE)):
        index.preload(batch)
        for raw in batch:
            op = index.get(raw)
            if op is not None:
                yield raw, op


def _range(
    min_key: ContentKey | None,
    max_key: ContentKey | None,
    prefix: ContentKey | None,
    keys: Iterable[ContentKey],
    token: str | None,
) -> KeyRange:
    """What a client asked for, from where it stopped the last time, be that before `min_key`."""
    if prefix is not None and (min_key is not None or max_key is not None):
        raise BadRequest("Combining prefixKey with either minKey or maxKey is not supported.")
    range = contents_range(None if token else min_key, max_key, prefix, keys)
    return range.within(KeyRange(token_key(token))) if token else range
