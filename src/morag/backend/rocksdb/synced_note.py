"""A file beside RocksDB's own that notes how much was synced.

A log alone does not show whether its last write was acknowledged or cut short, nor whether a log
was removed or never existed; a manifest does not show that its end is missing. The note is written
after the sync, so it may lag behind after a crash of the machine, but it never claims too much.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec import Struct

from morag.backend.rocksdb.write_ahead_log import manifest_in

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "morag-synced"


class Synced(Struct, frozen=True):
    """The synced part: writes up to `sequence`, and bytes of the manifest with this number."""

    sequence: int = 0
    manifest: int = 0
    manifest_bytes: int = 0


def read_synced(directory: Path) -> Synced:
    """All zeros if there is no note that can be trusted."""
    try:
        *words, checksum = (directory / NAME).read_bytes().split()
        if int(checksum, 16) != crc32(b" ".join(words)):
            return Synced()
        sequence, manifest, manifest_bytes = map(int, words)
    except (OSError, ValueError):
        return Synced()
    return Synced(sequence, manifest, manifest_bytes)


class SyncedNote:
    """Keeps the note up to date by overwriting it, without a sync of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._manifest, self._manifest_bytes = 0, 0
        self.look_at_manifest()

    def look_at_manifest(self) -> None:
        """Note the size of the manifest. Call it after opening or closing: then it is synced."""
        with suppress(OSError, ValueError):
            manifest = manifest_in(self._directory)
            self._manifest = int(manifest.name.rpartition("-")[2])
            self._manifest_bytes = manifest.stat().st_size

    def write(self, sequence: int) -> None:
        words = b"%020d %020d %020d" % (sequence, self._manifest, self._manifest_bytes)
        with suppress(OSError):  # Then it keeps a smaller number, which is also true.
            os.pwrite(self._file, b"%b %08x\n" % (words, crc32(words)), 0)

    def close(self) -> None:
        os.close(self._file)
