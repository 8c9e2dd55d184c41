"""A note beside RocksDB's files: what is known to be synced.

A log alone cannot tell a last write that was acknowledged from one that was cut short, nor a log
that was removed from one that never was; a manifest cannot tell that its end is missing. Since the
note is made after the sync, it may lag behind after a crash of the machine, but it never promises
too much.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec import Struct

from morag.backend.rocksdb_log import manifest_in

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "morag-synced"


class Synced(Struct, frozen=True):
    """All writes up to a sequence number, and so many bytes of the manifest of that number."""

    sequence: int = 0
    manifest: int = 0
    manifest_bytes: int = 0


def read_synced(directory: Path) -> Synced:
    """Nothing is known if there is no note, or none that can be trusted."""
    try:
        *words, checksum = (directory / NAME).read_bytes().split()
        if int(checksum, 16) != crc32(b" ".join(words)):
            return Synced()
        sequence, manifest, manifest_bytes = map(int, words)
    except (OSError, ValueError):
        return Synced()
    return Synced(sequence, manifest, manifest_bytes)


class SyncedNote:
    """The note as it is kept up to date, by an overwrite that is not synced itself."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._manifest, self._manifest_bytes = 0, 0
        self.look_at_manifest()

    def look_at_manifest(self) -> None:
        """RocksDB has synced what it appended to it, when it opens and when it is closed."""
        with suppress(OSError, ValueError):
            manifest = manifest_in(self._directory)
            self._manifest = int(manifest.name.rpartition("-")[2])
            self._manifest_bytes = manifest.stat().st_size

    def write(self, sequence: int) -> None:
        words = b"%020d %020d %020d" % (sequence, self._manifest, self._manifest_bytes)
        with suppress(OSError):  # Then it stays at a smaller number, which is true as well.
            os.pwrite(self._file, b"%b %08x\n" % (words, crc32(words)), 0)

    def close(self) -> None:
        os.close(self._file)
