"""Reads the history of a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.format.commit_headers import meta_of
from morag.format.content_values import content_of_value
from morag.format.ids import NO_ANCESTOR
from morag.format.index_entries import exists
from morag.format.objects import Commit
from morag.index.keys import content_key
from morag.index.layered import index_of
from morag.logic import history
from morag.logic.consistency import check_commit
from morag.model.names import check_hash
from morag.model.operations import Delete, Put
from morag.model.results import LogEntry, LogExtent
from morag.persist.persist import Form
from morag.versions.content_batches import Stored, with_contents
from morag.versions.listing import Listing
from morag.versions.resolve import object_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from morag.format.records import ObjId
    from morag.logic.consistency import CommitStatus
    from morag.model.refspecs import RefSpec
    from morag.persist.persist import Persist
    from morag.versions.encoding import Encoding
    from morag.versions.resolve import At, Resolver

# Decoded once and kept. More would hold too much memory for a slow reader.
_FEW_ENTRIES: Final = 1_000

_OVERHEAD_BYTES: Final = 320  # A struct, its hash and its bytes, and its place in the cache.


class EncodedLogEntry(Struct, frozen=True, gc=False):
    """A commit of the log, in the form that a caller encodes it in."""

    hash: str
    encoded: bytes


class History:
    """Reads commits and their ancestry."""

    def __init__(self, persist: Persist, resolver: Resolver) -> None:
        self._persist = persist
        self._resolver = resolver

    def log(
        self,
        at: At,
        *,
        until: str | None = None,
        with_operations: bool = False,
        token: str | None = None,
    ) -> Listing[LogEntry]:
        """The commit and its first parents, newest first, down to the hash `until`, inclusive."""
        start, last = self._start(at, token), _hash(until)

        def entries() -> Iterator[LogEntry]:
            commits = history.log(self._persist, start)
            return (self._entry(commit, with_operations) for commit in commits)

        listing = Listing(entries, lambda entry: entry.meta.hash or "")
        return listing if last is None else listing.through(lambda e: e.meta.hash == last)

    def encoded_log(self, at: At, encoding: Encoding[LogEntry]) -> Listing[EncodedLogEntry]:
        """Like `log` without operations, encoded. A commit never changes, so its encoded form is
        kept with it in the object cache."""
        start = self._resolver.resolve(at).id

        def encode(commit: Commit) -> EncodedLogEntry:
            entry = self._entry(commit, with_operations=False)
            return EncodedLogEntry(commit.id.hex(), encoding.encode([entry])[0])

        form = Form(encoding.name, encode, _memory_bytes)

        def entries() -> Iterator[EncodedLogEntry]:
            commits = history.log(self._persist, start)
            return (self._persist.form(commit, form) for commit in commits)

        return Listing(entries, lambda entry: entry.hash)

    def hashes(self, at: At, *, until: str | None = None, token: str | None = None) -> Listing[str]:
        """Only the hashes, which takes a twentieth of the reads."""
        start, last = self._start(at, token), _hash(until)

        def hashes() -> Iterator[str]:
            return (id.hex() for id in history.log_ids(self._persist, start))

        listing = Listing(hashes, str)
        return listing if last is None else listing.through(lambda found: found == last)

    def extent(self, at: At) -> LogExtent:
        """The commit where the log starts, and the number of its commits."""
        found = self._resolver.resolve(at)
        return LogExtent(found.hash, 0 if found.commit is None else found.commit.seq)

    def merge_base(self, one: At, other: At) -> str | None:
        """The hash of the best common ancestor over all parents."""
        left, right = self._resolver.resolve(one).commit, self._resolver.resolve(other).commit
        if left is None or right is None:
            return None
        base = history.merge_base(self._persist, left, right)
        return None if base is None else base.id.hex()

    def check(self, at: str | RefSpec) -> CommitStatus:
        """Verify everything that the commit needs, and name what is missing or damaged."""
        return check_commit(self._persist, self._resolver.locate(at))

    def _start(self, at: At, token: str | None) -> ObjId:
        if token:
            commit = history.find_commit(self._persist, object_id(check_hash(token)))
            return NO_ANCESTOR if commit is None else commit.id
        return self._resolver.resolve(at).id

    def operations(self, hash: str) -> Iterator[list[Put | Delete]]:
        """The operations of a commit, in chunks of about 128 KiB: first the removes, then the puts,
        both in key order."""
        index = index_of(self._persist, self._persist.fetch(Commit, object_id(hash)))
        entries: Callable[[], Iterable[tuple[bytes, bytes]]] = index.operations
        if len(index.incremental) <= _FEW_ENTRIES:
            entries = list(entries()).__iter__
        yield from self._batches(entry for entry in entries() if not exists(entry[1]))
        yield from self._batches(entry for entry in entries() if exists(entry[1]))

    def with_operations(self, entry: LogEntry) -> LogEntry:
        commit = self._persist.fetch(Commit, object_id(entry.meta.hash or ""))
        return self._entry(commit, with_operations=True)

    def _entry(self, commit: Commit, with_operations: bool) -> LogEntry:
        operations = None
        if with_operations:
            batches = self._batches(index_of(self._persist, commit).operations())
            operations = tuple(operation for batch in batches for operation in batch)
        meta = meta_of(commit)
        return LogEntry(meta, meta.parents[0], operations)

    def _batches(self, entries: Iterable[tuple[bytes, bytes]]) -> Iterator[list[Put | Delete]]:
        """Index entries as operations, without keys that are not content."""
        found = (
            Stored(key, (op if exists(op) else None,))
            for raw, op in entries
            if (key := content_key(raw)) is not None
        )
        for items, contents in with_contents(self._persist, found, content_of_value):
            yield [
                Delete(item.key) if content is None else Put(item.key, content)
                for item, content in zip(items, contents, strict=True)
            ]


def _hash(text: str | None) -> str | None:
    return None if text is None else check_hash(text)


def _memory_bytes(entry: EncodedLogEntry) -> int:
    return _OVERHEAD_BYTES + len(entry.encoded)
