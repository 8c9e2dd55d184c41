"""Reads RocksDB's manifest: finds the logs that are still needed, and checks for damage."""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.rocksdb.write_ahead_log import LogReader, is_cut_short, manifest_in
from morag.protobuf import read_varint

if TYPE_CHECKING:
    from pathlib import Path

    from morag.backend.rocksdb.synced_note import Synced

# The fields of an edit, by number and by the form of their values.
_NUMBER: Final = frozenset({3, 9, 203})
_TEXT: Final = frozenset({1, 201})
_LOG, _LAST_SEQUENCE, _CURSOR, _DELETED_FILE, _OLDEST_LOG = 2, 4, 5, 6, 10
_NEW_FILE, _FAMILY, _DROP, _MORE_IN_GROUP = 103, 200, 202, 300
_END_OF_FILE_FIELDS: Final = 1
_IGNORABLE: Final = 1 << 13
"""Set in the number of fields that an older RocksDB may skip. All of them are texts."""


class LogsNeeded(Struct, frozen=True):
    """Logs below `oldest` are in tables already. No log begins after `last_sequence + 1`."""

    oldest: int
    last_sequence: int


def logs_needed(directory: Path) -> LogsNeeded | None:
    """`None` if there is no manifest that can be read."""
    try:
        return _summary(LogReader(manifest_in(directory).read_bytes(), verify=False))
    except (OSError, ValueError, IndexError):
        return None


def find_manifest_damage(directory: Path, synced: Synced) -> str:
    """A sentence about the damage of the manifest; empty if there is none.

    RocksDB may loop for ever while it reads a damaged one, so this comes first. An unfinished end
    is no damage unless a part of it was synced; RocksDB ignores it.
    """
    try:
        manifest = manifest_in(directory)
        held = manifest.read_bytes()
    except (OSError, ValueError):
        return ""  # RocksDB itself reports a missing one.
    is_noted = manifest.name == f"MANIFEST-{synced.manifest:06}"
    if is_noted and len(held) < synced.manifest_bytes:
        return f"'{manifest.name}' has {len(held)} bytes and had {synced.manifest_bytes}"
    reader = LogReader(held, verify=True)
    deque(reader.entries(0), maxlen=0)
    stop = reader.stop
    if not stop.reason:
        return ""
    if is_cut_short(held, stop) and not (is_noted and stop.safe < synced.manifest_bytes):
        return ""
    return f"'{manifest.name}' is damaged at byte {stop.offset}: {stop.reason}"


def _summary(manifest: LogReader) -> LogsNeeded | None:
    logs: dict[int, int] = {}
    oldest = last_sequence = 0
    group: list[_Edit] = []
    for _, data in manifest.entries(sys.maxsize):
        edit = _read_edit(data)
        if edit is None:
            return None
        group.append(edit)
        if edit.more_in_group:
            continue
        for each in group:
            oldest = max(oldest, each.oldest_log)
            last_sequence = max(last_sequence, each.last_sequence)
            if each.is_drop:
                logs.pop(each.family, None)
            elif each.log is not None:
                logs[each.family] = max(each.log, logs.get(each.family, 0))
        group = []
    return LogsNeeded(max(oldest, min(logs.values(), default=0)), last_sequence)


class _Edit(Struct):
    """A change of one family's files. A group of edits counts only if it is complete."""

    family: int = 0
    is_drop: bool = False
    log: int | None = None
    oldest_log: int = 0
    last_sequence: int = 0
    more_in_group: int = 0


def _read_edit(data: bytes) -> _Edit | None:
    edit, fields = _Edit(), _Fields(data)
    while not fields.at_end:
        field = fields.number()
        if field == _LOG:
            edit.log = fields.number()
        elif field == _LAST_SEQUENCE:
            edit.last_sequence = fields.number()
        elif field == _OLDEST_LOG:
            edit.oldest_log = fields.number()
        elif field == _FAMILY:
            edit.family = fields.number()
        elif field == _DROP:
            edit.is_drop = True
        elif field == _MORE_IN_GROUP:
            edit.more_in_group = fields.number()
        elif not fields.skip(field):
            return None
    return edit


class _Fields:
    """Reads one edit, a sequence of numbers in 7-bit groups and of texts with their length."""

    def __init__(self, edit: bytes) -> None:
        self._edit, self._at = edit, 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._edit)

    def number(self) -> int:
        value, self._at = read_varint(self._edit, self._at)
        return value

    def skip(self, field: int) -> bool:
        """Skip the value of a field; false if the field is unknown."""
        if field in _NUMBER:
            self.number()
        elif field in _TEXT or field & _IGNORABLE:
            self._skip_text()
        elif field == _CURSOR:
            self.number()
            self._skip_text()
        elif field == _DELETED_FILE:
            self._skip_numbers(2)
        elif field == _NEW_FILE:
            self._skip_numbers(3)
            self._skip_text()
            self._skip_text()
            self._skip_numbers(2)
            while self.number() != _END_OF_FILE_FIELDS:
                self._skip_text()
        else:
            return False
        return True

    def _skip_numbers(self, count: int) -> None:
        for _ in range(count):
            self.number()

    def _skip_text(self) -> None:
        length = self.number()
        self._at += length
