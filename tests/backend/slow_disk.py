"""A disk below RocksDB whose syncs are slow or fail."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocksdict import Rdict, WriteBatch


class SlowDisk:
    """A RocksDB whose syncs wait until `go` is set, and then fail with `error` if it is set."""

    def __init__(self, db: Rdict) -> None:
        self._db = db
        self.syncing, self.go = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.write_error: Exception | None = None
        self.fail_at = 2
        self.syncs = 0

    def write(self, batch: WriteBatch) -> None:
        if self.write_error is not None:
            raise self.write_error
        self._db.write(batch)

    def flush_wal(self, sync: bool) -> None:
        self.syncs += 1
        self.syncing.set()
        assert self.go.wait(timeout=30)
        if self.error is not None and self.syncs >= self.fail_at:
            raise self.error
        self._db.flush_wal(sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)
