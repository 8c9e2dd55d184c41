"""Checks that RocksDB's logs hold all that was written, before RocksDB replays them.

RocksDB replays a damaged log up to the damage, reports nothing, and then deletes the log. A crash
of the machine may leave the end of a log unfinished, which is no damage: that end was never synced.
Three facts distinguish the two: how much is known to be synced, whether intact records follow, and
whether the end looks like a write that was cut short. In doubt it is damage.
"""

from __future__ import annotations

import mmap
import os
import shutil
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.rocksdb.manifest import logs_needed
from morag.backend.rocksdb.write_ahead_log import (
    BATCH,
    UNKNOWN_KIND,
    WRONG_CHECKSUM,
    LogReader,
    goes_on,
    is_cut_short,
    logs_in,
)
from morag.backend.store_files import name_for_copy

if TYPE_CHECKING:
    from morag.backend.rocksdb.manifest import LogsNeeded
    from morag.backend.rocksdb.write_ahead_log import Buffer, Stop

_SECTOR: Final = 512
_FEW_ZEROS: Final = 16
"""This many zeros at the end of a batch mean data that was not written."""


class LostWrites(Struct, frozen=True):
    """Writes that are missing: the log and the byte where they should be, if there is a log.

    Up to `safe` the log can be used.
    """

    reason: str
    log: Path | None = None
    offset: int = 0
    safe: int = 0

    def __str__(self) -> str:
        if self.log is None:
            return self.reason
        return f"its log '{self.log.name}' is damaged at byte {self.offset}: {self.reason}"


class Unfinished(Struct, frozen=True):
    """A log whose end after `safe` was never finished, so that nothing is lost with it."""

    log: Path
    safe: int


class Findings(Struct, frozen=True):
    """The result of reading the logs. `newest` is the last sequence number in them."""

    newest: int = 0
    damage: LostWrites | None = None
    unfinished: Unfinished | None = None


def look(directory: Path, synced: int) -> Findings:
    """Read the logs without computing checksums, which takes milliseconds."""
    return _look(directory, synced, verify=False)


def examine(directory: Path, synced: int) -> Findings:
    """Read the logs and check all checksums, at some MB/s: for logs that RocksDB has refused."""
    return _look(directory, synced, verify=True)


def cut_off(end: Unfinished) -> None:
    """Remove the unfinished end. A mode in which RocksDB skips it would skip damage, too."""
    os.truncate(end.log, end.safe)
    _sync(end.log)


def leave_out(directory: Path, damage: LostWrites) -> str:
    """Cut the logs off where they can no longer be used, and keep copies of what is cut off.

    Returns the end of a sentence that describes that.
    """
    if damage.log is None:
        return "there is nothing to keep of it"
    number, kept = _number(damage.log), []
    for log in logs_in(directory):
        if _number(log) < number:
            continue
        copy = name_for_copy(log)
        if _number(log) == number:
            shutil.copyfile(log, copy)
            _sync(copy)
            os.truncate(log, damage.safe)
            _sync(log)
        else:
            log.rename(copy)
        kept.append(copy.name)
    _sync(directory)
    return f"{damage.log.name} is used up to byte {damage.safe}, the rest is kept in " + ", ".join(
        f"'{name}'" for name in kept
    )


def _look(directory: Path, synced: int, *, verify: bool) -> Findings:
    needed = logs_needed(directory)
    if needed is None:
        return Findings()  # There is no store yet, or RocksDB reports the problem.
    with ExitStack() as opened:
        contents = []
        for log in logs_in(directory):
            # The writer may delete it meanwhile. If it is needed, the check below finds the gap.
            with suppress(FileNotFoundError):
                file = opened.enter_context(log.open("rb"))
                if _number(log) >= needed.oldest and os.fstat(file.fileno()).st_size:
                    held = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                    contents.append((log, opened.enter_context(closing(held))))
        return _judged(contents, needed, synced, verify=verify)


def _judged(
    logs: list[tuple[Path, mmap.mmap]], needed: LogsNeeded, synced: int, *, verify: bool
) -> Findings:
    newest, following = needed.last_sequence, None
    for index, (log, held) in enumerate(logs):
        reader = LogReader(held, verify=verify)
        for offset, head in reader.entries(BATCH.size):
            if len(head) < BATCH.size:
                return Findings(newest, LostWrites("a batch is too short", log, offset, offset))
            sequence, count = BATCH.unpack(head)
            wanted = min(sequence, newest + 1) if following is None else following
            if sequence != wanted:
                reason = f"write {sequence} comes where write {wanted} should"
                return Findings(newest, LostWrites(reason, log, offset, offset))
            following = sequence + count
            newest = max(newest, following - 1)
        stop = reader.stop
        if not stop.reason:
            continue
        if stop.reason == UNKNOWN_KIND and not verify:
            return Findings(newest)  # RocksDB decides whether it can read the record.
        reason = stop.reason
        if newest < synced:
            reason += f", and writes {newest + 1} to {synced} are missing, which were synced"
        elif not _is_continued(logs[index + 1 :]) and _is_unfinished(held, stop, newest + 1):
            return Findings(newest, unfinished=Unfinished(log, stop.safe))
        return Findings(newest, LostWrites(reason, log, stop.offset, stop.safe))
    if newest < synced:
        reason = f"writes {newest + 1} to {synced} are missing from its files, which were synced"
        return Findings(newest, LostWrites(reason))
    return Findings(newest)


def _is_continued(later: list[tuple[Path, mmap.mmap]]) -> bool:
    return any(held[:].strip(b"\0") for _, held in later)


def _is_unfinished(held: Buffer, stop: Stop, sequence: int) -> bool:
    """Whether the end of the last log looks like that of a write which the machine cut short."""
    if stop.reason == WRONG_CHECKSUM:
        unwritten = _has_unwritten_part(held[stop.offset :], stop.offset)
        return unwritten and not goes_on(held, stop.offset, sequence)
    return is_cut_short(held, stop, sequence)


def _has_unwritten_part(record: bytes, offset: int) -> bool:
    """Whether a part never reached the disk: there are zeros to the end, or in a whole sector."""
    if record.endswith(bytes(_FEW_ZEROS)):
        return True
    first = -offset % _SECTOR
    return any(
        record[at : at + _SECTOR] == bytes(_SECTOR) for at in range(first, len(record), _SECTOR)
    )


def _number(log: Path) -> int:
    return int(log.stem)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
