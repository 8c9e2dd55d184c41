"""RocksDB's files while it is open. It would go on for hours after all of them were removed."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.lost_files import Identity, OpenFiles, identity
from morag.backend.rocksdb_log import logs_in, manifest_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocksdict import Rdict

SECONDS_BETWEEN_LISTINGS: Final = 1.0
_TRIES_WHILE_FILES_CHANGE: Final = 5


class _Log(Struct, frozen=True):
    number: int
    path: str
    identity: Identity | None


class RocksDBFiles:
    """Knows the directory, its lock, and the log that is written to, which RocksDB replaces.

    `lost` may be called by several threads: each replaces the log that it knows by a newer one, and
    looks again before it calls one lost. `lost_of_all` is for one thread at a time.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = monotonic) -> None:
        self._directory, self._clock = directory, clock
        self._fixed = OpenFiles([directory, directory / "LOCK"])
        self._log = _Log(-1, str(directory / "*.log"), None)
        self._find_newer_log(self._log)
        self._next_listing = -inf

    def lost(self) -> str | None:
        """A file without which nothing that is written now is kept. For each write: one `stat`."""
        log = self._log
        try:
            if log.identity is not None and identity(log.path) == log.identity:
                return None
            # Either RocksDB has gone on to another log, or this one is gone.
            if (lost := self._fixed.lost()) is not None:
                return lost
            return None if self._find_newer_log(log) else log.path
        except FileNotFoundError:
            return str(self._directory)
        except OSError:  # Such as that no file descriptor is left, which says nothing.
            return None

    def elsewhere(self) -> str | None:
        """A name of its files that leads somewhere else now, or nowhere."""
        return self._fixed.lost()

    def lost_of_all(self, db: Rdict) -> str | None:
        """As `lost`, but looks for all files that the next start needs: at most once a second.

        RocksDB keeps an old log for a while after it has begun a new one. So this looks for the
        newest, too, for `lost` to watch.
        """
        lost = self._fixed.lost() or self.lost()
        if lost is not None or self._clock() < self._next_listing:
            return lost
        with suppress(OSError):
            self._find_newer_log(self._log)
        lost = self._missing(db)
        if lost is None:
            self._next_listing = self._clock() + SECONDS_BETWEEN_LISTINGS
        return lost

    def _missing(self, db: Rdict) -> str | None:
        lost = None
        # A file that is missing may have become obsolete meanwhile.
        for _ in range(_TRIES_WHILE_FILES_CHANGE):
            tables = {Path(file["name"]).name for file in db.live_files()}
            try:
                there = {entry.name for entry in self._directory.iterdir()}
                manifest = manifest_in(self._directory).name
            except FileNotFoundError:
                lost = str(self._directory / "CURRENT")
                continue
            except OSError:  # Such as that no file descriptor is left, which says nothing.
                return None
            missing = sorted((tables | {manifest}) - there)
            lost = str(self._directory / missing[0]) if missing else None
            if lost is None:
                break
        return lost

    def _find_newer_log(self, than: _Log) -> bool:
        """Take the newest log for the one that is written to, if it is newer than that."""
        logs = logs_in(self._directory)
        if not logs or (number := int(logs[-1].stem)) <= than.number:
            return False
        path = str(logs[-1])
        self._log = _Log(number, path, identity(path))
        return True
