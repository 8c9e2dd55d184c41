"""Checks that the files of an open RocksDB exist. RocksDB itself does not notice for hours."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from morag.backend.rocksdb.write_ahead_log import logs_in, manifest_in
from morag.backend.store_files import Identity, OpenFiles, identity

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
    """Watches the directory, its lock, and the log that RocksDB writes to and replaces.

    `lost` may be called by several threads: each replaces the log that it knows by a newer one, and
    checks again before it reports one as lost. `lost_of_all` is for one thread at a time.
    """

    def __init__(self, directory: Path, clock: Callable[[], float] = monotonic) -> None:
        self._directory, self._clock = directory, clock
        self._fixed = OpenFiles([directory, directory / "LOCK"])
        self._log = _Log(-1, str(directory / "*.log"), None)
        self._find_newer_log(self._log)
        self._next_listing = -inf

    def lost(self) -> str | None:
        """A missing file that makes new writes useless. Costs one `stat` for each write."""
        log = self._log
        try:
            if log.identity is not None and identity(log.path) == log.identity:
                return None
            # Either RocksDB has begun another log, or this one is gone.
            if (lost := self._fixed.lost()) is not None:
                return lost
            return None if self._find_newer_log(log) else log.path
        except FileNotFoundError:
            return str(self._directory)
        except OSError:  # Such as no free file descriptor, which proves nothing.
            return None

    def elsewhere(self) -> str | None:
        """A path of the store that names another file now, or none."""
        return self._fixed.lost()

    def lost_of_all(self, db: Rdict) -> str | None:
        """Like `lost`, but checks all files that the next start needs, at most once a second.

        RocksDB keeps an old log for a while after it has begun a new one. So this also finds the
        newest log for `lost` to watch.
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
            except OSError:  # Such as no free file descriptor, which proves nothing.
                return None
            missing = sorted((tables | {manifest}) - there)
            lost = str(self._directory / missing[0]) if missing else None
            if lost is None:
                break
        return lost

    def _find_newer_log(self, than: _Log) -> bool:
        """Watch the newest log, if there is a newer one."""
        logs = logs_in(self._directory)
        if not logs or (number := int(logs[-1].stem)) <= than.number:
            return False
        path = str(logs[-1])
        self._log = _Log(number, path, identity(path))
        return True
