"""The format of RocksDB's logs and manifests: entries in blocks of 32 KiB.

An entry is one record, or several if it does not fit into what is left of a block. A record has a
header of seven bytes: its checksum, the length of its data, its kind.

The entries of a log are batches of writes. They begin with the sequence number of the first write
and the number of writes, so the next batch begins where that one ends. RocksDB itself does not
check that.
"""

from __future__ import annotations

from struct import Struct as Layout
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from morag.backend.rocksdb.crc32c import masked_crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator
    from mmap import mmap
    from pathlib import Path

Buffer: TypeAlias = "bytes | mmap"

BLOCK: Final = 32 * 1024
HEADER: Final = Layout("<IHB")
BATCH: Final = Layout("<QI")
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4

_CHECKSUM_BYTES: Final = 4
_LOG_NUMBER_BYTES: Final = 4
"""A recycled log has its number in each header. Neither Morag nor Nessie recycle logs."""


TOO_SHORT: Final = "it ends within a record"
ZEROS: Final = "there are zeros to its end"
HOLE: Final = "there are zeros instead of a record"
WRONG_CHECKSUM: Final = "the checksum of a record is wrong"
TOO_LONG: Final = "a record is longer than its block"
OUT_OF_ORDER: Final = "the parts of a batch are not in order"
UNKNOWN_KIND: Final = "a record is of an unknown kind"


class Stop(Struct, frozen=True):
    """Where the complete entries end, and the reason if that is before the end of the file.

    `safe` is the end of the last complete entry, `offset` the start of the wrong record.
    """

    safe: int
    offset: int
    reason: str = ""


class LogReader:
    """Reads entries up to the first incomplete one, and then sets `stop`.

    Without `verify` it reads headers only. That is fast, and enough where RocksDB itself checks the
    checksums, which it does except for records of an unusual kind.
    """

    def __init__(self, data: Buffer, *, verify: bool) -> None:
        self._data, self._verify = data, verify
        self.stop = Stop(0, 0)

    def entries(self, most_bytes: int) -> Iterator[tuple[int, bytes]]:
        """Offset and data of each entry, with at most `most_bytes` of the data."""
        data, size = self._data, len(self._data)
        safe = offset = start = 0
        entry: bytes | None = None  # The entry that the next record continues.
        reason = ""
        while offset < size:
            left = BLOCK - offset % BLOCK
            if left < HEADER.size:  # Too little for a header: the writer fills it with zeros.
                offset += left
                continue
            kind, end, reason = self._record(offset, left)
            if not reason and (kind in (FULL, FIRST)) != (entry is None):
                reason = OUT_OF_ORDER
            if reason:
                break
            if entry is None:
                start, entry = offset, b""
            begin = offset + HEADER.size
            if (wanted := most_bytes - len(entry)) > 0:
                entry += data[begin : min(end, begin + wanted)]
            offset = end
            if kind in (FULL, LAST):
                yield start, entry
                safe, entry = end, None
        if not reason and entry is not None:
            reason = TOO_SHORT
        self.stop = Stop(safe, offset, reason)

    def _record(self, offset: int, left: int) -> tuple[int, int, str]:
        """Kind and end of the record at `offset`, and what is wrong with it, if anything is."""
        data = self._data
        if offset + HEADER.size > len(data):
            return 0, offset, TOO_SHORT if any(data[offset:]) else ZEROS
        _, length, kind = HEADER.unpack_from(data, offset)
        end = offset + HEADER.size + length
        if not kind and not length:
            return kind, end, HOLE if data[offset + _CHECKSUM_BYTES :].strip(b"\0") else ZEROS
        if not FULL <= kind <= LAST:
            # Always verified: with a flipped bit here, RocksDB takes the record for the end of the
            # log without an error, or reads it in an endless loop.
            ends = (end, end + _LOG_NUMBER_BYTES)
            known = any(is_intact(data, offset, each) for each in ends)
            return kind, end, UNKNOWN_KIND if known else WRONG_CHECKSUM
        if end - offset > left:
            return kind, end, TOO_LONG
        if end > len(data):
            return kind, end, TOO_SHORT
        if self._verify and not is_intact(data, offset, end):
            return kind, end, WRONG_CHECKSUM
        return kind, end, ""


def is_intact(data: Buffer, offset: int, end: int) -> bool:
    """Whether the checksum of the header at `offset` is that of what follows it up to `end`."""
    (crc, _, _) = HEADER.unpack_from(data, offset)
    return bool(masked_crc32c(data[offset + HEADER.size - 1 : end]) == crc)


def goes_on(data: Buffer, offset: int, sequence: int | None = None) -> bool:
    """Whether there is an intact record after the one at `offset`.

    In a log, a record that is not at the beginning of a block begins a batch, whose number must be
    close to `sequence`. This avoids computing most of the checksums.
    """
    for place in range(offset + 1, len(data) - HEADER.size):
        _, length, kind = HEADER.unpack_from(data, place)
        end = place + HEADER.size + length
        if not FULL <= kind <= LAST or end > len(data):
            continue
        if sequence is None or place % BLOCK == 0:
            is_plausible = True
        elif length >= BATCH.size and kind in (FULL, FIRST):
            number, _ = BATCH.unpack_from(data, place + HEADER.size)
            is_plausible = sequence <= number < sequence + (1 << 32)
        else:
            is_plausible = False
        if is_plausible and is_intact(data, place, end):
            return True
    return False


def is_cut_short(data: Buffer, stop: Stop, sequence: int | None = None) -> bool:
    """Whether the file ends within a record, and only the rest of that record is missing."""
    if stop.reason == ZEROS:
        return True
    if stop.reason != TOO_SHORT or goes_on(data, stop.offset, sequence):
        return False
    # If the existing part has the right checksum, the length is wrong and nothing is missing.
    has_header = len(data) - stop.offset >= HEADER.size
    return not (has_header and is_intact(data, stop.offset, len(data)))


def manifest_in(directory: Path) -> Path:
    """The manifest that is in use. Raises OSError or ValueError if nothing readable names it."""
    return directory / (directory / "CURRENT").read_text().rstrip("\n")


def logs_in(directory: Path) -> list[Path]:
    """The logs, oldest first. Raises OSError if they cannot be listed, unlike `glob`."""
    logs = (path for path in directory.iterdir() if path.suffix == ".log")
    return sorted((log for log in logs if log.stem.isdecimal()), key=lambda log: int(log.stem))
