"""Reads from RocksDB that report damage as an error."""

from __future__ import annotations

import sys
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from rocksdict import ReadOptions

from morag.backend.ordered_keys import after, id_range, is_row_id
from morag.backend.rocksdb.errors import READING
from morag.format.records import ObjId
from morag.format.rows import decode_or_keep, decode_row, may_be_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rocksdict import Rdict, RdictIter

    from morag.backend.base import Slice
    from morag.format.records import Row

SCAN_AT_ONCE: Final = 500
FEW: Final = 16


class RocksDBReads:
    """Reads values and ranges of the column families of one store."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def one(self, family: Rdict, key: bytes) -> bytes | None:
        try:
            value: bytes | None = family.get(key)
        except Exception as error:
            raise READING.translate(error, self._path) from error
        return value

    def several(self, family: Rdict, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, `None` where there is none.

        Reading a list releases the interpreter's lock, which is worth it only for many keys: under
        load, getting the lock back can take longer than a whole commit.
        """
        try:
            if len(keys) <= FEW:
                return [family.get(key) for key in keys]
            found: Any = family.get(list(keys))
        except Exception as error:
            raise READING.translate(error, self._path) from error
        return list(found)

    def scan(self, family: Rdict, low: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All entries from `low` up to `end`, in pieces: an open iterator would outlive `close`."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        is_last = False
        while not is_last:
            try:
                piece: list[Any] = list(
                    islice(family.items(from_key=low, read_opt=bounds), SCAN_AT_ONCE)
                )
                is_last = len(piece) < SCAN_AT_ONCE
                low = piece[-1][0] + b"\0" if piece else low
                if is_last:
                    _check_after(family.iter(bounds), low)
            except Exception as error:
                raise READING.translate(error, self._path) from error
            yield from piece

    def rows(
        self, family: Rdict, prefix: bytes, part: Slice, kinds: frozenset[str]
    ) -> Iterator[Row]:
        """The rows of a part of a repository, only of the given kinds if any are given."""
        low, high = id_range(part)
        end = after(prefix) if high is None else prefix + high
        for key, message in self.scan(family, prefix + low, end):
            if kinds and not may_be_of(message, kinds):
                continue
            id = ObjId(key[len(prefix) :])
            if is_row_id(id):
                row = decode_row(id, message) if kinds else decode_or_keep(id, message)
                if not kinds or row.kind in kinds:
                    yield row

    def last(
        self, family: Rdict, prefix: bytes, end: bytes, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """The last entries before `end` whose keys have the prefix, the last one first."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(end)
        # A lower bound would be simpler, but rocksdict ignores it.
        try:
            found: Iterator[Any] = family.items(backwards=True, read_opt=bounds)
            ours = takewhile(lambda entry: entry[0].startswith(prefix), found)
            entries = list(islice(ours, min(limit, sys.maxsize)))
            if len(entries) < limit:
                _check_before(family.iter(bounds), entries[-1][0] if entries else None)
        except Exception as error:
            raise READING.translate(error, self._path) from error
        return entries


# Iterating over entries with rocksdict ends at damage without an error, as if there were no more.
# So these functions check the status of RocksDB's own iterator where entries seem to end.


def _check_after(beyond: RdictIter, key: bytes) -> None:
    beyond.seek(key)
    beyond.status()


def _check_before(beyond: RdictIter, key: bytes | None) -> None:
    if key is None:
        beyond.seek_to_last()
    else:
        beyond.seek_for_prev(key)
        beyond.prev()
    beyond.status()
