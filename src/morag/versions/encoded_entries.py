"""The entries of a commit in the form that a caller encodes them in, such as JSON.

A stripe never changes, so its encoded entries are kept with it in the object cache: a listing
encodes only what changed since the last one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.index.directory import segment_of
from morag.index.keys import content_key
from morag.persist.persist import Form
from morag.versions.entries import entry_of
from morag.versions.listing import key_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from morag.format.objects import Index
    from morag.index.layered import Run
    from morag.model.results import Entry
    from morag.persist.persist import Persist
    from morag.versions.encoding import Encoding

_MOST_AT_ONCE: Final = 1_000
"""Longer stripes, which other servers may have written, would take too long to encode at once."""
_OVERHEAD_BYTES: Final = 50  # A `bytes` object, and the places of key and entry in their tuples.


class EncodedEntries(Struct, frozen=True, gc=False):
    """Some entries in key order: their store keys, and each of them encoded."""

    keys: tuple[bytes, ...]
    encoded: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def token(self, at: int) -> str:
        """The token of a page that starts at this entry."""
        return key_token(self.keys[at])

    def between(self, first: bytes, last: bytes) -> EncodedEntries:
        """The entries from one key to another, both inclusive."""
        low, high = bisect_left(self.keys, first), bisect_right(self.keys, last)
        return EncodedEntries(self.keys[low:high], self.encoded[low:high])


def encoded_entries(
    persist: Persist, runs: Iterable[Run], encoding: Encoding[Entry]
) -> Iterator[EncodedEntries]:
    """All entries of the runs, without keys that are not content."""

    def encode(entries: Iterable[tuple[bytes, bytes]]) -> EncodedEntries:
        found = [
            (raw, entry_of(persist, key, op))
            for raw, op in entries
            if (key := content_key(raw)) is not None
        ]
        encoded = encoding.encode([entry for _, entry in found])
        return EncodedEntries(tuple([raw for raw, _ in found]), tuple(encoded))

    def encode_stripe(stripe: Index) -> EncodedEntries:
        return encode(segment_of(stripe).items())

    form = Form(encoding.name, encode_stripe, _memory_bytes)
    for run in runs:
        keys = run.segment.keys
        if run.stripe is None or len(keys) > _MOST_AT_ONCE:
            entries = run.items()
            while batch := list(islice(entries, _MOST_AT_ONCE)):
                yield encode(batch)
            continue
        encoded = persist.form(run.stripe, form)
        is_whole = run.high - run.low == len(keys)
        yield encoded if is_whole else encoded.between(keys[run.low], keys[run.high - 1])


def _memory_bytes(entries: EncodedEntries) -> int:
    """Without the keys themselves: the stripe holds them, too."""
    return sum(map(len, entries.encoded)) + _OVERHEAD_BYTES * len(entries)
